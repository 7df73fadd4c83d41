"""Doors compared with a model that remembers every offset."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.transports.kafka.doors import Doors

QUEUE = ("t", 0)


@given(st.lists(st.tuples(st.sampled_from(["out", "done", "seek"]), st.integers(0, 12))))
def test_the_door_stands_below_what_is_not_done(steps: list[tuple[str, int]]) -> None:
    doors = Doors(acknowledged=True)
    door = doors.open(QUEUE)
    epoch, next_offset = 0, 0
    out: set[int] = set()
    done: set[int] = set()
    before: int | None = None
    for step, number in steps:
        if step == "out":
            assert doors.deliver(door, epoch, next_offset)
            out.add(next_offset)
            next_offset += 1
        elif step == "done":
            doors.acknowledge(QUEUE, number)
            done |= {number} & out
        else:
            found = doors.seek(QUEUE)
            assert found is not None
            _, epoch = found
            assert not doors.deliver(door, epoch - 1, number)
            # The group's offset stays.
            assert door.lowest == before
            out, done, next_offset = set(), set(), number
        if door.lowest != before:
            assert door.lowest is not None
            assert {each for each in out if each < door.lowest} <= done
        if out and out == done:
            assert door.lowest == next_offset
        before = door.lowest


def test_what_moved_is_told_once() -> None:
    doors = Doors(acknowledged=True)
    door = doors.open(QUEUE)
    for offset in range(3):
        assert doors.deliver(door, 0, offset)
    assert doors.moved() == {}
    doors.acknowledge(QUEUE, 1)
    assert doors.moved() == {}
    doors.acknowledge(QUEUE, 0)
    assert doors.moved([("t", 1)]) == {}
    assert doors.moved([QUEUE]) == {QUEUE: 2}
    assert doors.moved() == {}
    doors.acknowledge(QUEUE, 2)
    assert doors.moved() == {QUEUE: 3}


def test_a_lost_queue_takes_nothing() -> None:
    doors = Doors(acknowledged=True)
    before = doors.open(QUEUE)
    assert doors.deliver(before, 0, 0)
    doors.close(QUEUE)
    doors.acknowledge(QUEUE, 0)
    assert not doors.deliver(before, 0, 1)
    assert doors.seek(QUEUE) is None
    after = doors.open(QUEUE)
    # What was read before the loss is another member's.
    assert not doors.deliver(before, 0, 1)
    assert doors.deliver(after, 0, 0)
    assert doors.moved() == {}


def test_who_keeps_its_offsets_moves_nothing() -> None:
    doors = Doors(acknowledged=False)
    assert doors.deliver(doors.open(QUEUE), 0, 0)
    doors.acknowledge(QUEUE, 0)
    assert doors.moved() == {}

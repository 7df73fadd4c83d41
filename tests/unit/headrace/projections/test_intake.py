"""The intake takes the next messages of each queue and asks again for what is missing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.projections.intake import Intake, is_small, pause_s
from headrace.transports.base import Incoming, QueueId

Q0: QueueId = ("t", 0)
Q1: QueueId = ("t", 1)


def messages(*places: tuple[QueueId, int]) -> list[Incoming]:
    return [
        Incoming(queue=queue, offset=offset, key="", tag="", headers={}, body=b"")
        for queue, offset in places
    ]


def places(taken: list[Incoming]) -> list[tuple[QueueId, int]]:
    return [(message.queue, message.offset) for message in taken]


def test_messages_at_the_position_are_taken_in_order() -> None:
    admission = Intake().admit(messages((Q0, 3), (Q1, 0), (Q0, 4)), {Q0: 3, Q1: 0})
    assert places(admission.take) == [(Q0, 3), (Q1, 0), (Q0, 4)]
    assert (admission.done, admission.again, admission.lost) == ([], {}, [])


def test_a_queue_without_a_position_begins_with_the_first_message() -> None:
    assert places(Intake().admit(messages((Q0, 7), (Q0, 8)), {Q0: None}).take) == [
        (Q0, 7),
        (Q0, 8),
    ]


def test_messages_before_the_position_are_done() -> None:
    admission = Intake().admit(messages((Q0, 1), (Q0, 2), (Q0, 3)), {Q0: 3})
    assert places(admission.done) == [(Q0, 1), (Q0, 2)]
    assert places(admission.take) == [(Q0, 3)]


def test_a_hole_is_asked_for_again_and_other_queues_go_on() -> None:
    admission = Intake().admit(messages((Q0, 5), (Q1, 0), (Q0, 6)), {Q0: 3, Q1: 0})
    assert admission.again == {Q0: 3}
    assert places(admission.take) == [(Q1, 0)]


def test_a_hole_that_is_still_there_is_lost() -> None:
    intake = Intake()
    intake.admit(messages((Q0, 5)), {Q0: 3})
    admission = intake.admit(messages((Q0, 5), (Q0, 6)), {Q0: 3})
    assert admission.lost == [(Q0, 3, 4)]
    assert places(admission.take) == [(Q0, 5), (Q0, 6)]


def test_a_hole_that_was_only_an_overtaking_delivery_is_forgotten() -> None:
    intake = Intake()
    intake.admit(messages((Q0, 5)), {Q0: 3})
    assert places(intake.admit(messages((Q0, 3), (Q0, 4)), {Q0: 3}).take) == [(Q0, 3), (Q0, 4)]
    assert intake.admit(messages((Q0, 9)), {Q0: 5}).again == {Q0: 5}


def test_a_hole_is_requested_again_each_time_the_position_returns_to_it() -> None:
    intake = Intake()
    intake.admit(messages((Q0, 5)), {Q0: 3})
    intake.admit(messages((Q0, 3)), {Q0: 3})
    assert intake.admit(messages((Q0, 5)), {Q0: 3}).again == {Q0: 3}


def test_a_second_hole_in_one_delivery_is_asked_for_too() -> None:
    admission = Intake().admit(messages((Q0, 0), (Q0, 1), (Q0, 4)), {Q0: 0})
    assert places(admission.take) == [(Q0, 0), (Q0, 1)]
    assert admission.again == {Q0: 2}


@given(st.lists(st.integers(0, 9), max_size=30))
def test_messages_are_taken_without_holes_except_lost_ones(offsets: list[int]) -> None:
    intake, position, taken, lost = Intake(), 0, list[int](), set[int]()
    for offset in offsets:
        admission = intake.admit(messages((Q0, offset)), {Q0: position})
        for _, first, last in admission.lost:
            lost.update(range(first, last + 1))
        taken += [message.offset for message in admission.take]
        position = taken[-1] + 1 if taken else position
    assert sorted({*taken, *lost}) == list(range(position))
    assert taken == sorted(set(taken))


@pytest.mark.parametrize(("took_ms", "wanted_ms"), [(0, 10), (1, 9), (9, 1), (10, 0), (500, 0)])
def test_small_batches_begin_an_interval_apart_and_at_once_after_a_slow_one(
    took_ms: int, wanted_ms: int
) -> None:
    assert pause_s(took_ms / 1_000, 10) == pytest.approx(wanted_ms / 1_000)


def test_batches_without_an_interval_do_not_wait() -> None:
    assert pause_s(0.0, 0) == 0


def test_a_batch_is_small_until_it_is_full_or_large_for_its_transaction() -> None:
    assert is_small(249, 1_000)
    assert not is_small(250, 1_000)
    assert is_small(9, 10)
    assert not is_small(10, 10)

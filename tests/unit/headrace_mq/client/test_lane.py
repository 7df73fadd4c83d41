import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.client.lane import SEQUENCE_MAX, Batch, Lane, new_producer_id
from headrace_mq.client.part import Part
from headrace_mq.errors import InvalidArgument, SendTimeout
from headrace_mq.message import Message, QueueRef, SendResult
from headrace_mq.protocol.batch import decode_records, read_header

QUEUE = QueueRef("t", 1)


def make(messages_max: int = 3, bytes_max: int = 1_000, producer_id: int = 7) -> Lane:
    return Lane(QUEUE, producer_id, messages_max=messages_max, bytes_max=bytes_max, codec="none")


def message(body: bytes = b"", **fields: object) -> Message:
    return Message(topic="t", body=body, **fields)  # type: ignore[arg-type]  # fields of a Message


def add(lane: Lane, *bodies: bytes, size: int = 10) -> list[Batch]:
    places = [lane.add(message(body), size, 5) for body in bodies]
    for batch, _ in places:
        batch.deadline_ms = 100
    return list(dict.fromkeys(batch for batch, _ in places))


def bodies(encoded: bytearray) -> list[bytes]:
    return [record.body for record in decode_records(encoded)]


def test_what_comes_before_the_departure_goes_together() -> None:
    lane = make()
    add(lane, b"a", b"b")
    _, encoded = lane.depart()
    assert bodies(encoded) == [b"a", b"b"]
    assert not lane.has_work


def test_what_comes_while_a_batch_is_in_flight_waits_for_it() -> None:
    lane = make()
    add(lane, b"a")
    lane.depart()
    add(lane, b"b", b"c")
    assert not lane.has_work
    lane.arrived()
    assert lane.has_work
    assert bodies(lane.depart()[1]) == [b"b", b"c"]


def test_a_batch_takes_so_many_messages_and_bytes_and_one_larger_message_alone() -> None:
    lane = make(messages_max=2, bytes_max=100)
    for size in (10, 10, 10, 95, 500, 5):
        lane.add(message(b"%d" % size), size, 5)
    sent = []
    while lane.has_work:
        sent.append(bodies(lane.depart()[1]))
        lane.arrived()
    assert sent == [[b"10", b"10"], [b"10"], [b"95"], [b"500"], [b"5"]]


def test_sequences_count_messages_under_one_producer_id() -> None:
    lane = make()
    headers = []
    for count in (3, 2, 1):
        add(lane, *[b"x"] * count)
        headers.append(read_header(lane.depart()[1]))
        lane.arrived()
    assert [(header.first_sequence, header.count) for header in headers] == [(0, 3), (3, 2), (5, 1)]
    assert {header.producer_id for header in headers} == {7}
    assert {header.producer_epoch for header in headers} == {0}


def test_a_retry_is_the_very_same_bytes() -> None:
    lane = make()
    add(lane, b"a")
    first, encoded = lane.depart()
    sent = bytes(encoded)
    add(lane, b"b")
    lane.resend = True
    assert lane.has_work
    again, encoded = lane.depart()
    assert again is first
    assert bytes(encoded) == sent
    assert again.attempts == 2


def test_after_a_given_up_batch_a_new_producer_begins_at_zero() -> None:
    lane = make()
    add(lane, b"a")
    lane.depart()
    lane.lost()
    add(lane, b"b")
    header = read_header(lane.depart()[1])
    assert header.first_sequence == 0
    assert header.producer_id != 7


def test_a_sequence_that_would_run_over_begins_anew() -> None:
    lane = make()
    lane._sequence = SEQUENCE_MAX - 1
    add(lane, b"a")
    assert read_header(lane.depart()[1]).first_sequence == SEQUENCE_MAX - 1
    lane.arrived()
    add(lane, b"b")
    header = read_header(lane.depart()[1])
    assert header.first_sequence == 0
    assert header.producer_id != 7


def test_batches_expire_oldest_first_and_the_one_in_flight_ends_the_sequence() -> None:
    lane = make(messages_max=1)
    batches = add(lane, b"a", b"b", b"c")
    for batch, deadline_ms in zip(batches, (10, 20, 30), strict=True):
        batch.deadline_ms = deadline_ms
    lane.depart()
    assert lane.expired(9) == []
    assert lane.expired(20) == batches[:2]
    assert bodies(lane.depart()[1]) == [b"c"]
    assert read_header(lane.in_flight.encoded).producer_id != 7  # type: ignore[union-attr,arg-type]  # it departed above


def test_a_batch_that_waits_behind_a_living_one_does_not_expire() -> None:
    lane = make(messages_max=1)
    old, young = add(lane, b"a", b"b")
    old.deadline_ms, young.deadline_ms = 50, 50
    lane.depart()
    old.deadline_ms = 100
    assert lane.expired(60) == []


def test_abandoning_takes_everything_out() -> None:
    lane = make(messages_max=1)
    batches = add(lane, b"a", b"b")
    lane.depart()
    assert lane.abandoned() == batches
    assert not lane.has_work


def test_a_result_names_queue_and_offset() -> None:
    batch = Batch(QUEUE)
    batch.stored(40, duplicate=True)
    assert batch.result(2) == SendResult(QUEUE, 42, True)


def test_a_repeated_batch_whose_place_is_forgotten_has_no_offset() -> None:
    batch = Batch(QUEUE)
    batch.stored(-1, duplicate=True)
    assert batch.result(2) == SendResult(QUEUE, -1, True)


def test_every_sender_gets_an_error_of_its_own() -> None:
    batch = Batch(QUEUE)
    batch.failed(InvalidArgument("no"))
    errors = []
    for number in range(2):
        with pytest.raises(InvalidArgument, match="no") as caught:
            batch.result(number)
        errors.append(caught.value)
    assert errors[0] is not errors[1]
    assert errors[0].__cause__ is errors[1].__cause__


async def test_settling_wakes_whoever_waits() -> None:
    batch = Batch(QUEUE)
    batch.waiter = asyncio.get_running_loop().create_future()
    batch.failed(SendTimeout("late"))
    await batch.waiter
    assert batch.settled


def test_all_fields_arrive_and_a_clock_set_back_makes_nothing_older() -> None:
    lane = make()
    lane.add(message(b"a", key="k", tag="x", headers={"h": "v"}), 10, 50)
    lane.add(message(b"b"), 10, 53)
    lane.add(message(b"c"), 10, 40)
    records = decode_records(lane.depart()[1])
    assert [(r.key, r.tag, dict(r.headers), r.body) for r in records] == [
        ("k", "x", {"h": "v"}, b"a"),
        ("", "", {}, b"b"),
        ("", "", {}, b"c"),
    ]
    assert [record.born_at_ms for record in records] == [50, 53, 50]


def test_subclasses_of_text_and_bytes_are_sent_as_what_they_are() -> None:
    class Text(str):
        __slots__ = ()

    class Octets(bytes):
        __slots__ = ()

    lane = make()
    odd = message(Octets(b"b"), key=Text("k"), tag=Text("t"), headers={Text("n"): Text("v")})
    lane.add(odd, 10, 1)
    (record,) = decode_records(lane.depart()[1])
    assert (record.key, record.tag, record.headers, record.body) == ("k", "t", {"n": "v"}, b"b")


def test_producer_ids_have_63_bits_and_differ() -> None:
    ids = {new_producer_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(0 <= number < 1 << 63 for number in ids)


@given(steps=st.lists(st.sampled_from(["add", "depart", "arrived", "again", "lost"]), max_size=60))
def test_every_message_departs_in_order_and_nothing_departs_behind_a_batch_in_flight(
    steps: list[str],
) -> None:
    lane = make(messages_max=2)
    added, arrived = 0, []
    for step in steps:
        if step == "add":
            lane.add(message(b"%d" % added), 10, 5)
            added += 1
        elif step == "depart" and lane.has_work:
            lane.depart()
        elif lane.in_flight is not None and step in {"arrived", "lost"}:
            assert lane.in_flight.encoded is not None
            arrived += bodies(lane.in_flight.encoded)
            getattr(lane, step)()
        elif lane.in_flight is not None and step == "again":
            lane.resend = True
    while lane.has_work or lane.in_flight is not None:
        if lane.has_work:
            arrived += bodies(lane.depart()[1])
        else:
            arrived += bodies(lane.in_flight.encoded)  # type: ignore[union-attr,arg-type]  # in flight
        lane.arrived()
    assert arrived == [b"%d" % number for number in range(added)]


@given(
    steps=st.lists(
        st.one_of(
            st.integers(1, 9).map(lambda count: [b"x" * 10] * count),
            st.lists(st.binary(max_size=90), min_size=1, max_size=9),
            st.just([bytes(300)]),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_many_at_once_stand_in_order_in_batches_within_the_limits(steps: list[list[bytes]]) -> None:
    lane = make(messages_max=4, bytes_max=200)
    expected: list[bytes] = []
    for number, step in enumerate(steps):
        if number % 3 == 2:
            lane.add(message(step[0]), len(step[0]), 5)
            expected.append(step[0])
            continue
        placed = lane.extend(Part(step, [f"{n}" for n in range(len(step))]), 5)
        assert sum(count for _, _, count in placed) == len(step)
        at = 0
        for batch, first, count in placed:
            assert batch.count >= first + count
            at += count
        expected += step
    found: list[bytes] = []
    while lane.has_work:
        batch, encoded = lane.depart()
        records = decode_records(encoded)
        assert len(records) == batch.count <= 4
        assert batch.size <= 200 or batch.count == 1
        found += [record.body for record in records]
        lane.arrived()
    assert found == expected


def test_columns_and_single_messages_mix_in_one_batch() -> None:
    lane = make(messages_max=9)
    lane.add(message(b"a"), 10, 50)
    lane.extend(Part([b"b", b"c"], ["k", ""], [], [{}, {"h": "v"}]), 51)
    lane.add(message(b"d", tag="x"), 10, 50)
    lane.extend(Part([b"e"]), 49)
    records = decode_records(lane.depart()[1])
    assert [(r.key, r.tag, dict(r.headers), r.body) for r in records] == [
        ("", "", {}, b"a"),
        ("k", "", {}, b"b"),
        ("", "", {"h": "v"}, b"c"),
        ("", "x", {}, b"d"),
        ("", "", {}, b"e"),
    ]
    assert [record.born_at_ms for record in records] == [50, 51, 51, 50, 50]


async def test_a_report_is_made_once_there_is_a_result() -> None:
    loop = asyncio.get_running_loop()
    early, late, given_up = loop.create_future(), loop.create_future(), loop.create_future()
    batch = Batch(QUEUE)
    batch.report(1, early)
    batch.report(0, given_up)
    given_up.cancel()
    batch.stored(7, duplicate=False)
    batch.report(2, late)
    assert [(await result).offset for result in (early, late)] == [8, 9]


async def test_a_report_of_a_given_up_batch_raises_why() -> None:
    result = asyncio.get_running_loop().create_future()
    batch = Batch(QUEUE)
    batch.report(0, result)
    batch.failed(SendTimeout("late"))
    with pytest.raises(SendTimeout, match="late"):
        await result

from collections import deque

from hypothesis import example, given
from hypothesis import strategies as st

from headrace_mq.client.batch.batch import Batch
from headrace_mq.client.batch.message_columns import MessageColumns
from headrace_mq.client.producer.queue_sender import (
    FOLLOW_BYTES,
    IN_FLIGHT_MAX,
    SEQUENCE_MAX,
    QueueSender,
    new_producer_id,
)
from headrace_mq.errors import SequenceGap
from headrace_mq.message import Message, QueueRef
from headrace_mq.protocol.batch import decode_records, read_header
from headrace_mq.store.index.sequences import SentBatch, Sequences

QUEUE = QueueRef("t", 1)


def make(messages_max: int = 3, bytes_max: int = 1_000, producer_id: int = 7) -> QueueSender:
    return QueueSender(
        QUEUE, producer_id, messages_max=messages_max, bytes_max=bytes_max, codec="none"
    )


def message(body: bytes = b"", **fields: object) -> Message:
    return Message(topic="t", body=body, **fields)  # type: ignore[arg-type]  # fields of a Message


def add(lane: QueueSender, *bodies: bytes, size: int = 10) -> list[Batch]:
    places = [lane.add(message(body), size, 5) for body in bodies]
    for batch, _ in places:
        batch.deadline_ms = 100
    return list(dict.fromkeys(batch for batch, _ in places))


def bodies(encoded: bytearray) -> list[bytes]:
    return [record.body for record in decode_records(encoded)]


def test_messages_before_the_departure_go_together() -> None:
    lane = make()
    add(lane, b"a", b"b")
    _, encoded = lane.depart()
    assert bodies(encoded) == [b"a", b"b"]
    assert not lane.has_work


def test_messages_wait_while_a_batch_is_in_flight() -> None:
    lane = make()
    add(lane, b"a")
    first, _ = lane.depart()
    add(lane, b"b", b"c")
    assert not lane.has_work
    lane.arrived(first)
    assert lane.has_work
    assert bodies(lane.depart()[1]) == [b"b", b"c"]


def test_a_batch_takes_so_many_messages_and_bytes_and_one_larger_message_alone() -> None:
    lane = make(messages_max=2, bytes_max=100)
    for size in (10, 10, 10, 95, 500, 5):
        lane.add(message(b"%d" % size), size, 5)
    sent = []
    while lane.has_work:
        batch, encoded = lane.depart()
        sent.append(bodies(encoded))
        lane.arrived(batch)
    assert sent == [[b"10", b"10"], [b"10"], [b"95"], [b"500"], [b"5"]]


def test_sequences_count_messages_under_one_producer_id() -> None:
    lane = make()
    headers = []
    for count in (3, 2, 1):
        add(lane, *[b"x"] * count)
        batch, encoded = lane.depart()
        headers.append(read_header(encoded))
        lane.arrived(batch)
    assert [(header.first_sequence, header.count) for header in headers] == [(0, 3), (3, 2), (5, 1)]
    assert {header.producer_id for header in headers} == {7}
    assert {header.producer_epoch for header in headers} == {0}


def test_a_retry_is_the_very_same_bytes() -> None:
    lane = make()
    add(lane, b"a")
    first, encoded = lane.depart()
    sent = bytes(encoded)
    add(lane, b"b")
    lane.returned(first)
    assert lane.has_work
    again, encoded = lane.depart()
    assert again is first
    assert bytes(encoded) == sent
    assert again.attempts == 2


def test_after_a_given_up_batch_a_new_producer_begins_at_zero() -> None:
    lane = make()
    add(lane, b"a")
    lane.lost(lane.depart()[0])
    add(lane, b"b")
    header = read_header(lane.depart()[1])
    assert header.first_sequence == 0
    assert header.producer_id != 7


def test_a_sequence_that_would_run_over_begins_again() -> None:
    lane = make()
    lane._sequence = SEQUENCE_MAX - 1
    add(lane, b"a")
    batch, encoded = lane.depart()
    assert read_header(encoded).first_sequence == SEQUENCE_MAX - 1
    lane.arrived(batch)
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
    _, encoded = lane.depart()
    assert bodies(encoded) == [b"c"]
    assert read_header(encoded).producer_id != 7


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


def confirmed(count: int, *, size: int = FOLLOW_BYTES) -> tuple[QueueSender, list[Batch]]:
    """A lane whose producer is known, with so many large batches of one message waiting."""
    lane = make(messages_max=1, bytes_max=1 << 20)
    add(lane, b"first")
    lane.arrived(lane.depart()[0])
    return lane, add(lane, *[b"%d" % number for number in range(count)], size=size)


def test_large_batches_follow_one_another_as_many_as_the_broker_remembers() -> None:
    lane, batches = confirmed(IN_FLIGHT_MAX + 1)
    sent = []
    while lane.has_work:
        sent.append(lane.depart()[0])
    assert sent == batches[:IN_FLIGHT_MAX]
    lane.arrived(sent[0])
    assert lane.depart()[0] is batches[IN_FLIGHT_MAX]


def test_a_small_batch_waits_for_those_in_flight() -> None:
    lane, _ = confirmed(2, size=FOLLOW_BYTES - 1)
    lane.depart()
    assert not lane.has_work


def test_nothing_follows_before_the_broker_knows_the_producer() -> None:
    lane = make(messages_max=1, bytes_max=1 << 20)
    add(lane, b"a", b"b", size=FOLLOW_BYTES)
    first, _ = lane.depart()
    assert not lane.has_work
    lane.arrived(first)
    lane.rest()
    add(lane, b"c", size=FOLLOW_BYTES)
    lane.depart()
    assert not lane.has_work


def test_nothing_follows_where_the_sequence_would_run_over() -> None:
    lane, _ = confirmed(2)
    lane._sequence = SEQUENCE_MAX - 1
    lane.depart()
    assert not lane.has_work


def test_returned_batches_are_sent_again_in_order_once_all_answers_are_there() -> None:
    lane, batches = confirmed(3)
    sent = {batch: bytes(encoded) for batch, encoded in (lane.depart() for _ in range(3))}
    lane.returned(batches[0])
    assert lane.gapped(batches[1])
    assert not lane.has_work
    assert lane.gapped(batches[2])
    again = []
    while lane.has_work:
        batch, encoded = lane.depart()
        assert bytes(encoded) == sent[batch]
        again.append(batch)
        assert not lane.has_work or lane.confirmed
        lane.arrived(batch)
    assert again == batches


def test_returned_batches_wait_while_the_sender_is_paused() -> None:
    lane, _ = confirmed(1)
    lane.paused = True
    lane.returned(lane.depart()[0])
    assert not lane.has_work
    lane.paused = False
    assert lane.has_work


def test_batches_behind_a_refused_one_begin_a_new_sequence() -> None:
    lane, batches = confirmed(3)
    before = read_header(lane.depart()[1]).producer_id
    lane.depart()
    lane.lost(batches[0])
    assert not lane.has_work
    assert lane.gapped(batches[1])
    headers = [read_header(lane.depart()[1])]
    lane.arrived(batches[1])
    headers.append(read_header(lane.depart()[1]))
    assert [header.first_sequence for header in headers] == [0, 1]
    assert headers[0].producer_id == headers[1].producer_id != before


def test_batches_behind_a_late_one_are_never_sent_under_new_numbers() -> None:
    lane, batches = confirmed(2)
    lane.depart()
    lane.depart()
    batches[0].deadline_ms = 50
    assert lane.expired(50) == batches[:1]
    assert lane.late
    assert not lane.gapped(batches[1])


def test_a_gap_that_nothing_explains_is_final() -> None:
    lane, batches = confirmed(1)
    lane.depart()
    assert not lane.gapped(batches[0])


class World:
    """A lane, its connection, and a broker that remembers as the real one does."""

    def __init__(self) -> None:
        self.lane = make(messages_max=2, bytes_max=1 << 20)
        self.known = Sequences()
        self.stored: list[bytes] = []
        self.requests: deque[Batch] = deque()
        self.answers: deque[tuple[Batch, str]] = deque()
        self.added = 0
        self.acknowledged: list[bytes] = []
        self.refused: list[bytes] = []

    def add(self) -> None:
        self.lane.add(message(b"%d" % self.added), FOLLOW_BYTES, 5)
        self.added += 1

    def depart(self) -> None:
        if self.lane.has_work:
            self.requests.append(self.lane.depart()[0])

    def handle(self, word: str) -> None:
        """The broker takes the next request, or says no."""
        if not self.requests:
            return
        batch = self.requests.popleft()
        assert batch.encoded is not None
        header = read_header(batch.encoded)
        key = (header.producer_id, 0, QUEUE)
        try:
            duplicate = self.known.duplicate_of(key, header.first_sequence, header.count)
        except SequenceGap:
            word = "gap" if word == "take" else word
        else:
            # What is stored already is acknowledged, whatever a new one would be told.
            if duplicate is not None:
                word = "take"
            elif word == "take":
                sent = SentBatch(header.first_sequence, header.count, len(self.stored))
                self.known.record(key, sent)
                self.stored += bodies(batch.encoded)
        self.answers.append((batch, word))

    def hear(self) -> None:
        """The producer takes the next answer."""
        if not self.answers:
            return
        batch, word = self.answers.popleft()
        assert batch.encoded is not None
        if word == "take":
            self.lane.arrived(batch)
            self.acknowledged += bodies(batch.encoded)
        elif word == "later":
            self.lane.returned(batch)
        elif word == "never" or not self.lane.gapped(batch):
            self.lane.lost(batch)
            self.refused += bodies(batch.encoded)

    def disconnect(self, *, forget: bool) -> None:
        """What is under way is lost, with `forget` also what the broker knew of producers.

        It forgets those that it has not heard of for long, none that waits for an acknowledgement.
        """
        under_way = [batch for batch, _ in self.answers] + list(self.requests)
        self.answers.clear()
        self.requests.clear()
        for batch in under_way:
            self.lane.returned(batch)
        self.lane.confirmed = False
        if forget and len(self.acknowledged) == len(self.stored):
            self.known = Sequences()


@example(steps=["add", "depart", "take", "cut", "depart", "never"])
@example(steps=["add", "depart", "take", "cut", "forget"])
@given(
    steps=st.lists(
        st.sampled_from(
            ["add", "depart", "take", "take", "hear", "later", "never", "cut", "forget"]
        ),
        max_size=80,
    )
)
def test_each_message_is_stored_once_and_in_order_or_refused(
    steps: list[str],
) -> None:
    world = World()
    for step in steps:
        match step:
            case "add" | "depart" | "hear":
                getattr(world, step)()
            case "cut" | "forget":
                world.disconnect(forget=step == "forget")
            case _:
                world.handle(step)
    while world.lane.has_work or world.requests or world.answers:
        world.depart()
        world.handle("take")
        world.hear()
    everything = [b"%d" % number for number in range(world.added)]
    assert world.stored == [body for body in everything if body not in world.refused]
    assert sorted(world.acknowledged) == sorted(world.stored)


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
        placed = lane.extend(MessageColumns(step, [f"{n}" for n in range(len(step))]), 5)
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
        lane.arrived(batch)
    assert found == expected


def test_columns_and_single_messages_mix_in_one_batch() -> None:
    lane = make(messages_max=9)
    lane.add(message(b"a"), 10, 50)
    lane.extend(MessageColumns([b"b", b"c"], ["k", ""], [], [{}, {"h": "v"}]), 51)
    lane.add(message(b"d", tag="x"), 10, 50)
    lane.extend(MessageColumns([b"e"]), 49)
    records = decode_records(lane.depart()[1])
    assert [(r.key, r.tag, dict(r.headers), r.body) for r in records] == [
        ("", "", {}, b"a"),
        ("k", "", {}, b"b"),
        ("", "", {"h": "v"}, b"c"),
        ("", "x", {}, b"d"),
        ("", "", {}, b"e"),
    ]
    assert [record.born_at_ms for record in records] == [50, 51, 51, 50, 50]

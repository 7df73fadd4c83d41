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


def add(sender: QueueSender, *bodies: bytes, size: int = 10) -> list[Batch]:
    places = [sender.add(message(body), size, 5) for body in bodies]
    for batch, _ in places:
        batch.deadline_ms = 100
    return list(dict.fromkeys(batch for batch, _ in places))


def bodies(encoded: bytearray) -> list[bytes]:
    return [record.body for record in decode_records(encoded)]


def test_messages_before_the_departure_go_together() -> None:
    sender = make()
    add(sender, b"a", b"b")
    _, encoded = sender.depart()
    assert bodies(encoded) == [b"a", b"b"]
    assert not sender.has_work


def test_messages_wait_while_a_batch_is_in_flight() -> None:
    sender = make()
    add(sender, b"a")
    first, _ = sender.depart()
    add(sender, b"b", b"c")
    assert not sender.has_work
    sender.arrived(first)
    assert sender.has_work
    assert bodies(sender.depart()[1]) == [b"b", b"c"]


def test_a_batch_takes_so_many_messages_and_bytes_and_one_larger_message_alone() -> None:
    sender = make(messages_max=2, bytes_max=100)
    for size in (10, 10, 10, 95, 500, 5):
        sender.add(message(b"%d" % size), size, 5)
    sent = []
    while sender.has_work:
        batch, encoded = sender.depart()
        sent.append(bodies(encoded))
        sender.arrived(batch)
    assert sent == [[b"10", b"10"], [b"10"], [b"95"], [b"500"], [b"5"]]


def test_sequences_count_messages_under_one_producer_id() -> None:
    sender = make()
    headers = []
    for count in (3, 2, 1):
        add(sender, *[b"x"] * count)
        batch, encoded = sender.depart()
        headers.append(read_header(encoded))
        sender.arrived(batch)
    assert [(header.first_sequence, header.count) for header in headers] == [(0, 3), (3, 2), (5, 1)]
    assert {header.producer_id for header in headers} == {7}
    assert {header.producer_epoch for header in headers} == {0}


def test_a_retry_is_the_very_same_bytes() -> None:
    sender = make()
    add(sender, b"a")
    first, encoded = sender.depart()
    sent = bytes(encoded)
    add(sender, b"b")
    sender.returned(first)
    assert sender.has_work
    again, encoded = sender.depart()
    assert again is first
    assert bytes(encoded) == sent
    assert again.attempts == 2


def test_after_a_given_up_batch_a_new_producer_begins_at_zero() -> None:
    sender = make()
    add(sender, b"a")
    sender.lost(sender.depart()[0])
    add(sender, b"b")
    header = read_header(sender.depart()[1])
    assert header.first_sequence == 0
    assert header.producer_id != 7


def test_a_sequence_that_would_run_over_begins_again() -> None:
    sender = make()
    sender._sequence = SEQUENCE_MAX - 1
    add(sender, b"a")
    batch, encoded = sender.depart()
    assert read_header(encoded).first_sequence == SEQUENCE_MAX - 1
    sender.arrived(batch)
    add(sender, b"b")
    header = read_header(sender.depart()[1])
    assert header.first_sequence == 0
    assert header.producer_id != 7


def test_batches_expire_oldest_first_and_the_one_in_flight_ends_the_sequence() -> None:
    sender = make(messages_max=1)
    batches = add(sender, b"a", b"b", b"c")
    for batch, deadline_ms in zip(batches, (10, 20, 30), strict=True):
        batch.deadline_ms = deadline_ms
    sender.depart()
    assert sender.expired(9) == []
    assert sender.expired(20) == batches[:2]
    _, encoded = sender.depart()
    assert bodies(encoded) == [b"c"]
    assert read_header(encoded).producer_id != 7


def test_a_batch_that_waits_behind_a_living_one_does_not_expire() -> None:
    sender = make(messages_max=1)
    old, young = add(sender, b"a", b"b")
    old.deadline_ms, young.deadline_ms = 50, 50
    sender.depart()
    old.deadline_ms = 100
    assert sender.expired(60) == []


def test_abandoning_takes_everything_out() -> None:
    sender = make(messages_max=1)
    batches = add(sender, b"a", b"b")
    sender.depart()
    assert sender.abandoned() == batches
    assert not sender.has_work


def test_all_fields_arrive_and_a_clock_set_back_makes_nothing_older() -> None:
    sender = make()
    sender.add(message(b"a", key="k", tag="x", headers={"h": "v"}), 10, 50)
    sender.add(message(b"b"), 10, 53)
    sender.add(message(b"c"), 10, 40)
    records = decode_records(sender.depart()[1])
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

    sender = make()
    odd = message(Octets(b"b"), key=Text("k"), tag=Text("t"), headers={Text("n"): Text("v")})
    sender.add(odd, 10, 1)
    (record,) = decode_records(sender.depart()[1])
    assert (record.key, record.tag, record.headers, record.body) == ("k", "t", {"n": "v"}, b"b")


def test_producer_ids_have_63_bits_and_differ() -> None:
    ids = {new_producer_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(0 <= number < 1 << 63 for number in ids)


def confirmed(count: int, *, size: int = FOLLOW_BYTES) -> tuple[QueueSender, list[Batch]]:
    """A sender whose producer is known, with so many large batches of one message waiting."""
    sender = make(messages_max=1, bytes_max=1 << 20)
    add(sender, b"first")
    sender.arrived(sender.depart()[0])
    return sender, add(sender, *[b"%d" % number for number in range(count)], size=size)


def test_large_batches_follow_one_another_as_many_as_the_broker_remembers() -> None:
    sender, batches = confirmed(IN_FLIGHT_MAX + 1)
    sent = []
    while sender.has_work:
        sent.append(sender.depart()[0])
    assert sent == batches[:IN_FLIGHT_MAX]
    sender.arrived(sent[0])
    assert sender.depart()[0] is batches[IN_FLIGHT_MAX]


def test_a_small_batch_waits_for_those_in_flight() -> None:
    sender, _ = confirmed(2, size=FOLLOW_BYTES - 1)
    sender.depart()
    assert not sender.has_work


def test_nothing_follows_before_the_broker_knows_the_producer() -> None:
    sender = make(messages_max=1, bytes_max=1 << 20)
    add(sender, b"a", b"b", size=FOLLOW_BYTES)
    first, _ = sender.depart()
    assert not sender.has_work
    sender.arrived(first)
    sender.rest()
    add(sender, b"c", size=FOLLOW_BYTES)
    sender.depart()
    assert not sender.has_work


def test_nothing_follows_where_the_sequence_would_run_over() -> None:
    sender, _ = confirmed(2)
    sender._sequence = SEQUENCE_MAX - 1
    sender.depart()
    assert not sender.has_work


def test_returned_batches_are_sent_again_in_order_once_all_answers_are_there() -> None:
    sender, batches = confirmed(3)
    sent = {batch: bytes(encoded) for batch, encoded in (sender.depart() for _ in range(3))}
    sender.returned(batches[0])
    assert sender.gapped(batches[1])
    assert not sender.has_work
    assert sender.gapped(batches[2])
    again = []
    while sender.has_work:
        batch, encoded = sender.depart()
        assert bytes(encoded) == sent[batch]
        again.append(batch)
        assert not sender.has_work or sender.confirmed
        sender.arrived(batch)
    assert again == batches


def test_returned_batches_wait_while_the_sender_is_paused() -> None:
    sender, _ = confirmed(1)
    sender.paused = True
    sender.returned(sender.depart()[0])
    assert not sender.has_work
    sender.paused = False
    assert sender.has_work


def test_batches_behind_a_refused_one_begin_a_new_sequence() -> None:
    sender, batches = confirmed(3)
    before = read_header(sender.depart()[1]).producer_id
    sender.depart()
    sender.lost(batches[0])
    assert not sender.has_work
    assert sender.gapped(batches[1])
    headers = [read_header(sender.depart()[1])]
    sender.arrived(batches[1])
    headers.append(read_header(sender.depart()[1]))
    assert [header.first_sequence for header in headers] == [0, 1]
    assert headers[0].producer_id == headers[1].producer_id != before


def test_batches_behind_a_late_one_are_never_sent_under_new_numbers() -> None:
    sender, batches = confirmed(2)
    sender.depart()
    sender.depart()
    batches[0].deadline_ms = 50
    assert sender.expired(50) == batches[:1]
    assert sender.late
    assert not sender.gapped(batches[1])


def test_a_gap_that_nothing_explains_is_final() -> None:
    sender, batches = confirmed(1)
    sender.depart()
    assert not sender.gapped(batches[0])


class World:
    """A sender, its connection, and a broker that remembers as the real one does."""

    def __init__(self) -> None:
        self.sender = make(messages_max=2, bytes_max=1 << 20)
        self.known = Sequences()
        self.stored: list[bytes] = []
        self.requests: deque[Batch] = deque()
        self.answers: deque[tuple[Batch, str]] = deque()
        self.added = 0
        self.acknowledged: list[bytes] = []
        self.refused: list[bytes] = []

    def add(self) -> None:
        self.sender.add(message(b"%d" % self.added), FOLLOW_BYTES, 5)
        self.added += 1

    def depart(self) -> None:
        if self.sender.has_work:
            self.requests.append(self.sender.depart()[0])

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
            self.sender.arrived(batch)
            self.acknowledged += bodies(batch.encoded)
        elif word == "later":
            self.sender.returned(batch)
        elif word == "never" or not self.sender.gapped(batch):
            self.sender.lost(batch)
            self.refused += bodies(batch.encoded)

    def disconnect(self, *, forget: bool) -> None:
        """What is under way is lost, with `forget` also what the broker knew of producers.

        It forgets those that it has not heard of for long, none that waits for an acknowledgement.
        """
        under_way = [batch for batch, _ in self.answers] + list(self.requests)
        self.answers.clear()
        self.requests.clear()
        for batch in under_way:
            self.sender.returned(batch)
        self.sender.confirmed = False
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
    while world.sender.has_work or world.requests or world.answers:
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
    sender = make(messages_max=4, bytes_max=200)
    expected: list[bytes] = []
    for number, step in enumerate(steps):
        if number % 3 == 2:
            sender.add(message(step[0]), len(step[0]), 5)
            expected.append(step[0])
            continue
        placed = sender.extend(MessageColumns(step, [f"{n}" for n in range(len(step))]), 5)
        assert sum(count for _, _, count in placed) == len(step)
        at = 0
        for batch, first, count in placed:
            assert batch.count >= first + count
            at += count
        expected += step
    found: list[bytes] = []
    while sender.has_work:
        batch, encoded = sender.depart()
        records = decode_records(encoded)
        assert len(records) == batch.count <= 4
        assert batch.size <= 200 or batch.count == 1
        found += [record.body for record in records]
        sender.arrived(batch)
    assert found == expected


def test_columns_and_single_messages_mix_in_one_batch() -> None:
    sender = make(messages_max=9)
    sender.add(message(b"a"), 10, 50)
    sender.extend(MessageColumns([b"b", b"c"], ["k", ""], [], [{}, {"h": "v"}]), 51)
    sender.add(message(b"d", tag="x"), 10, 50)
    sender.extend(MessageColumns([b"e"]), 49)
    records = decode_records(sender.depart()[1])
    assert [(r.key, r.tag, dict(r.headers), r.body) for r in records] == [
        ("", "", {}, b"a"),
        ("k", "", {}, b"b"),
        ("", "", {"h": "v"}, b"c"),
        ("", "x", {}, b"d"),
        ("", "", {}, b"e"),
    ]
    assert [record.born_at_ms for record in records] == [50, 51, 51, 50, 50]

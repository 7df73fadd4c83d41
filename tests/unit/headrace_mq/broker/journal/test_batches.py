"""Batches out of a journal, and the sequences of those that follow from it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.broker.journal.batches import (
    JournalSequences,
    NotYet,
    open_queues_of,
    own_columns,
    read_batch,
    sent_columns,
)
from headrace_mq.errors import CorruptBatch, DataCorrupt, InvalidArgument
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, assign, encode_batch, read_header
from headrace_mq.protocol.bodies import TopicDescription

QUEUE = QueueRef("%JOURNAL%", 0)


class OneBatch:
    """A journal that holds the offsets 5 and 6, or still reads them from the disk."""

    def __init__(self, *, cold: bool = False, gone: bool = False) -> None:
        batch = encode_batch(QUEUE, Columns([], [], [], [b"5", b"6"], []), born_first_ms=1)
        assign(batch, base_offset=5, position=0, appended_at_ms=1, epoch=1)
        self.found, self.cold = [] if gone else [bytes(batch)], cold

    def read(self, _queue: QueueRef, _offset: int, _bytes_max: int) -> list[bytes]:
        return self.found

    def read_now(self, _queue: QueueRef, _offset: int, _bytes_max: int) -> list[bytes] | None:
        return None if self.cold else self.found


@pytest.mark.parametrize("wait", [True, False])
def test_the_batch_that_holds_an_offset_is_read(wait: bool) -> None:
    header, columns = read_batch(OneBatch(), QUEUE, 6, wait=wait)
    assert (header.base_offset, columns.bodies) == (5, [b"5", b"6"])


def test_a_batch_that_comes_from_the_disk_is_waited_for_only_where_that_is_wanted() -> None:
    journal = OneBatch(cold=True)
    assert read_batch(journal, QUEUE, 5, wait=True)[1].bodies == [b"5", b"6"]
    with pytest.raises(NotYet):
        read_batch(journal, QUEUE, 5, wait=False)


@pytest.mark.parametrize(("journal", "offset"), [(OneBatch(gone=True), 5), (OneBatch(), 7)])
def test_a_batch_that_does_not_hold_the_offset_is_damage(journal: OneBatch, offset: int) -> None:
    with pytest.raises(DataCorrupt):
        read_batch(journal, QUEUE, offset, wait=True)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 1 << 31))))
def test_the_sequences_of_each_queue_go_on_without_a_gap_and_wrap_at_32_bits(
    taken: list[tuple[str, int]],
) -> None:
    sequences, reached = JournalSequences(), {"a": 0, "b": 0}
    for topic, count in taken:
        assert sequences.take(QueueRef(topic, 0), count) == reached[topic] % (1 << 32)
        reached[topic] += count


def test_a_refused_batch_gives_its_sequences_back() -> None:
    sequences = JournalSequences()
    sequences.take(QUEUE, 3)
    refused = sequences.take(QUEUE, 4)
    sequences.give_back(QUEUE, refused)
    assert sequences.take(QUEUE, 1) == 3


def test_sequences_of_an_earlier_start_are_not_given_back() -> None:
    sequences = JournalSequences()
    sequences.give_back(QUEUE, 7)
    assert sequences.take(QUEUE, 1) == 0


@pytest.mark.parametrize(
    ("retention", "expected"), [("transient", [0, 2]), ("forever", [0, 2]), ("compact", [0, 1, 2])]
)
def test_the_queues_of_a_compacted_topic_are_all_open(retention: str, expected: list[int]) -> None:
    topic = TopicDescription("t", 3, retention=retention, unwritable=[1])
    assert list(open_queues_of(topic)) == expected


def test_batches_of_another_queue_and_damaged_ones_are_refused() -> None:
    batch = encode_batch(QUEUE, Columns([], [], [], [b"5"], []), born_first_ms=1)
    header = read_header(batch)
    assert sent_columns(header, memoryview(batch), QUEUE).bodies == [b"5"]
    with pytest.raises(InvalidArgument, match="%JOURNAL% has one queue, with number 1"):
        sent_columns(header, memoryview(batch), QueueRef("%JOURNAL%", 1))
    batch[-1] ^= 1
    with pytest.raises(CorruptBatch, match="a batch for %JOURNAL% cannot be read"):
        sent_columns(header, memoryview(batch), QUEUE)


def test_records_of_the_brokers_own_are_known_by_a_header() -> None:
    columns = own_columns("%kind", [1, "a"])
    assert columns.headers == [{"%kind": "event"}] * 2
    assert [msgspec.msgpack.decode(body) for body in columns.bodies] == [1, "a"]

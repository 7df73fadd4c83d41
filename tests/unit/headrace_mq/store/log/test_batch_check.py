"""Which batches may be stored."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_mq.errors import (
    CorruptBatch,
    InvalidArgument,
    InvalidBatch,
    UndecodableBatch,
    UnsupportedVersion,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import (
    FORMAT_VERSION,
    HEADS,
    Columns,
    decode_columns,
    decode_placed,
    encode_batch,
    read_header,
)
from headrace_mq.protocol.compression import CODECS
from headrace_mq.protocol.sparse import thinned
from headrace_mq.store.log.batch_check import check_decodable, checked_header
from headrace_mq.testing.hostile import REFUSED, UNSEEN, hostile_batches

MakeBatch = Callable[..., bytearray]


def test_a_whole_batch_is_taken_with_its_header(make_batch: MakeBatch) -> None:
    batch = make_batch(b"a", b"b")
    assert checked_header(batch, None) == read_header(batch)
    assert checked_header(batch, read_header(batch)) == read_header(batch)


def test_bytes_that_are_no_sound_batch_are_refused(make_batch: MakeBatch) -> None:
    batch = make_batch(b"a")
    batch[-1] ^= 1
    with pytest.raises(CorruptBatch):
        checked_header(batch, None)
    with pytest.raises(CorruptBatch):
        checked_header(bytearray(200), None)


def test_a_batch_of_a_newer_format_is_refused_as_such(make_batch: MakeBatch) -> None:
    batch = make_batch(b"a")
    batch[4] = FORMAT_VERSION + 1
    with pytest.raises(UnsupportedVersion):
        checked_header(batch, None)


def test_a_batch_of_heads_is_refused_because_only_a_broker_makes_them() -> None:
    columns = Columns([], [], [], [b""], [])
    batch = encode_batch(QueueRef("t", 0), columns, born_first_ms=1, flags=HEADS)
    with pytest.raises(InvalidArgument, match="only a broker makes heads"):
        checked_header(batch, None)


def test_a_batch_that_only_a_compaction_makes_is_refused(make_batch: MakeBatch) -> None:
    batch = make_batch(b"a", b"b")
    header = read_header(batch)
    with pytest.raises(InvalidArgument, match="whole ones"):
        checked_header(thinned(batch, header, *decode_placed(batch, header), [0]), None)


HOSTILE = hostile_batches(QueueRef("t", 0))


@pytest.mark.parametrize("name", REFUSED)
def test_a_batch_that_no_reader_could_decode_is_refused_without_decoding_it(name: str) -> None:
    batch = HOSTILE[name]
    with pytest.raises(InvalidBatch, match="no reader could decode the batch"):
        check_decodable(batch, read_header(batch))


@pytest.mark.parametrize("name", [*REFUSED, *UNSEEN])
def test_a_hostile_batch_that_was_accepted_is_only_undecodable_to_its_readers(name: str) -> None:
    batch = HOSTILE[name]
    with pytest.raises(UndecodableBatch):
        decode_columns(batch, read_header(batch))


def test_a_batch_that_was_damaged_on_the_way_is_to_be_sent_again() -> None:
    batch = bytearray(HOSTILE["no msgpack"])
    batch[-1] ^= 1
    with pytest.raises(CorruptBatch):
        check_decodable(batch, read_header(batch))


@settings(max_examples=200)
@given(
    bodies=st.lists(st.binary(max_size=20), min_size=1, max_size=40),
    tagged=st.booleans(),
    codec=st.sampled_from(sorted(CODECS)),
    born=st.booleans(),
)
def test_every_batch_of_a_producer_is_accepted(
    bodies: list[bytes], *, tagged: bool, codec: str, born: bool
) -> None:
    count = len(bodies)
    columns = Columns(
        ["k"] * count, ["t"] * count if tagged else [], [], bodies, [1] * count if born else []
    )
    batch = encode_batch(QueueRef("t", 0), columns, born_first_ms=1, codec=codec)
    check_decodable(batch, read_header(batch))


@pytest.mark.parametrize("count", [15, 16, 65_535, 65_536])
def test_the_edges_of_encoded_lengths_are_taken(count: int) -> None:
    columns = Columns([], [], [], [b""] * count, [])
    batch = encode_batch(QueueRef("t", 0), columns, born_first_ms=1)
    check_decodable(batch, read_header(batch))

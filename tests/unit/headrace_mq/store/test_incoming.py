"""Which batches may be stored."""

from collections.abc import Callable

import pytest

from headrace_mq.errors import CorruptBatch, InvalidArgument, UnsupportedVersion
from headrace_mq.protocol.batch import FORMAT_VERSION, decode_placed, read_header
from headrace_mq.protocol.sparse import thinned
from headrace_mq.store.incoming import checked_header

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


def test_a_batch_that_only_a_compaction_makes_is_refused(make_batch: MakeBatch) -> None:
    batch = make_batch(b"a", b"b")
    header = read_header(batch)
    with pytest.raises(InvalidArgument, match="whole ones"):
        checked_header(thinned(batch, header, *decode_placed(batch, header), [0]), None)

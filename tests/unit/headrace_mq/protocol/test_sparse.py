"""Batches from which records were taken: what remains reads as before, with its offsets."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.errors import DataCorrupt, FormatTooNew
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import (
    FORMAT_VERSION,
    SPARSE,
    Columns,
    assign,
    check_head,
    check_whole,
    decode_columns,
    decode_placed,
    decode_records,
    encode_batch,
    read_header,
    sound_batch,
    tag_bit,
)
from headrace_mq.protocol.sparse import dense_runs, is_sparse, moved, removed_before, thinned

QUEUE = QueueRef("accounts", 3)
BASE, POSITION = 1_000, 77_777


def dense(count: int, *, codec: str = "none", base: int = BASE) -> bytearray:
    columns = Columns(
        [f"key-{number % 7}" for number in range(count)],
        ["even" if number % 2 == 0 else "odd" for number in range(count)],
        [{"number": str(number)} for number in range(count)],
        [b"%d" % number for number in range(count)],
        [number * 10 for number in range(count)],
    )
    batch = encode_batch(
        QUEUE, columns, born_first_ms=5_000, producer_id=9, producer_epoch=2, first_sequence=40,
        codec=codec,
    )  # fmt: skip
    assign(batch, base_offset=base, position=POSITION, appended_at_ms=6_000, epoch=8)
    return batch


def thin(batch: Any, kept: list[int]) -> bytearray:
    header = read_header(batch)
    return thinned(batch, header, *decode_placed(batch, header), kept)


@given(
    count=st.integers(1, 40),
    codec=st.sampled_from(["none", "lz4", "zstd"]),
    data=st.data(),
)
def test_the_records_that_remain_of_a_batch_read_as_before_with_their_offsets(
    count: int, codec: str, data: Any
) -> None:
    batch = dense(count, codec=codec)
    before = decode_records(batch)
    for _ in range(2):
        kept = sorted(data.draw(st.sets(st.integers(0, max(len(before) - 1, 0)))))
        kept = kept if before else []
        batch = thin(batch, kept)
        before = [before[at] for at in kept]
        check_head(batch)
        header = check_whole(batch)
        assert decode_records(batch) == before
        assert decode_placed(batch, header)[0] == [record.offset for record in before]


def test_all_else_stays_what_the_producer_and_the_broker_said() -> None:
    batch = dense(5)
    before, after = read_header(batch), read_header(thin(batch, [1, 3]))
    assert after.flags == SPARSE
    same = before._replace(
        length=after.length, flags=after.flags, plain_bytes=after.plain_bytes,
        born_last_ms=5_030, tag_summary=tag_bit("odd"),
    )  # fmt: skip
    assert after == same


def test_a_batch_that_lost_all_its_records_keeps_its_offsets() -> None:
    batch = thin(dense(5), [])
    header = check_whole(batch)
    assert (header.base_offset, header.next_offset) == (BASE, BASE + 5)
    assert decode_records(batch) == []
    assert list(dense_runs(header, *decode_placed(batch, header))) == []


def test_a_reader_of_the_first_format_refuses_a_sparse_batch_as_newer() -> None:
    assert dense(2)[4] == 1
    assert thin(dense(2), [0])[4] == FORMAT_VERSION == 2


def test_a_sparse_batch_of_a_still_newer_format_is_refused_as_newer() -> None:
    batch = thin(dense(2), [0])
    batch[4] = FORMAT_VERSION + 1
    with pytest.raises(FormatTooNew, match="newer version"):
        check_whole(batch)


@given(count=st.integers(1, 30), data=st.data())
def test_the_dense_runs_of_a_batch_hold_the_same_records(count: int, data: Any) -> None:
    kept = sorted(data.draw(st.sets(st.integers(0, count - 1))))
    batch = thin(dense(count), kept)
    header = read_header(batch)
    found = []
    for run, columns in dense_runs(header, *decode_placed(batch, header)):
        assert not run.flags & SPARSE
        assert run.first_sequence - 40 == run.base_offset - BASE
        assert len(columns.bodies) == run.count
        found += list(zip(range(run.base_offset, run.next_offset), *columns, strict=True))
    records = decode_records(batch)
    assert [(r.offset, r.key, r.tag, r.headers, r.body) for r in records] == [
        entry[:5] for entry in found
    ]


def test_a_dense_batch_is_its_only_run() -> None:
    batch = dense(3)
    header = read_header(batch)
    columns = decode_columns(batch, header)
    assert list(dense_runs(header, *decode_placed(batch, header))) == [(header, columns)]


def test_a_moved_batch_says_how_many_offsets_in_front_of_it_hold_nothing() -> None:
    batch = dense(3)
    header = read_header(batch)
    assert removed_before(batch) == 0
    there = moved(batch, header, position=123, gap=17)
    check_head(there)
    assert removed_before(there) == 17
    assert check_whole(there) == header._replace(position=123)
    assert removed_before(thin(there, [0])) == 17
    assert removed_before(moved(batch, header, position=1, gap=1 << 40)) == (1 << 32) - 1


def test_only_a_sparse_batch_is_taken_for_one() -> None:
    assert not is_sparse(dense(2))
    assert is_sparse(thin(dense(2), [1]))
    assert sound_batch(memoryview(thin(dense(2), [1]))) is None


@pytest.mark.parametrize("turns", [[-1, 2], [3, 4], [1]])
def test_turns_that_contradict_the_batch_are_damage(turns: list[int]) -> None:
    import msgspec

    columns = ([], [], [], [b"a", b"b"], [], turns)
    batch = dense(5)
    payload_at = read_header(batch).payload_at
    batch[payload_at:] = msgspec.msgpack.encode(columns)
    batch[53] |= SPARSE
    header = read_header(batch)._replace(length=len(batch))
    with pytest.raises(DataCorrupt):
        decode_placed(batch, header)

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.archive.rebuilt import rebuilt
from headrace_mq.archive.rows import BODY_BYTES_MAX, COPY_END, COPY_START, ROWS_PER_STEP, copy_rows
from headrace_mq.message import QueueRef, Record
from headrace_mq.protocol.batch import (
    Columns,
    assign,
    decode_records,
    encode_batch,
    read_header,
)

QUEUE = QueueRef("orders", 3)

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
contents = st.tuples(
    texts, texts, st.dictionaries(texts, texts, max_size=3), st.binary(max_size=30),
    st.integers(0, 1_000),
)  # fmt: skip


def stored(columns: Columns, *, offset: int = 10, **more: Any) -> bytes:
    values = {"born_first_ms": 1_700_000_000_000, "producer_epoch": 4, "first_sequence": 9}
    batch = encode_batch(QUEUE, columns, **(values | more))
    assign(batch, base_offset=offset, position=77, appended_at_ms=1_700_000_000_500, epoch=6)
    return bytes(batch)


def file_of(batch: bytes) -> bytes:
    return COPY_START + b"".join(copy_rows(batch, read_header(batch))) + COPY_END


def read_back(rows: list[Any]) -> list[Record]:
    assert {queue for queue, _ in rows} == {QUEUE}
    batches = [one.batch for one in rebuilt(QUEUE, [row for _, row in rows])]
    return [record for batch in batches for record in decode_records(batch)]


@given(
    messages=st.lists(contents, min_size=1, max_size=12),
    producer_id=st.integers(0, 2**64 - 1),
    offset=st.integers(0, 2**40),
)
def test_every_message_is_a_row_and_comes_back_as_it_was(
    copied: Callable[[bytes], list[Any]], messages: list[Any], producer_id: int, offset: int
) -> None:
    columns = Columns(*map(list, zip(*messages, strict=True)))
    batch = stored(columns, offset=offset, producer_id=producer_id)
    rows = copied(file_of(batch))
    assert len(rows) == len(messages)
    assert read_back(rows) == decode_records(batch)
    assert [row.sequence for _, row in rows] == [9 + n for n in range(len(messages))]
    (again,) = rebuilt(QUEUE, [row for _, row in rows])
    kept = ("position", "epoch", "producer_epoch", "first_sequence", "appended_at_ms", "count")
    before, after = read_header(batch), read_header(again.batch)
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_a_compressed_batch_becomes_plain_rows(
    copied: Callable[[bytes], list[Any]], codec: str
) -> None:
    batch = stored(Columns([], [], [], [b"a" * 500, b"b" * 500], []), codec=codec)
    rows = copied(file_of(batch))
    assert [row.body for _, row in rows] == [b"a" * 500, b"b" * 500]
    assert read_back(rows) == decode_records(batch)


@pytest.mark.parametrize(
    "columns",
    [
        Columns(["a\0b"], [], [], [b""], []),
        Columns([], ["\0"], [], [b""], []),
        Columns([], [], [{"n": "\0"}], [b""], []),
        Columns([], [], [{"\0": ""}], [b""], []),
        Columns(["k" * 2_000], [], [], [b""], []),
        Columns([], [], [], [b"", b""], [0, -(2**63)]),
    ],
    ids=["key", "tag", "header", "name of a header", "a long key", "a time before all"],
)
def test_messages_that_rows_cannot_hold_are_kept_as_their_whole_batch(
    copied: Callable[[bytes], list[Any]], columns: Columns
) -> None:
    batch = stored(columns, born_first_ms=-1)
    rows = copied(file_of(batch))
    assert [row.batch for _, row in rows] == [batch]
    (again,) = rebuilt(QUEUE, [row for _, row in rows])
    assert again.batch == batch


def test_a_payload_that_does_not_decode_is_kept_as_the_batch_it_is(
    copied: Callable[[bytes], list[Any]],
) -> None:
    batch = bytearray(stored(Columns([], [], [], [b"x"] * 5, [])))
    batch[-3:] = b"\xc1\xc1\xc1"
    ((_, row),) = copied(file_of(bytes(batch)))
    assert (row.queue_offset, row.records, row.batch) == (10, 5, bytes(batch))


def test_a_message_that_only_compression_makes_sendable_stays_compressed(
    copied: Callable[[bytes], list[Any]],
) -> None:
    batch = stored(Columns([], [], [], [bytes(BODY_BYTES_MAX + 1)], []), codec="zstd")
    ((_, row),) = copied(file_of(batch))
    assert row.batch == batch


def test_large_batches_are_made_into_rows_in_steps() -> None:
    count = 2 * ROWS_PER_STEP + 1
    batch = stored(Columns([], [], [], [b"x"] * count, []))
    assert len(list(copy_rows(batch, read_header(batch)))) == 3

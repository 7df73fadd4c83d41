import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.client.fetch.record_columns import decode_record_columns, from_records
from headrace_mq.errors import CorruptBatch
from headrace_mq.message import QueueRef, Record
from headrace_mq.protocol.batch import Columns, assign, decode_records, encode_batch

QUEUE = QueueRef("t", 3)
words = st.sampled_from(["", "a", "key"])
rows = st.lists(
    st.tuples(
        words, words, st.dictionaries(words, words, max_size=2), st.binary(max_size=3),
        st.integers(0, 9),
    ),
    min_size=1, max_size=6,
)  # fmt: skip


def stored(content: list[tuple[str, str, dict[str, str], bytes, int]]) -> bytearray:
    keys, tags, headers, bodies, deltas = (list(column) for column in zip(*content, strict=True))
    columns = Columns(
        keys if any(keys) else [],
        tags if any(tags) else [],
        headers if any(headers) else [],
        bodies,
        deltas if any(deltas) else [],
    )
    batch = encode_batch(QUEUE, columns, born_first_ms=1_000, producer_id=7)
    assign(batch, base_offset=20, position=0, appended_at_ms=2_000, epoch=1)
    return batch


@given(rows)
def test_columns_hold_what_records_hold(
    content: list[tuple[str, str, dict[str, str], bytes, int]],
) -> None:
    batch = stored(content)
    columns, records = decode_record_columns(batch), decode_records(batch)
    assert columns.records() == records
    assert list(columns.offsets) == [record.offset for record in records]
    assert len(columns) == len(records)
    (again,) = from_records(records)
    assert again.records() == records


@given(rows, st.integers(0, 25))
def test_columns_behind_an_offset_are_the_rest(
    content: list[tuple[str, str, dict[str, str], bytes, int]], offset: int
) -> None:
    columns = decode_record_columns(stored(content))
    offset = min(offset, columns.offsets[-1])
    rest = [record for record in columns.records() if record.offset >= offset]
    assert columns.behind(offset).records() == rest
    before = columns.records()[: -len(rest)]
    assert not before or columns.before(offset).records() == before


def test_columns_that_are_all_default_hold_nothing() -> None:
    columns = decode_record_columns(stored([("", "", {}, b"x", 0)] * 3))
    assert (list(columns.keys), list(columns.tags), list(columns.headers)) == ([], [], [])
    assert list(columns.born_deltas) == []


def test_records_of_several_batches_or_with_gaps_become_several_runs() -> None:
    def record(offset: int, stored_at_ms: int, producer_id: int = 0) -> Record:
        return Record(
            queue=QUEUE, offset=offset, key="", tag="", headers={}, body=b"", born_at_ms=5,
            stored_at_ms=stored_at_ms, producer_id=producer_id,
        )  # fmt: skip

    records = [record(0, 1), record(1, 1), record(3, 1), record(4, 2), record(5, 2, 9)]
    runs = from_records(records)
    assert [list(run.offsets) for run in runs] == [[0, 1], [3], [4], [5]]
    assert [one for run in runs for one in run.records()] == records
    assert from_records([]) == []


def test_a_batch_that_was_damaged_is_refused() -> None:
    batch = stored([("k", "", {}, b"body", 0)])
    batch[-1] ^= 1
    with pytest.raises(CorruptBatch):
        decode_record_columns(batch)

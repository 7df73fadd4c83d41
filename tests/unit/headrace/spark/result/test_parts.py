"""Records in pieces, and in files that are read back, which nothing is left of."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.spark.executor.fold import DELETED, ROW, TALLY, VERSION, Record, records_to_arrow
from headrace.spark.result import parts
from headrace.spark.result.parts import FETCHED, FETCHED_ARROW_SCHEMA, Spool, in_files, in_pieces


@pytest.fixture
def spool() -> Iterator[Spool]:
    with closing(Spool()) as made:
        yield made


def fetched(*records: Record) -> pa.RecordBatch:
    return records_to_arrow(records).select(list(FETCHED))


def versions(*keys: str) -> pa.RecordBatch:
    return fetched(*(Record.known(VERSION, key, number=1) for key in keys))


def test_records_come_out_of_their_pieces_as_they_went_in_and_no_piece_is_large() -> None:
    rows = [Record.known(ROW, f"a{n}", number=n, data=b"x" * 300_000) for n in range(10)]
    large = Record.known(ROW, "large", data=b"x" * 3_000_000)
    batches = [records_to_arrow(rows), records_to_arrow([]), records_to_arrow([large])]
    made = [piece for batch in in_pieces(7, iter(batches)) for piece in batch.to_pylist()]
    assert [(piece["task"], piece["turn"]) for piece in made] == [(7, n) for n in range(len(made))]
    *several, alone = (
        pa.ipc.read_record_batch(pa.py_buffer(piece["data"]), FETCHED_ARROW_SCHEMA)
        for piece in made
    )
    assert all(piece.nbytes <= 1 << 20 for piece in several)
    assert pa.Table.from_batches(several).to_pylist() == fetched(*rows).to_pylist()
    assert alone.to_pylist() == fetched(large).to_pylist()


def test_a_spool_keeps_what_is_loaded_and_gives_back_the_rest(spool: Spool) -> None:
    first = fetched(
        Record.known(ROW, "a", data=b"1"),
        Record.known(TALLY, "events", number=3),
        Record.known(VERSION, "a", number=9),
    )
    assert (
        spool.add(first).to_pylist() == fetched(Record.known(TALLY, "events", number=3)).to_pylist()
    )
    second = fetched(Record.known(ROW, "b", data=b"2"), Record.known(ROW, "c", data=b"3"))
    assert spool.add(second).num_rows == 0
    assert spool.rows == 3
    for _ in range(2):
        assert list(spool.read(ROW)) == [{"data": [b"1"]}, {"data": [b"2", b"3"]}]
        assert list(spool.read(VERSION)) == [{"key": ["a"], "number": [9]}]
        assert list(spool.read(DELETED)) == []


def test_what_a_task_writes_into_files_comes_out_of_the_spool_that_is_told_their_names(
    tmp_path: Path,
) -> None:
    rows = [Record.known(ROW, f"a{n}", data=b"x" * 300_000) for n in range(10)]
    counted = Record.known(TALLY, "events", number=3)
    tasks = [
        [records_to_arrow([*rows[:7], counted]), records_to_arrow([Record.known(DELETED, "b")])],
        [records_to_arrow([*rows[7:], Record.known(VERSION, "a0", number=4)])],
        [records_to_arrow([])],
    ]
    told = [batch for task in tasks for batch in in_files(str(tmp_path), iter(task))]
    assert sum(batch.nbytes for batch in told) < 2_000
    with closing(Spool(str(tmp_path))) as spool:
        rest = [spool.add(batch.select(list(FETCHED))) for batch in told]
        assert [one for batch in rest for one in batch.to_pylist()] == fetched(counted).to_pylist()
        assert spool.rows == 10
        for _ in range(2):
            found = list(spool.read(ROW))
            # However large the batches of a task are, what is read at once is not.
            assert max(len(some["data"]) for some in found) <= 3
            assert [data for some in found for data in some["data"]] == [row.data for row in rows]
            assert list(spool.read(DELETED)) == [{"key": ["b"]}]
            assert list(spool.read(VERSION)) == [{"key": ["a0"], "number": [4]}]


@pytest.mark.parametrize("at_once", [1, 3, 500_000])
@pytest.mark.parametrize(("more", "twice"), [("", None), ("fg", None), ("fc", "c")])
def test_an_aggregate_that_has_two_versions_is_found(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, at_once: int, more: str, twice: str | None
) -> None:
    monkeypatch.setattr(parts, "_KEYS_MAX", at_once)
    spool.add(versions("a", "b", "c", "d"))
    spool.add(versions("e", *more))
    assert spool.find_twice() == twice
    with closing(Spool()) as empty:
        assert empty.find_twice() is None

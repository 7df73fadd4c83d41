"""A Delta table moves its offsets with its rows, and of two jobs one comes second."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.errors import ProjectionError
from headrace.spark.lake.delta import LakeTable, NewFile

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
KEYS = st.sampled_from("abcdef'")


def rows(found: dict[str, int | None]) -> pa.Table:
    return pa.table([list(found), list(found.values())], schema=SCHEMA)


def stored(path: Path) -> dict[str, int]:
    table = DeltaTable(str(path)).to_pyarrow_table()
    return dict(zip(table["id"].to_pylist(), table["n"].to_pylist(), strict=True))


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    changes=st.lists(
        st.dictionaries(KEYS, st.none() | st.integers(0, 9), max_size=4), min_size=1, max_size=4
    )
)
def test_merged_changes_are_those_of_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory, changes: list[dict[str, int | None]]
) -> None:
    path = tmp_path_factory.mktemp("table")
    expected: dict[str, int] = {}
    for number, change in enumerate(changes, start=1):
        table = LakeTable(str(path))
        table.create(SCHEMA)
        deleted = [key for key, value in change.items() if value is None]
        new = {key: value for key, value in change.items() if value is not None}
        table.merge(rows(dict(new)), deleted, "id", ("t", "i-1"), {0: number, 1: 5})
        expected = {key: n for key, n in (expected | new).items() if key not in deleted}
        assert stored(path) == expected
        assert LakeTable(str(path)).offsets("t", [0, 1, 2]) == {0: number, 1: 5}


def test_of_two_jobs_that_begin_at_the_same_offsets_one_is_refused(tmp_path: Path) -> None:
    first = LakeTable(str(tmp_path))
    assert (first.version, first.offsets("t", [0])) == (-1, {})
    first.create(SCHEMA)
    one, other = LakeTable(str(tmp_path)), LakeTable(str(tmp_path))
    one.merge(rows({"a": 1}), [], "id", ("t", "i-1"), {0: 1})
    with pytest.raises(ProjectionError, match="another job has written into it meanwhile"):
        other.merge(rows({"a": 2}), [], "id", ("t", "i-1"), {0: 2})
    assert stored(tmp_path) == {"a": 1}
    assert LakeTable(str(tmp_path)).offsets("t", [0]) == {0: 1}


def test_a_topic_that_was_made_again_is_another_one(tmp_path: Path) -> None:
    table = LakeTable(str(tmp_path))
    table.check_topic("t", "i-1")
    table.create(SCHEMA)
    table.merge(rows({"a": 1}), [], "id", ("t", ""), {0: 1})
    # An older version, or a broker of one, has not said which topic it was.
    LakeTable(str(tmp_path)).check_topic("t", "i-1")
    LakeTable(str(tmp_path)).add_files([], ("t", "i-1"), {0: 2})
    found = LakeTable(str(tmp_path))
    for identity in ("i-1", ""):
        found.check_topic("t", identity)
    found.check_topic("other", "i-2")
    with pytest.raises(ProjectionError, match="t is not the topic that was exported"):
        found.check_topic("t", "i-2")


def test_files_are_in_the_table_with_their_offsets(tmp_path: Path) -> None:
    table = LakeTable(str(tmp_path))
    table.create(pa.schema([("id", pa.string()), ("n", pa.int64())]), ["id"])
    (tmp_path / "data" / "id=a").mkdir(parents=True)
    file = tmp_path / "data" / "id=a" / "x.parquet"
    pq.write_table(pa.table({"n": [1, 2]}), file)
    table.add_files(
        [NewFile("data/id=a/x.parquet", file.stat().st_size, 2, {"id": "a"})], ("t", "i-1"), {0: 2}
    )
    found = LakeTable(str(tmp_path))
    assert found.files() == ["data/id=a/x.parquet"]
    assert (found.partition_by, found.columns) == (["id"], ["id", "n"])
    assert found.rows("id", ["a", "b"], SCHEMA).to_pydict() == {"id": ["a", "a"], "n": [1, 2]}
    assert found.rows("id", ["b"], SCHEMA).num_rows == 0


def test_an_earlier_version_is_found_by_its_offsets(tmp_path: Path) -> None:
    for number in range(1, 4):
        table = LakeTable(str(tmp_path))
        table.create(SCHEMA)
        table.merge(rows({"a": number}), [], "id", ("t", "i-1"), {0: number})
    found = LakeTable(str(tmp_path)).at("t", [0, 1], {0: 2})
    assert found.rows("id", ["a"], SCHEMA).to_pydict() == {"id": ["a"], "n": [2]}
    with pytest.raises(ProjectionError, match="no version for the offsets"):
        found.at("t", [0, 1], {0: 2, 1: 1})


def test_a_table_takes_new_columns_and_new_fields_of_structs(tmp_path: Path) -> None:
    inner = pa.struct([("x", pa.int64())])
    LakeTable(str(tmp_path)).create(pa.schema([("id", pa.string()), ("s", inner)]))
    before = LakeTable(str(tmp_path)).version
    wider = pa.schema(
        [("s", pa.struct([("x", pa.int64()), ("y", pa.string())])), ("z", pa.int64())]
    )
    LakeTable(str(tmp_path)).create(wider)
    changed = LakeTable(str(tmp_path))
    assert changed.columns == ["id", "s", "z"]
    changed.create(pa.schema([("id", pa.string()), ("s", inner)]))
    assert LakeTable(str(tmp_path)).version == before + 1
    with pytest.raises(ProjectionError, match=r"s\.x is long there, and string in the application"):
        changed.create(pa.schema([("s", pa.struct([("x", pa.string())]))]))


def test_a_table_keeps_the_epochs_of_the_brokers_next_to_its_offsets(tmp_path: Path) -> None:
    table = LakeTable(str(tmp_path))
    assert table.epochs("t", [0, 1]) == {}
    table.create(SCHEMA)
    table.add_files([], ("t", "i-1"), {0: 2})
    assert LakeTable(str(tmp_path)).epochs("t", [0, 1]) == {}
    LakeTable(str(tmp_path)).add_files([], ("t", "i-1"), {0: 3, 1: 1}, {0: 4, 1: 5})
    found = LakeTable(str(tmp_path))
    assert (found.epochs("t", [0, 1]), found.offsets("t", [0, 1])) == ({0: 4, 1: 5}, {0: 3, 1: 1})

"""What a query reads of typed files has the columns that it reads of a topic."""

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.projections.definition.shape import ColumnKind
from headrace.spark.executor.decode import EventField
from headrace.spark.executor.event_reader import ChosenType, Reading
from headrace.spark.native import TypedFiles
from headrace.spark.typed_files import events_in_files, portion_moment, versions_in_files

PRICE = EventField(name="price", kind=ColumnKind.DECIMAL)
ON = EventField(name="on", kind=ColumnKind.DATE)
AT = EventField(name="at", kind=ColumnKind.TIMESTAMP)
READING = Reading(
    types=(
        ChosenType(name="Paid", version=2, fields=(PRICE, ON)),
        ChosenType(name="Moved", version=1, fields=(AT,)),
    ),
    context=("aggregate_id", "recorded_at"),
)


class Frame:
    """Remembers what is asked of it."""

    def __init__(self, schema: str, paths: tuple[str, ...]) -> None:
        self.schema, self.paths = schema, paths
        self.columns: dict[str, str] = {}
        self.others: list[Any] = []

    def selectExpr(self, *texts: str) -> "Frame":  # noqa: N802 - PySpark's spelling
        for text in texts:
            expression, _, name = text.rpartition(" as ")
            self.columns[name.strip("`")] = expression
        return self

    def union(self, other: Any) -> "Frame":
        self.others.append(other)
        return self


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A session that reads files without looking at them."""

    def schema(words: str) -> Any:
        reader = SimpleNamespace(parquet=lambda *paths: Frame(words, paths))
        reader.option = lambda *_: reader
        return reader

    monkeypatch.setattr("headrace.spark.typed_files.DataFrame", Frame)
    return SimpleNamespace(read=SimpleNamespace(schema=schema))


def test_each_type_has_the_columns_of_all_and_reads_its_own(session: Any) -> None:
    files = TypedFiles(events={0: ("/x/a",), 1: ("/x/b", "/x/c")}, versions=(), parts=1)
    paid = events_in_files(session, files, READING)
    [moved] = paid.others  # type: ignore[attr-defined]  # of the frame here
    assert list(paid.columns) == list(moved.columns)
    assert paid.columns["e_price_decimal"] == "cast(`price` as decimal(38,18))"
    assert paid.columns["p_e_price_decimal"] == "cast(`_places`.`price` as int)"
    assert paid.columns["e_on_date"] == "cast(unix_date(`on`) as int)"
    assert paid.columns["e_at_timestamp"] == "cast(null as bigint)"
    assert moved.columns["e_at_timestamp"] == "cast(unix_micros(`at`) as bigint)"
    assert moved.columns["e_price_decimal"] == "cast(null as decimal(38,18))"
    assert moved.columns["c_recorded_at"] == "cast(unix_micros(`context`.`recorded_at`) as bigint)"
    assert [frame.columns["type"] for frame in (paid, moved)] == [
        f"cast({place} as int)" for place in (0, 1)
    ]
    assert "`price` decimal(38,18)" in paid.schema
    assert "struct<`price`: tinyint>" in paid.schema
    assert "_places" not in moved.schema
    assert moved.paths == ("file:///x/b", "file:///x/c")


def test_a_path_is_no_pattern(session: Any) -> None:
    files = TypedFiles(events={}, versions=("/x/{a} [b]*?",), parts=1)
    found: Any = versions_in_files(session, files)
    assert found.paths == (r"file:///x/\{a\} \[b\]\*\?",)
    assert found.columns == {"kind": "'version'", "key": "aggregate_id", "number": "version"}


def test_a_portion_is_later_than_any_moment_of_the_one_before() -> None:
    assert portion_moment("moment", "3") == "(moment + shiftleft(cast(3 as bigint), 44))"
    # The year 2500, in ms.
    assert 16_725_225_600_000 < 1 << 44

"""The statements of a batch: built once, and as good for many values as for one."""

from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest
from sqlalchemy import (
    Column,
    Connection,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    insert,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite

from headrace.projections.tables.statements import (
    PARKED,
    delete_by,
    gone_keys,
    listed,
    listed_keys,
    offsets_of,
    rows_among,
    upsert,
    upsert_into,
    versions_among,
)
from headrace.stores.database.parked import new_row
from headrace.stores.database.tables import (
    parked_rows,
    projection_offsets,
    projection_versions,
)

PARKED_AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def table() -> Table:
    return Table(
        "t",
        MetaData(),
        Column("id", String(255), primary_key=True),
        Column("total", Integer, nullable=False),
    )


@pytest.fixture
def connection(table: Table) -> Any:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        for each in (table, projection_offsets, projection_versions, parked_rows):
            each.create(connection)
        yield connection
    engine.dispose()


def test_a_statement_is_built_once_per_table_and_database(table: Table) -> None:
    here, there = sqlite.dialect(), postgresql.dialect()
    assert upsert_into(table, here) is upsert_into(table, here)
    assert rows_among(table, here) is rows_among(table, here)
    assert delete_by(table) is delete_by(table)
    assert versions_among(here) is versions_among(here)
    assert upsert_into(table, here) is not upsert_into(table, there)
    assert rows_among(table, here) is not rows_among(table, there)
    assert versions_among(here) is not versions_among(there)


def test_a_lookup_on_postgresql_has_one_argument_for_any_number_of_values(table: Table) -> None:
    dialect = postgresql.dialect()
    sql = str(rows_among(table, dialect).compile(dialect=dialect))
    assert "= ANY (%(among_0)s" in sql
    assert listed_keys(dialect, [("a",), ("b",)]) == {"among_0": ["a", "b"]}
    assert listed(dialect, ("a", "b")) == {"among": ["a", "b"]}


def test_rows_are_written_to_postgresql_as_a_list_per_column_and_no_text_is_cut(
    table: Table,
) -> None:
    class Recorder:
        dialect = postgresql.dialect()
        executed: ClassVar[list[Any]] = []

        def execute(self, *arguments: Any) -> None:
            self.executed.append(arguments)

    recorder: Any = Recorder()
    upsert(recorder, table, [])
    upsert(recorder, table, [{"id": "a", "total": 1}, {"id": "b", "total": 2}])
    upsert(recorder, table, [{"id": "c", "total": 3}])
    (statement, values), (again, _) = recorder.executed
    sql = str(statement.compile(dialect=recorder.dialect))
    assert sql.count("unnest(") == len(table.columns)
    assert "VARCHAR" not in sql
    assert values == {"id": ["a", "b"], "total": [1, 2]}
    assert again is statement


def test_rows_are_written_in_place_found_among_many_and_deleted(
    connection: Connection, table: Table
) -> None:
    ids = [f'it\'s "{n}"' for n in range(3_000)]
    for round_ in (1, 2):
        upsert(connection, table, [{"id": each, "total": round_} for each in ids])
    find = rows_among(table, connection.dialect)
    found = connection.execute(
        find, listed_keys(connection.dialect, [(each,) for each in [*ids, "unknown"]])
    ).all()
    assert sorted(found) == sorted((each, 2) for each in ids)
    connection.execute(delete_by(table), gone_keys([(each,) for each in ids[1:]]))
    assert connection.execute(select(table.c.id)).scalars().all() == ids[:1]


def test_a_table_of_nothing_but_its_key_is_written_once(connection: Connection) -> None:
    keys = Table("keys", MetaData(), Column("id", String(255), primary_key=True))
    keys.create(connection)
    for _ in range(2):
        connection.execute(upsert_into(keys, connection.dialect), [{"id": "a"}])
    assert connection.execute(select(keys)).all() == [("a",)]


def test_versions_and_offsets_are_those_of_one_generation(connection: Connection) -> None:
    dialect = connection.dialect
    for generation in (1, 2):
        place = {"name": "p", "generation": generation}
        versions = [
            {**place, "aggregate_id": each, "version": 10 * generation} for each in ("a", "b")
        ]
        connection.execute(upsert_into(projection_versions, dialect), versions)
        offsets = [{**place, "topic": "t", "queue_id": 0, "next_offset": generation}]
        connection.execute(upsert_into(projection_offsets, dialect), offsets)
    place = {"name": "p", "generation": 2}
    found = connection.execute(versions_among(dialect), {**place, **listed(dialect, ["a", "c"])})
    assert found.all() == [("a", 20)]
    letter = {"topic": "t", "queue_id": 0, "message_offset": 5, "parked_at": PARKED_AT}
    letter |= new_row(ValueError("no"))
    for aggregate_id in ("a", "b", "c"):
        connection.execute(insert(parked_rows), {**place, "aggregate_id": aggregate_id, **letter})
    found = connection.execute(versions_among(dialect), {**place, **listed(dialect, ["a", "c"])})
    assert sorted(found.all()) == [("a", PARKED), ("a", 20), ("c", PARKED)]
    other = {"name": "p", "generation": 1, **listed(dialect, ["a"])}
    assert connection.execute(versions_among(dialect), other).all() == [("a", 10)]
    assert connection.execute(offsets_of(), place).all() == [("t", 0, 2)]

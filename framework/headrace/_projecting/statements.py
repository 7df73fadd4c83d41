"""
The SQL of a batch, built once per table: upserts and lookups, each for any number of values.

SQLAlchemy compiles a statement once and finds it again, but building one costs more than running
it on a small batch. Sits between: `contents` and `applying`, which run the statements, and
SQLAlchemy Core. Must never know a projection or an event.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from sqlalchemy import (
    Column,
    ColumnElement,
    CompoundSelect,
    Connection,
    Dialect,
    Executable,
    Select,
    String,
    Table,
    Text,
    any_,
    bindparam,
    delete,
    func,
    literal,
    select,
    union_all,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from headrace.stores.tables import projection_letters, projection_offsets, projection_versions

__all__ = [
    "PARKED",
    "copy_into",
    "delete_by",
    "listed",
    "offsets_of",
    "rows_among",
    "upsert",
    "upsert_into",
    "versions_among",
    "write_together",
]

S = TypeVar("S", bound=Executable)

# Stands for the version of an aggregate that is parked.
PARKED: Final = -1
# The name of the one argument of a lookup among many values.
_AMONG: Final = "among"


def listed(dialect: Dialect, values: Collection[str]) -> dict[str, Any]:
    """Returns values as the argument that `rows_among` and `versions_among` take."""
    many = list(values)
    return {_AMONG: json.dumps(many) if dialect.name == "sqlite" else many}


def upsert_into(table: Table, dialect: Dialect) -> Executable:
    """Returns the statement that writes a row in place of the one with the same primary key."""
    return _once(table, f"upsert {dialect.name}", lambda: _upsert(table, dialect))


def upsert(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes rows, a value per column each, in place of those with the same primary keys.

    On PostgreSQL with one statement, which has a list per column: a statement per row costs the
    server, and the driver, several times as much. No two rows may have the same key.
    """
    dialect = connection.dialect
    if not rows:
        return
    if dialect.name == "sqlite":
        connection.execute(upsert_into(table, dialect), rows)
    else:
        names = [column.name for column in table.columns]
        connection.execute(_upsert_lists(table), {n: [row[n] for row in rows] for n in names})


def copy_into(connection: Connection, table: Table, records: Iterable[tuple[Any, ...]]) -> None:
    """Copies records, a value per column in order, into a table that has none of their keys.

    PostgreSQL only, within the caller's transaction; several times as fast as any other statement.
    """
    adapted: Any = connection.connection.dbapi_connection
    columns = [column.name for column in table.columns]
    adapted.run_async(
        lambda driver: driver.copy_records_to_table(table.name, records=records, columns=columns)
    )


def write_together(
    connection: Connection,
    table: Table,
    place: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    versions: Mapping[str, int],
    moves: Sequence[tuple[str, int, int, int]],
) -> bool:
    """Writes a batch's rows, versions and offsets by one statement: one round trip instead of three.

    PostgreSQL only.

    Args:
        connection: in a transaction that can write.
        table: what the rows go into.
        place: the `name` and `generation` of the projection's table.
        rows: new values, or in place of those with the same key.
        versions: by aggregate id.
        moves: of all stored offsets the topic, the queue, what it must be now, and the next one.

    Returns:
        False if the stored offsets are others: the caller has to roll back.
    """
    values: dict[str, Any] = {
        **{f"place_{name}": value for name, value in place.items()},
        **{f"row_{each.name}": [row[each.name] for row in rows] for each in table.columns},
        "version_aggregate_id": list(versions),
        "version_version": list(versions.values()),
    }
    for number, part in enumerate(("topic", "queue_id", "begin", "end")):
        values[f"move_{part}"] = [move[number] for move in moves]
    moved = sum(begin != end for _, _, begin, end in moves)
    return connection.execute(_together(table), values).rowcount == moved


def delete_by(table: Table, key: str) -> Executable:
    """Returns the statement that deletes the row whose key column has the value `gone`."""
    return _once(table, "delete", lambda: delete(table).where(table.c[key] == bindparam("gone")))


def rows_among(table: Table, key: str, dialect: Dialect) -> Select[Any]:
    """Returns the query for the rows whose key is among the values `listed`."""
    return _once(
        table,
        f"rows {dialect.name}",
        lambda: select(table).where(_is_among(table.c[key], dialect)),
    )


def versions_among(dialect: Dialect) -> CompoundSelect[Any]:
    """Returns the query for the versions of a `name` and `generation` among aggregates `listed`.

    An aggregate that is parked has one row more, with the version PARKED.
    """

    def among(table: Table, version: ColumnElement[int]) -> Select[Any]:
        return select(table.c.aggregate_id, version).where(
            table.c.name == bindparam("name"),
            table.c.generation == bindparam("generation"),
            _is_among(table.c.aggregate_id, dialect),
        )

    return _once(
        projection_versions,
        f"versions {dialect.name}",
        lambda: union_all(
            among(projection_versions, projection_versions.c.version),
            among(projection_letters, literal(PARKED)),
        ),
    )


def offsets_of() -> Select[Any]:
    """Returns the query for the offsets of a `name` and `generation`."""
    columns = projection_offsets.c
    return _once(
        projection_offsets,
        "offsets",
        lambda: select(columns.topic, columns.queue_id, columns.next_offset).where(
            columns.name == bindparam("name"), columns.generation == bindparam("generation")
        ),
    )


def _once(table: Table, use: str, build: Callable[[], S]) -> S:
    key = f"headrace {use}"
    if key not in table.info:
        table.info[key] = build()
    return cast("S", table.info[key])


def _upsert(table: Table, dialect: Dialect) -> Executable:
    statement: Any = (sqlite if dialect.name == "sqlite" else postgresql).insert(table)
    written: Executable = _in_place(statement, table)
    return written


def _upsert_lists(table: Table) -> Executable:
    def build() -> Executable:
        rows = select(*(_unnested(each, each.name) for each in table.columns))
        chosen = postgresql.insert(table).from_select(table.columns.keys(), rows)
        written: Executable = _in_place(chosen, table)
        return written

    return _once(table, "upsert lists", build)


def _together(table: Table) -> Executable:
    def build() -> Executable:
        name: ColumnElement[str] = bindparam("place_name")
        generation: ColumnElement[int] = bindparam("place_generation")
        rows = select(*(_unnested(each, f"row_{each.name}") for each in table.columns))
        v, o = projection_versions.c, projection_offsets.c
        versions = select(
            name.label(v.name.name),
            generation.label(v.generation.name),
            _unnested(v.aggregate_id, "version_aggregate_id"),
            _unnested(v.version, "version_version"),
        )
        moves = select(
            _unnested(o.topic, "move_topic").label("topic"),
            _unnested(o.queue_id, "move_queue_id").label("queue_id"),
            _unnested(o.next_offset, "move_begin").label("begin"),
            _unnested(o.next_offset, "move_end").label("end"),
        ).cte("moves")
        stored = projection_offsets.alias("stored")
        known = select(literal(1)).where(
            moves.c.topic == stored.c.topic,
            moves.c.queue_id == stored.c.queue_id,
            moves.c.begin == stored.c.next_offset,
        )
        others = select(literal(1)).where(
            stored.c.name == name,
            stored.c.generation == generation,
            ~known.correlate(stored).exists(),
        )
        upserts = [
            _in_place(postgresql.insert(each).from_select(each.columns.keys(), chosen), each).cte(
                f"written_{number}"
            )
            for number, (each, chosen) in enumerate(
                [(table, rows), (projection_versions, versions)]
            )
        ]
        return (
            update(projection_offsets)
            .values(next_offset=moves.c.end)
            .where(
                o.name == name,
                o.generation == generation,
                o.topic == moves.c.topic,
                o.queue_id == moves.c.queue_id,
                o.next_offset == moves.c.begin,
                moves.c.begin != moves.c.end,
                ~others.exists(),
            )
            .add_cte(*upserts)
        )

    return _once(table, "together", build)


def _unnested(column: Column[Any], name: str) -> ColumnElement[Any]:
    return func.unnest(bindparam(name, type_=_list_of(column)))


def _in_place(statement: Any, table: Table) -> Any:
    key = list(table.primary_key.columns)
    others = {
        column.name: statement.excluded[column.name]
        for column in table.columns
        if not column.primary_key
    }
    return (
        statement.on_conflict_do_update(index_elements=key, set_=others)
        if others
        else statement.on_conflict_do_nothing(index_elements=key)
    )


def _list_of(column: Column[Any]) -> postgresql.ARRAY[Any]:
    # A cast to an array of VARCHAR(n) would cut what is too long instead of refusing it.
    item = Text() if isinstance(column.type, String) else column.type
    return postgresql.ARRAY(item, dimensions=1)


def _is_among(column: ColumnElement[str], dialect: Dialect) -> ColumnElement[bool]:
    # One argument for any number of values, so that there is one statement to compile.
    if dialect.name == "sqlite":
        values = func.json_each(bindparam(_AMONG, type_=Text)).table_valued("value")
        return column.in_(select(values.c.value))
    return column == any_(bindparam(_AMONG, type_=postgresql.ARRAY(Text)))

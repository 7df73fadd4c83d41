"""
The SQL of a batch, built once per table: upserts and lookups, each for any number of values.

SQLAlchemy caches compiled statements, but to build one costs more than to run it on a small batch, so
each is built once. Used by everything that writes rows in batches, such as `contents` and
`handlers.progress`.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeVar, cast

from sqlalchemy import (
    CTE,
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
    case,
    delete,
    func,
    literal,
    select,
    tuple_,
    union_all,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError

from headrace.stores.database.tables import (
    parked_rows,
    projection_offsets,
    projection_versions,
    projections,
)

__all__ = [
    "PARKED",
    "Together",
    "copy_into",
    "delete_by",
    "gone_keys",
    "has_key_among",
    "is_among",
    "listed",
    "listed_keys",
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
# What PostgreSQL says of the one expression that may divide by zero.
_DIVISION_BY_ZERO: Final = "22012"
# Records that are copied into SQLite by one call; so many are in memory at a time.
_COPIED_TOGETHER_MAX: Final = 10_000
# The name of the one argument of a lookup among many values.
_AMONG: Final = "among"


def listed(dialect: Dialect, values: Collection[str], name: str = _AMONG) -> dict[str, Any]:
    """Returns values as the argument that `is_among` and the queries of it take."""
    many = list(values)
    return {name: json.dumps(many) if dialect.name == "sqlite" else many}


def listed_keys(
    dialect: Dialect, keys: Collection[tuple[Any, ...]], name: str = _AMONG
) -> dict[str, Any]:
    """Returns keys, a value for each of their columns, as the argument that `has_key_among` takes."""
    many = [key[0] if len(key) == 1 else key for key in keys]
    if dialect.name == "sqlite":
        # Of a UUID json makes nothing by itself, and SQLite keeps it as this text.
        return {name: json.dumps(many, default=str)}
    columns = zip(*keys, strict=True)
    return {f"{name}_{place}": list(values) for place, values in enumerate(columns)}


def gone_keys(keys: Collection[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Returns keys as the arguments that `delete_by` takes."""
    return [{f"gone_{place}": value for place, value in enumerate(key)} for key in keys]


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

    Within the caller's transaction; several times as fast as any other statement: by COPY on
    PostgreSQL, by one prepared statement on SQLite, past what SQLAlchemy does for each value.
    """
    dialect = connection.dialect
    if dialect.name == "sqlite":
        insert = str(_once(table, "insert", lambda: sqlite.insert(table)).compile(dialect=dialect))
        bound = _bound(table, dialect, records)
        while some := list(islice(bound, _COPIED_TOGETHER_MAX)):
            connection.exec_driver_sql(insert, some)
        return
    adapted: Any = connection.connection.dbapi_connection
    columns = [column.name for column in table.columns]
    adapted.run_async(
        lambda driver: driver.copy_records_to_table(table.name, records=records, columns=columns)
    )


def _bound(
    table: Table, dialect: Dialect, records: Iterable[tuple[Any, ...]]
) -> Iterable[tuple[Any, ...]]:
    """Yields records as the driver takes them."""
    processors = [each.type.dialect_impl(dialect).bind_processor(dialect) for each in table.columns]
    changed = [(at, process) for at, process in enumerate(processors) if process is not None]
    if not changed:
        return iter(records)

    def bind(record: tuple[Any, ...]) -> tuple[Any, ...]:
        values = list(record)
        for at, process in changed:
            values[at] = process(values[at])
        return tuple(values)

    return map(bind, records)


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """What a batch writes by one statement.

    Attributes:
        place: `name`, `generation` and `fingerprint`: of the projection's row, which must be so.
        rows: new values, or in place of those with the same key.
        gone: the keys of rows to delete, a value for each of their columns.
        versions: by aggregate id, each beyond what is stored.
        moves: of all stored offsets the topic, the queue, what it must be now, and the next one.
    """

    place: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    gone: Sequence[tuple[Any, ...]]
    versions: Mapping[str, int]
    moves: Sequence[tuple[str, int, int, int]]


def write_together(connection: Connection, table: Table, together: Together) -> bool:
    """Writes a batch's rows, versions and offsets by one statement: one round trip instead of four.

    PostgreSQL only. The statement locks the projection's row, and fails as a whole where the
    generation is not in use, stored offsets are others, or a version is stored already. So it may be
    a transaction of its own, where every row is of one aggregate: what another transaction has
    written since the statement began, and it cannot see, is found out by the version. Rows of other
    keys need the lock before it.

    Args:
        connection: where False is the answer, its transaction is at an end.
        table: what the rows go into.
        together: what to write.

    Returns:
        False if nothing was written.
    """
    moves = together.moves
    values: dict[str, Any] = {
        **{f"place_{name}": value for name, value in together.place.items()},
        **{f"row_{each.name}": [row[each.name] for row in together.rows] for each in table.columns},
        "version_aggregate_id": list(together.versions),
        "version_version": list(together.versions.values()),
        "version_count": len(together.versions),
        "move_count": sum(begin != end for _, _, begin, end in moves),
    }
    for number, part in enumerate(("topic", "queue_id", "begin", "end")):
        values[f"move_{part}"] = [move[number] for move in moves]
    for place, gone in enumerate(zip(*together.gone, strict=True)):
        values[f"gone_{place}"] = list(gone)
    try:
        connection.execute(_together(table, deletes=bool(together.gone)), values)
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != _DIVISION_BY_ZERO:
            raise
        return False
    return True


def delete_by(table: Table) -> Executable:
    """Returns the statement that deletes the row whose key is one of `gone_keys`."""
    keys = table.primary_key.columns

    def build() -> Executable:
        same = (
            column == bindparam(f"gone_{place}", type_=column.type)
            for place, column in enumerate(keys)
        )
        return delete(table).where(*same)

    return _once(table, "delete", build)


def rows_among(table: Table, dialect: Dialect) -> Select[Any]:
    """Returns the query for the rows whose key is among `listed_keys`."""
    keys = table.primary_key.columns
    return _once(
        table, f"rows {dialect.name}", lambda: select(table).where(has_key_among(keys, dialect))
    )


def versions_among(dialect: Dialect) -> CompoundSelect[Any]:
    """Returns the query for the versions of a `name` and `generation` among aggregates `listed`.

    An aggregate that is parked has one row more, with the version PARKED.
    """

    def among(table: Table, version: ColumnElement[int]) -> Select[Any]:
        return select(table.c.aggregate_id, version).where(
            table.c.name == bindparam("name"),
            table.c.generation == bindparam("generation"),
            is_among(table.c.aggregate_id, dialect),
        )

    return _once(
        projection_versions,
        f"versions {dialect.name}",
        lambda: union_all(
            among(projection_versions, projection_versions.c.version),
            among(parked_rows, literal(PARKED)),
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
        written: Executable = _into(table, rows)
        return written

    return _once(table, "upsert lists", build)


def _together(table: Table, *, deletes: bool) -> Executable:
    return _once(table, f"together {deletes}", lambda: _build_together(table, deletes=deletes))


def _build_together(table: Table, *, deletes: bool) -> Executable:
    """One expression that divides by zero, and so undoes the parts before it, unless all is well.

    Each part asks for the lock first: every other writer of the projection takes it first.
    """
    p, v = projections.c, projection_versions.c
    name: ColumnElement[str] = bindparam("place_name")
    generation: ColumnElement[int] = bindparam("place_generation")
    is_live = (
        (p.generation == generation)
        & (p.fingerprint == bindparam("place_fingerprint"))
        & p.paused_at.is_(None)
    )
    locked = (
        select(p.name)
        .where(p.name == name, is_live | (p.rebuild_generation == generation))
        .with_for_update()
        .cte("locked")
    )
    is_locked = _count(locked) == 1
    rows = select(*(_unnested(each, f"row_{each.name}") for each in table.columns))
    versions = select(
        name.label(v.name.name),
        generation.label(v.generation.name),
        _unnested(v.aggregate_id, "version_aggregate_id"),
        _unnested(v.version, "version_version"),
    )
    parts = [_into(table, rows.where(is_locked)).cte("written")]
    if deletes:
        gone = _among_lists(list(table.primary_key.columns), "gone")
        parts.append(delete(table).where(gone, is_locked).cte("deleted"))
    newer: Any = _into(projection_versions, versions.where(is_locked), only_newer=True)
    advanced = newer.returning(v.version).cte("advanced")
    moved, none_differs = _moves(name, generation, is_locked)
    is_well = (
        is_locked
        & (_count(moved) == bindparam("move_count"))
        & (_count(advanced) == bindparam("version_count"))
        & none_differs
    )
    asserted = literal(1) / case((is_well, 1), else_=0)
    chosen: Executable = select(asserted).add_cte(locked, *parts, advanced, moved)
    return chosen


def _moves(
    name: ColumnElement[str], generation: ColumnElement[int], is_locked: ColumnElement[bool]
) -> tuple[CTE, ColumnElement[bool]]:
    """Returns the part that moves offsets, and the condition that all stored ones are where it begins."""
    o = projection_offsets.c
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
    moved = (
        update(projection_offsets)
        .values(next_offset=moves.c.end)
        .where(
            o.name == name,
            o.generation == generation,
            o.topic == moves.c.topic,
            o.queue_id == moves.c.queue_id,
            o.next_offset == moves.c.begin,
            moves.c.begin != moves.c.end,
            is_locked,
        )
        .returning(o.queue_id)
        .cte("moved")
    )
    return moved, ~others.exists()


def _count(part: CTE) -> ColumnElement[int]:
    return select(func.count()).select_from(part).scalar_subquery()


def _into(table: Table, rows: Select[Any], *, only_newer: bool = False) -> Any:
    statement = postgresql.insert(table).from_select(table.columns.keys(), rows)
    return _in_place(statement, table, only_newer=only_newer)


def _unnested(column: Column[Any], name: str) -> ColumnElement[Any]:
    return func.unnest(bindparam(name, type_=_list_of(column)))


def _in_place(statement: Any, table: Table, *, only_newer: bool = False) -> Any:
    key = list(table.primary_key.columns)
    others = {
        column.name: statement.excluded[column.name]
        for column in table.columns
        if not column.primary_key
    }
    newer = table.c.version < statement.excluded.version if only_newer else None
    return (
        statement.on_conflict_do_update(index_elements=key, set_=others, where=newer)
        if others
        else statement.on_conflict_do_nothing(index_elements=key)
    )


def _list_of(column: ColumnElement[Any]) -> postgresql.ARRAY[Any]:
    # A cast to an array of VARCHAR(n) would cut long text instead of refusing it.
    item = Text() if isinstance(column.type, String) else column.type
    return postgresql.ARRAY(item, dimensions=1)


def is_among(
    column: ColumnElement[str], dialect: Dialect, name: str = _AMONG
) -> ColumnElement[bool]:
    """Returns whether a column has one of the values `listed`: one argument for any number of them."""
    if dialect.name == "sqlite":
        values = func.json_each(bindparam(name, type_=Text)).table_valued("value")
        return column.in_(select(values.c.value))
    return column == any_(bindparam(name, type_=postgresql.ARRAY(Text)))


def has_key_among(
    columns: Iterable[ColumnElement[Any]], dialect: Dialect, name: str = _AMONG
) -> ColumnElement[bool]:
    """Returns whether the columns of a key, or what has their types, are one of `listed_keys`."""
    keys = list(columns)
    if dialect.name != "sqlite":
        return _among_lists(keys, name)
    found = func.json_each(bindparam(name, type_=Text)).table_valued("value")
    if len(keys) == 1:
        return keys[0].in_(select(found.c.value))
    parts = (func.json_extract(found.c.value, f"$[{place}]") for place in range(len(keys)))
    return tuple_(*keys).in_(select(*parts).select_from(found))


def _among_lists(keys: Sequence[ColumnElement[Any]], name: str) -> ColumnElement[bool]:
    lists = [bindparam(f"{name}_{at}", type_=_list_of(key)) for at, key in enumerate(keys)]
    if len(keys) == 1:
        return keys[0] == any_(lists[0])
    return tuple_(*keys).in_(select(*(func.unnest(each) for each in lists)))

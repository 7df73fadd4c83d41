"""
The indexes of a generation's table: which there are, which are missing, and what breaks a unique one.

    a new table ─▶ with its indexes      a rebuild ─▶ after its rows are loaded
    a live table whose definition has changed ─▶ `headrace projection index`

The name of an index has its table's name and a mark of its definition, so names tell what is missing,
and what no definition has any more. Used by `live`, and by everything that makes tables or writes rows.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import (
    REAL,
    ColumnElement,
    Connection,
    Table,
    cast,
    column,
    func,
    literal,
    select,
)
from sqlalchemy import (
    Index as TableIndex,
)
from sqlalchemy import table as lightweight_table
from sqlalchemy.exc import IntegrityError
from sqlalchemy.sql.ddl import CreateIndex, DropIndex

from headrace.errors import ProjectionError
from headrace.projections.definition.column_types import ColumnKind
from headrace.projections.definition.index import Index
from headrace.projections.definition.projection import Projection
from headrace.projections.tables.row_tables import build_table

__all__ = ["create_indexes", "find_missing", "naming_unique"]

_SQLITE_VIOLATION: Final = re.compile(r"UNIQUE constraint failed: (.+)")
_SQLITE_NAMES: Final = lightweight_table(
    "sqlite_master", *(column(name) for name in ("type", "name", "tbl_name"))
)
_INDEXES: Final = lightweight_table(
    "pg_index", *(column(name) for name in ("indexrelid", "indrelid", "indisvalid"))
)
_CLASSES: Final = lightweight_table("pg_class", column("oid"), column("relname"))


def find_missing(
    connection: Connection, projection: Projection[Any], table: str
) -> tuple[list[Index], list[str]]:
    """Returns the indexes that a table lacks, and the names of those that it no longer needs.

    One that PostgreSQL began to build while rows were written, and could not end, is both.
    """
    valid, broken = _existing(connection, table)
    wanted = {_name_of(table, index): index for index in projection.indexes}
    missing = [index for name, index in wanted.items() if name not in valid]
    ours = re.compile(rf"{re.escape(table)}_i[0-9a-f]{{8}}")
    stale = [name for name in (*valid, *broken) if ours.fullmatch(name)]
    return missing, [name for name in stale if name not in wanted or name in broken]


def create_indexes(
    connection: Connection,
    projection: Projection[Any],
    table: str,
    *,
    concurrently: bool = False,
) -> tuple[int, int]:
    """Makes the indexes that a table lacks, and drops those that it no longer needs.

    Args:
        connection: in a transaction; with `concurrently` in autocommit.
        projection: whose indexes.
        table: the name of a generation's.
        concurrently: while rows are written; PostgreSQL only.

    Returns:
        How many were made, and how many dropped.

    Raises:
        ProjectionError: rows have the same values where an index is unique; names two of them.
    """
    missing, stale = find_missing(connection, projection, table)
    built = build_table(projection, table)
    for name in stale:
        unwanted = TableIndex(name, built.c[0], postgresql_concurrently=concurrently)
        connection.execute(DropIndex(unwanted))
    for index in missing:
        made = _built(projection, built, index, connection, concurrently=concurrently)
        if index.unique:
            _refuse_twice(connection, projection, built, index)
        connection.execute(CreateIndex(made))
    return len(missing), len(stale)


@contextmanager
def naming_unique(projection: Projection[Any], table: str) -> Iterator[None]:
    """Turns what a database says of a broken unique index into a sentence that names its fields.

    Raises:
        ProjectionError: two rows would have the same values.
    """
    try:
        yield
    except IntegrityError as error:
        index, said = _broken(projection, table, error)
        if index is None:
            raise
        raise ProjectionError(
            f"projection {projection.name}: two rows would have the same {', '.join(index.fields)},"
            f" and its Index says unique=True: {said}"
        ) from error


def _existing(connection: Connection, table: str) -> tuple[set[str], set[str]]:
    if connection.dialect.name == "sqlite":
        names = _SQLITE_NAMES.c
        found = select(names.name).where(names.type == "index", names.tbl_name == table)
        return set(connection.execute(found).scalars()), set()
    owned = _INDEXES.c.indrelid == func.to_regclass(literal(f'"{table}"'))
    joined = _INDEXES.join(_CLASSES, _CLASSES.c.oid == _INDEXES.c.indexrelid)
    rows = connection.execute(
        select(_CLASSES.c.relname, _INDEXES.c.indisvalid).select_from(joined).where(owned)
    ).all()
    return {name for name, valid in rows if valid}, {name for name, valid in rows if not valid}


def _name_of(table: str, index: Index) -> str:
    # With 40 characters of a projection's name and 10 digits of a generation 62 bytes of 63.
    return f"{table}_i{index.mark}"


def _built(
    projection: Projection[Any],
    table: Table,
    index: Index,
    connection: Connection,
    *,
    concurrently: bool,
) -> TableIndex:
    """Returns the index over what conditions compare: see `RowQuery`."""
    sqlite = connection.dialect.name == "sqlite"
    kinds = {field.name: field.kind for field in projection.shape.fields}
    parts: list[ColumnElement[Any]] = []
    for name in index.fields:
        part: ColumnElement[Any] = table.c[name]
        if kinds[name] is ColumnKind.TEXT and not sqlite and name not in projection.key_form.names:
            part = part.collate("C")
        if kinds[name] is ColumnKind.DECIMAL and sqlite:
            part = cast(part, REAL)
        parts.append(part)
    return TableIndex(
        _name_of(table.name, index),
        *parts,
        unique=index.unique,
        postgresql_concurrently=concurrently,
    )


def _refuse_twice(
    connection: Connection, projection: Projection[Any], table: Table, index: Index
) -> None:
    columns = [table.c[name] for name in index.fields]
    present = (each.is_not(None) for each in columns)
    twice = select(*columns).where(*present).group_by(*columns).having(func.count() > 1).limit(1)
    values = connection.execute(twice).one_or_none()
    if values is None:
        return
    keys = [table.c[name] for name in projection.key_form.names]
    same = (each == value for each, value in zip(columns, values, strict=True))
    rows = connection.execute(select(*keys).where(*same).order_by(*keys).limit(2)).all()
    named = " and ".join(projection.key_form.join(row) for row in rows)
    said = ", ".join(f"{name}={value!r}" for name, value in zip(index.fields, values, strict=True))
    raise ProjectionError(
        f"projection {projection.name}: the rows {named} of {table.name} have the same {said}, and"
        " its Index says unique=True; correct the folds, or take unique=True away"
    )


def _broken(
    projection: Projection[Any], table: str, error: IntegrityError
) -> tuple[Index | None, str]:
    """Returns the unique index that an error is about, and what the database says of it."""
    cause = getattr(error.orig, "__cause__", None)
    name = getattr(cause, "constraint_name", None)
    if name is not None:
        named = {_name_of(table, index): index for index in projection.indexes}
        return named.get(name), str(getattr(cause, "detail", None) or error.orig)
    found = _SQLITE_VIOLATION.fullmatch(str(error.orig))
    columns = tuple(each.rpartition(".")[2] for each in found[1].split(", ")) if found else ()
    unique = {index.fields: index for index in projection.indexes if index.unique}
    return unique.get(columns), str(error.orig)

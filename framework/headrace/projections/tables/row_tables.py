"""
Row models as SQL tables: one table per generation of a projection, one view in front of them.

    balances       VIEW   what users query; selects from the live generation
    balances__1    TABLE  a generation: live, kept for rollback, or a shadow being built

Text is Text, in a key String(255) in code-point order, int BigInteger, float double precision, Decimal
exact (NUMERIC on PostgreSQL, text on SQLite), moments UTC with microseconds, UUID its own type on
PostgreSQL and text on SQLite, JSON `jsonb` on PostgreSQL and text on SQLite.

Turns a `RowShape` into a table of SQLAlchemy Core.
"""

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, TypeVar
from uuid import UUID

from pydantic import BaseModel, ValidationError
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Date,
    Dialect,
    Float,
    LargeBinary,
    MetaData,
    Numeric,
    PrimaryKeyConstraint,
    Select,
    String,
    Table,
    Text,
    inspect,
    select,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import ExecutableDDLElement
from sqlalchemy.sql import quoted_name
from sqlalchemy.sql.compiler import DDLCompiler
from sqlalchemy.types import TypeDecorator, TypeEngine

from headrace.errors import ProjectionError
from headrace.projections.definition.column_types import ColumnKind
from headrace.projections.definition.json_values import json_text
from headrace.projections.definition.key_form import KEY_CHARACTERS_MAX
from headrace.projections.definition.projection import Projection
from headrace.stores.database.tables import UtcDateTime

__all__ = [
    "CanonicalJson",
    "ExactDecimal",
    "HyphenatedUuid",
    "build_table",
    "create_view",
    "drop_view",
    "fingerprint",
    "fits",
    "generation_of",
    "physical_name",
    "row_of",
    "values_of",
]

R = TypeVar("R", bound=BaseModel)

_DOUBLE_BITS: Final = 53


class ExactDecimal(TypeDecorator[Decimal]):
    """A decimal number with every digit: NUMERIC on PostgreSQL, text on SQLite."""

    impl = Numeric
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Chooses the database's own type."""
        exact: TypeEngine[Any] = Text() if dialect.name == "sqlite" else Numeric()
        return dialect.type_descriptor(exact)

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> Any:
        """Writes the number out for SQLite, without an exponent."""
        if value is None or dialect.name != "sqlite":
            return value
        return format(value, "f")

    def process_result_value(self, value: Any, dialect: Dialect) -> Decimal | None:  # noqa: ARG002 - the port's argument
        """Reads it back."""
        return Decimal(value) if isinstance(value, str) else value


class HyphenatedUuid(TypeDecorator[UUID]):
    """A UUID: its own type on PostgreSQL, on SQLite text in lower case with hyphens, in the same order."""

    impl = postgresql.UUID
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Chooses the database's own type."""
        own: TypeEngine[Any] = Text() if dialect.name == "sqlite" else postgresql.UUID()
        return dialect.type_descriptor(own)

    def process_bind_param(self, value: UUID | None, dialect: Dialect) -> Any:
        """Writes it as text for SQLite."""
        return str(value) if isinstance(value, UUID) and dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, dialect: Dialect) -> UUID | None:  # noqa: ARG002 - the port's argument
        """Reads it back."""
        return UUID(value) if isinstance(value, str) else value


class _JsonText(postgresql.JSONB):
    """`jsonb` that is written and read as text."""

    def bind_processor(self, dialect: Dialect) -> None:
        """Writes the text as it is."""

    def result_processor(self, dialect: Dialect, coltype: object) -> None:
        """Reads the text as it is."""


class CanonicalJson(TypeDecorator[Any]):
    """JSON: `jsonb` on PostgreSQL, text in its one form on SQLite.

    What is written is such a text already, or is made into one; what is read is lists and dicts.
    """

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Chooses the database's own type."""
        own: TypeEngine[Any] = Text() if dialect.name == "sqlite" else _JsonText()
        return dialect.type_descriptor(own)

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002 - the port's argument
        """Writes text as it is, and everything else as text."""
        return value if value is None or isinstance(value, str) else json_text(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002 - the port's argument
        """Reads lists and dicts."""
        return json.loads(value) if isinstance(value, str) else value


def physical_name(name: str, generation: int) -> str:
    """Returns the name of a generation's table."""
    return f"{name}__{generation}"


def generation_of(name: str, table_name: str) -> int | None:
    """Returns the generation of a projection that a table holds; None for any other table."""
    found = re.fullmatch(rf"{re.escape(name)}__([1-9][0-9]*)", table_name)
    return int(found[1]) if found else None


def build_table(projection: Projection[Any], table_name: str) -> Table:
    """Returns the table that a projection's rows fit into, under any name."""
    keys = projection.key_form.names
    columns: list[Column[Any]] = []
    for field in projection.shape.fields:
        of_key = field.name in keys and field.kind is ColumnKind.TEXT
        column_type = _key_type() if of_key else _column_type(field.kind)
        columns.append(
            Column(
                # Always quoted: databases differ in their reserved words.
                quoted_name(field.name, quote=True),
                column_type,
                primary_key=(field.name,) == keys,
                nullable=field.optional,
                autoincrement=False,
            )
        )
    # In the order of the key, and not of the columns.
    several = [PrimaryKeyConstraint(*keys)] if len(keys) > 1 else []
    return Table(table_name, MetaData(), *columns, *several)


def fingerprint(projection: Projection[Any]) -> str:
    """The same as long as version and columns are the same; 64 characters at most."""
    return projection.fingerprint


def values_of(projection: Projection[R], row: R) -> dict[str, Any]:
    """Returns a row as values for its table's columns."""
    return projection.shape.stored(row)


def row_of(projection: Projection[R], values: Mapping[Any, Any]) -> R:
    """Returns the row that a table's values by column name stand for.

    Raises:
        ProjectionError: the row model does not take them any more.
    """
    try:
        return projection.shape.load(dict(values))
    except ValidationError as error:
        key = ", ".join(f"{name}={values[name]!r}" for name in projection.key_form.names)
        raise ProjectionError(
            f"projection {projection.name}: the stored row with {key} is no {projection.row.__name__}"
            f" of this code; run `headrace projection rebuild {projection.name}`: {error}"
        ) from error


class _CreateView(ExecutableDDLElement):
    """CREATE VIEW, which SQLAlchemy has from 2.1 on."""

    def __init__(self, name: str, source: Select[Any], *, replace: bool) -> None:
        self.name = name
        self.source = source
        self.words = "CREATE OR REPLACE VIEW" if replace else "CREATE VIEW"


class _DropView(ExecutableDDLElement):
    """DROP VIEW IF EXISTS, likewise."""

    def __init__(self, name: str) -> None:
        self.name = name


@compiles(_CreateView)
def _create_view(element: _CreateView, compiler: DDLCompiler, **_: Any) -> str:
    source = compiler.sql_compiler.process(element.source)
    return f"{element.words} {compiler.preparer.quote(element.name)} AS {source}"


@compiles(_DropView)
def _drop_view(element: _DropView, compiler: DDLCompiler, **_: Any) -> str:
    return f"DROP VIEW IF EXISTS {compiler.preparer.quote(element.name)}"


def create_view(name: str, table: Table, *, replace: bool = False) -> ExecutableDDLElement:
    """Returns the statement that puts a view in front of a generation's table.

    Args:
        name: the projection's name.
        table: the generation.
        replace: take the place of a view with the same columns, keeping grants (PostgreSQL).
    """
    return _CreateView(name, select(*table.columns), replace=replace)


def drop_view(name: str) -> ExecutableDDLElement:
    """Returns the statement that removes a projection's view."""
    return _DropView(name)


def fits(connection: Connection, table: Table) -> bool:
    """Whether a table of this name exists with the same columns in the same order."""
    inspector = inspect(connection)
    if not inspector.has_table(table.name):
        return False
    dialect = connection.dialect
    found = [
        (column["name"], column["type"].python_type, column["nullable"])
        for column in inspector.get_columns(table.name)
    ]
    wanted = [
        (column.name, _stored_as(column.type, dialect), column.nullable) for column in table.columns
    ]
    key = inspector.get_pk_constraint(table.name)["constrained_columns"]
    return found == wanted and key == [column.name for column in table.primary_key.columns]


def _key_type() -> String:
    # Python, SQLite and "C" sort by code point; other collations of PostgreSQL do not.
    by_code_point = String(KEY_CHARACTERS_MAX, collation="C")
    return String(KEY_CHARACTERS_MAX).with_variant(by_code_point, "postgresql")


def _column_type(kind: ColumnKind) -> TypeEngine[Any]:
    match kind:
        case ColumnKind.TEXT:
            return Text()
        case ColumnKind.INTEGER:
            return BigInteger()
        case ColumnKind.FLOAT:
            return Float(_DOUBLE_BITS)
        case ColumnKind.BOOLEAN:
            return Boolean()
        case ColumnKind.DECIMAL:
            return ExactDecimal()
        case ColumnKind.DATE:
            return Date()
        case ColumnKind.TIMESTAMP:
            return UtcDateTime()
        case ColumnKind.UUID:
            return HyphenatedUuid()
        case ColumnKind.BYTES:
            return LargeBinary()
        case ColumnKind.JSON:
            return CanonicalJson()


def _stored_as(column_type: TypeEngine[Any], dialect: Dialect) -> type:
    if isinstance(column_type, TypeDecorator):
        return column_type.load_dialect_impl(dialect).python_type
    return column_type.python_type

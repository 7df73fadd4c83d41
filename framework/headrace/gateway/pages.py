"""
Reads what a query says of a projection's rows: values of fields as text, conditions, an order.

    owner=ann  balance.ge=100  balance.lt=200  owner.in=ann,bob  closed.ne=true  sort=-balance

Used by `queries`; reads the database of read models.
"""

import base64
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel, TypeAdapter

from headrace.projections.definition.json_values import JsonForm
from headrace.projections.definition.projection import Projection
from headrace.projections.definition.shape import ColumnKind, RowField
from headrace.projections.tables.read_models import ReadModels
from headrace.projections.tables.reader import Page
from headrace.projections.tables.row_query import LOOKUPS

__all__ = ["CONTROLS", "INTEGER_MAX", "TEXT_CHARACTERS_MAX", "Pages"]

R = TypeVar("R", bound=BaseModel)

# Names of the query that are no fields of a row.
CONTROLS: Final = frozenset({"after", "limit", "seen", "sort", "wait_ms"})

# What the widest column of every database takes.
INTEGER_MAX: Final = 2**63 - 1
# Longer than any number worth asking for; an exponent of a billion would be written out.
_DECIMAL_DIGITS_MAX: Final = 1_000
# Longer than any text worth asking for, and than most request lines that proxies let through.
TEXT_CHARACTERS_MAX: Final = 8_192


class Pages(Generic[R]):
    """The pages of one projection; every call sees what was committed before it.

    Args:
        projection: which one.
        read_models: where its table is.
    """

    def __init__(self, projection: Projection[R], read_models: ReadModels) -> None:
        self._projection = projection
        self._read_models = read_models
        self._types: dict[str, TypeAdapter[Any]] = {
            name: TypeAdapter[Any](info.annotation or Any)
            for name, info in projection.row.model_fields.items()
        }
        self._kinds = {field.name: field.kind for field in projection.shape.fields}
        self._readers = {
            field.name: _reader(field, projection.row.model_fields[field.name].annotation)
            for field in projection.shape.fields
        }

    @property
    def fields(self) -> frozenset[str]:
        """The names of the row's fields."""
        return frozenset(self._types)

    def field_of(self, name: str) -> str | None:
        """Returns the field that a condition of a query is about; None: of no field."""
        field, dot, lookup = name.partition(".")
        known = field in self._types and (lookup in LOOKUPS if dot else True)
        return field if known else None

    def condition(self, name: str, text: str) -> tuple[str, Any]:
        """Returns a condition as readers take it, of one in a query.

        Raises:
            ValueError: no row can have such a value; a pydantic `ValidationError` is one, too.
        """
        field, _, lookup = name.partition(".")
        if lookup == "in":
            if self._kinds[field] is ColumnKind.JSON:
                raise ValueError(f"{field} is JSON, which has commas of its own; ask for one value")
            return f"{field}__in", [self.value(field, each) for each in text.split(",")]
        return f"{field}__{lookup}" if lookup else field, self.value(field, text)

    def value(self, field: str, text: str) -> Any:
        """Returns a field's value as text says it.

        Raises:
            ValueError: no row can have it; a pydantic `ValidationError` is one, too.
        """
        if len(text) > TEXT_CHARACTERS_MAX or "\x00" in text:
            raise ValueError(f"a value has at most {TEXT_CHARACTERS_MAX} characters and no NUL")
        value = self._types[field].validate_python(self._readers[field](text))
        if isinstance(value, int) and abs(value) > INTEGER_MAX:
            raise ValueError("an integer has at most 64 bits")
        if isinstance(value, Decimal) and (
            not value.is_finite() or abs(value.adjusted()) > _DECIMAL_DIGITS_MAX
        ):
            raise ValueError(f"a number is finite and has at most {_DECIMAL_DIGITS_MAX} digits")
        if isinstance(value, datetime):
            if value.tzinfo is None:
                raise ValueError("a moment says its zone, as in 2026-01-31T12:00:00Z")
            return value.astimezone(UTC)
        return value

    async def read(
        self, conditions: Mapping[str, Any], *, sort: str | None, after: str | None, limit: int
    ) -> Page[R]:
        """Returns the next rows that fit all conditions; raises what `ProjectionReader.page` raises."""
        reader = self._read_models.reader(self._projection)
        return await reader.page(conditions, order_by=sort, limit=limit, after=after)


def _reader(field: RowField, annotation: Any) -> Callable[[str], Any]:
    """Returns what makes of text what the field's type takes; raises ValueError."""
    if field.kind is ColumnKind.JSON:
        return JsonForm(annotation).value
    if field.kind is ColumnKind.BYTES:
        return _from_base64
    if field.kind is ColumnKind.INTEGER and (field.enum or field.choices):
        return int
    return str


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, altchars=b"-_", validate=True)
    except ValueError as error:
        raise ValueError(
            "bytes are written in base64, with - and _ and with = at the end"
        ) from error

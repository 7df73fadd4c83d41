"""
Finds rows of a projection's live table by the values of fields, a page at a time in key order.

Used by `queries`; reads the database of read models.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel, TypeAdapter
from sqlalchemy import select

from headrace.projections.definition.projection import Projection
from headrace.projections.tables.read_models import ReadModels
from headrace.projections.tables.row_tables import build_table, row_of

__all__ = ["Page", "Pages"]

R = TypeVar("R", bound=BaseModel)

# What the widest column of every database takes.
_INTEGER_MAX: Final = 2**63 - 1
# Longer than any number worth asking for; an exponent of a billion would be written out.
_DECIMAL_DIGITS_MAX: Final = 1_000
# Longer than any text worth asking for, and than most request lines that proxies let through.
_TEXT_CHARACTERS_MAX: Final = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[R]):
    """Some rows.

    Attributes:
        rows: in key order, by code point.
        after: the key after which the next page begins; None: there is none.
    """

    rows: list[R]
    after: str | None


class Pages(Generic[R]):
    """The pages of one projection; every call sees what was committed before it.

    Args:
        projection: which one.
        read_models: where its table is.
    """

    def __init__(self, projection: Projection[R], read_models: ReadModels) -> None:
        self._projection = projection
        self._read_models = read_models
        # The view of the live generation has the projection's own name.
        self._view = build_table(projection, projection.name)
        self._types: dict[str, TypeAdapter[Any]] = {
            name: TypeAdapter[Any](info.annotation or Any)
            for name, info in projection.row.model_fields.items()
        }

    @property
    def fields(self) -> frozenset[str]:
        """The names of the row's fields."""
        return frozenset(self._types)

    def value(self, field: str, text: str) -> Any:
        """Returns a field's value as text says it.

        Raises:
            ValueError: no row can have it; a pydantic `ValidationError` is one, too.
        """
        if len(text) > _TEXT_CHARACTERS_MAX or "\x00" in text:
            raise ValueError(f"a value has at most {_TEXT_CHARACTERS_MAX} characters and no NUL")
        value = self._types[field].validate_python(text)
        if isinstance(value, int) and abs(value) > _INTEGER_MAX:
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

    async def read(self, equals: Mapping[str, Any], *, after: str | None, limit: int) -> Page[R]:
        """Returns the rows with these values whose keys come after one; `limit` at most."""
        key = self._view.c[self._projection.key]
        conditions = [self._view.c[name] == value for name, value in equals.items()]
        if after is not None:
            conditions.append(key > after)
        statement = select(self._view).where(*conditions).order_by(key).limit(limit + 1)
        async with self._read_models.snapshot() as connection:
            found = (await connection.execute(statement)).mappings().all()
        rows = [row_of(self._projection, row) for row in found[:limit]]
        more = len(found) > limit
        return Page(rows=rows, after=getattr(rows[-1], self._projection.key) if more else None)

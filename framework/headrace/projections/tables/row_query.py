"""
Which rows of a projection, and in which order: conditions by name, and pages that begin behind a row.

    owner="ann"  owner__in=["ann", "bob"]  balance__ge=100  balance__lt=200  closed__ne=True
    order_by="-balance"        by a field, the greatest first; rows with equal values by their key

A page begins behind the last row of the page before, by value and key. So a row that stays as it is comes
exactly once, although others come and go between two pages.

Used by `reader`. Pure: it makes statements and runs none.
"""

import base64
import binascii
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from operator import ge, gt, le, lt
from types import GenericAlias
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter, ValidationError
from sqlalchemy import REAL, ColumnElement, Table, and_, cast, or_

from headrace.projections.definition.projection import Projection
from headrace.projections.definition.shape import ColumnKind

__all__ = ["IN_VALUES_MAX", "LOOKUPS", "Order", "RowQuery"]

# Values of one `in`: each is a parameter, of which a statement takes 32,766.
IN_VALUES_MAX: Final = 1_000

_COMPARE: Final[Mapping[str, Callable[[Any, Any], ColumnElement[bool]]]] = {
    "ge": ge, "gt": gt, "le": le, "lt": lt,
}  # fmt: skip
# What may follow a field's name and two underscores.
LOOKUPS: Final = (*_COMPARE, "in", "ne")


class RowQuery:
    """Makes conditions and orders for one table of a projection.

    Databases differ in how they order some values. So text is compared by code point everywhere, and
    decimals as numbers. SQLite keeps decimals as text and compares them as doubles, to 15 digits.

    Args:
        projection: whose rows.
        table: the view of the live generation, or one generation's table.
        dialect: "sqlite" or "postgresql".
    """

    def __init__(self, projection: Projection[Any], table: Table, dialect: str) -> None:
        self._key = projection.key
        self._row = projection.row
        self._kinds = {field.name: field.kind for field in projection.shape.fields}
        self._table = table
        self._sqlite = dialect == "sqlite"

    def field_of(self, name: str) -> tuple[str, str]:
        """Returns the field that a condition is about, and its lookup, which may be empty.

        Raises:
            ValueError: the row has no such field.
        """
        if name in self._kinds:
            return name, ""
        field, _, lookup = name.rpartition("__")
        if field in self._kinds and lookup in LOOKUPS:
            return field, lookup
        raise ValueError(
            f"{self._row.__name__} has no field {name}; after a field's name may follow two underscores"
            f" and one of {', '.join(LOOKUPS)}"
        )

    def conditions(self, wanted: Mapping[str, Any]) -> list[ColumnElement[bool]]:
        """Returns the conditions, all of which a row must fit; see this module.

        None is a value for equality, `ne` and `in`.

        Raises:
            ValueError: the row has no such field, `in` has too many values, or a field is compared with
                None, or with True or False.
            TypeError: `in` has no list of values.
        """
        return [self._condition(*self.field_of(name), value) for name, value in wanted.items()]

    def order(self, by: str | None) -> "Order":
        """Returns an order of rows: by a field, from the greatest on with a `-` in front; None: by key.

        Raises:
            ValueError: the row has no such field.
        """
        name = self._key if by is None else by.removeprefix("-")
        if name not in self._kinds:
            raise ValueError(f"{self._row.__name__} has no field {name!r} to order by")
        descending = by is not None and by.startswith("-")
        columns = self._comparable(name), self._table.c[self._key]
        return Order(self._row, (name, self._key), columns, self._value, descending=descending)

    def _condition(self, name: str, lookup: str, value: Any) -> ColumnElement[bool]:
        column = self._comparable(name)
        if lookup == "in":
            return self._among(name, column, value)
        value = self._value(name, value)
        if lookup in _COMPARE:
            if value is None or self._kinds[name] is ColumnKind.BOOLEAN:
                raise ValueError(f"{name}__{lookup}: nothing is greater or less than {value}")
            return _COMPARE[lookup](column, value)
        return column.is_distinct_from(value) if lookup == "ne" else column == value

    def _among(self, name: str, column: ColumnElement[Any], values: Any) -> ColumnElement[bool]:
        if isinstance(values, str | bytes) or not isinstance(values, Collection):
            raise TypeError(f"{name}__in takes a list of values, not {type(values).__name__}")
        if len(values) > IN_VALUES_MAX:
            raise ValueError(f"{name}__in takes {IN_VALUES_MAX} values at most, not {len(values)}")
        found = column.in_([self._value(name, value) for value in values if value is not None])
        return or_(found, column.is_(None)) if None in values else found

    def _comparable(self, name: str) -> ColumnElement[Any]:
        column, kind = self._table.c[name], self._kinds[name]
        if kind is ColumnKind.DECIMAL and self._sqlite:
            return cast(column, REAL)
        # A key's column has this collation itself.
        if kind is ColumnKind.TEXT and not self._sqlite and name != self._key:
            return column.collate("C")
        return column

    def _value(self, name: str, value: Any) -> Any:
        is_text = self._kinds[name] is ColumnKind.DECIMAL and self._sqlite
        return float(Decimal(value)) if is_text and isinstance(value, Decimal | int) else value


class Order:
    """An order of rows, by a field and then by key, and where a page of it begins.

    Rows without a value in the field come last.

    Args:
        row: the row model.
        names: of the field and of the key, which may be the same.
        columns: as they are compared.
        value: makes of a field's value what its column is compared with.
        descending: whether the greatest value comes first; keys rise in any case.
    """

    def __init__(
        self,
        row: type[BaseModel],
        names: tuple[str, str],
        columns: tuple[ColumnElement[Any], ColumnElement[Any]],
        value: Callable[[str, Any], Any],
        *,
        descending: bool,
    ) -> None:
        self._names = names
        self._column, self._key = columns
        self._value = value
        self._descending = descending
        place: Any = GenericAlias(tuple, (row.model_fields[names[0]].annotation, str))
        self._place: TypeAdapter[Any] = TypeAdapter(place)
        self._by_key = names[0] == names[1]

    @property
    def clauses(self) -> list[ColumnElement[Any]]:
        """What a statement's rows are ordered by."""
        if self._by_key:
            return [self._key.desc() if self._descending else self._key]
        column = self._column.desc() if self._descending else self._column
        return [self._column.is_(None), column, self._key]

    def cursor(self, row: BaseModel) -> str:
        """Returns where the page behind a row begins: its key, or its value and key as one word."""
        key: str = getattr(row, self._names[1])
        if self._by_key:
            return key
        place = self._place.dump_json((getattr(row, self._names[0]), key))
        return base64.urlsafe_b64encode(place).decode()

    def behind(self, cursor: str) -> ColumnElement[bool]:
        """Returns the condition that holds for the rows behind a cursor.

        Raises:
            ValueError: it is not one of this order.
        """
        if self._by_key:
            return self._key < cursor if self._descending else self._key > cursor
        try:
            value, key = self._place.validate_json(base64.urlsafe_b64decode(cursor.encode()))
        except (ValidationError, binascii.Error, UnicodeEncodeError) as error:
            raise ValueError(
                "after is what the page before said, for the same field and order"
            ) from error
        if value is None:
            return and_(self._column.is_(None), self._key > key)
        value = self._value(self._names[0], value)
        further = self._column < value if self._descending else self._column > value
        same = and_(self._column == value, self._key > key)
        return or_(further, same, self._column.is_(None))

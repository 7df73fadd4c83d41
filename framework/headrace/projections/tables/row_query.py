"""
Which rows of a projection, and in which order: conditions by name, and pages that begin behind a row.

    owner="ann"  owner__in=["ann", "bob"]  balance__ge=100  balance__lt=200  closed__ne=True
    order_by="-balance"        by a field, the greatest first; rows with equal values by their key

A page begins behind the last row of the page before, by value and key. So a row that stays as it is comes
exactly once, although others come and go between two pages.

Used by `reader`. Pure: it makes statements and runs none.
"""

import base64
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from operator import ge, gt, le, lt
from types import GenericAlias
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, TypeAdapter
from sqlalchemy import REAL, ColumnElement, Table, and_, cast, literal, or_, tuple_

from headrace.projections.definition.column_types import ColumnKind
from headrace.projections.definition.key_form import KeyForm
from headrace.projections.definition.projection import Projection

__all__ = ["IN_VALUES_MAX", "LOOKUPS", "Order", "RowQuery", "compared"]

# Values of one `in`: each is a parameter, of which a statement takes 32,766.
IN_VALUES_MAX: Final = 1_000

_COMPARE: Final[Mapping[str, Callable[[Any, Any], ColumnElement[bool]]]] = {
    "ge": ge, "gt": gt, "le": le, "lt": lt,
}  # fmt: skip
# What may follow a field's name and two underscores.
LOOKUPS: Final = (*_COMPARE, "in", "ne")
_UNORDERED: Final = frozenset({ColumnKind.BOOLEAN, ColumnKind.JSON})
_BASE64: Final = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")


class RowQuery:
    """Makes conditions and orders for one table of a projection.

    Databases differ in how they order some values. So text is compared by code point everywhere, and
    decimals as numbers. SQLite keeps decimals as text and compares them as doubles, to 15 digits.

    Args:
        projection: whose rows.
        table: the view of the live generation, or one generation's table.
        dialect: "sqlite" or "postgresql".

    Attributes:
        keys: the columns of the key, in order.
    """

    def __init__(self, projection: Projection[Any], table: Table, dialect: str) -> None:
        self._form = projection.key_form
        self._shape = projection.shape
        self._row = projection.row
        self._kinds = {field.name: field.kind for field in projection.shape.fields}
        self._optional = {field.name for field in projection.shape.fields if field.optional}
        self._table = table
        self.keys: list[ColumnElement[Any]] = [table.c[name] for name in self._form.names]
        self._sqlite = dialect == "sqlite"

    def has_key(self, key: Any) -> ColumnElement[bool]:
        """Returns the condition that holds for the row of a key, given as its value or a tuple.

        Raises:
            ValueError: no row can have this key.
        """
        values = self._form.values(self._form.text(key))
        return and_(*(column == value for column, value in zip(self.keys, values, strict=True)))

    def key_of(self, row: BaseModel) -> tuple[Any, ...]:
        """Returns the values of a row's key."""
        return tuple(getattr(row, name) for name in self._form.names)

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
        descending = by is not None and by.startswith("-")
        name = None if by is None else by.removeprefix("-")
        if (name,) == self._form.names:
            name = None
        if name is None:
            return Order(self._form, self.keys, None, descending=descending)
        if name not in self._kinds:
            raise ValueError(f"{self._row.__name__} has no field {name!r} to order by")
        if self._kinds[name] is ColumnKind.JSON:
            raise ValueError(f"{name} is kept as JSON, which has no order")
        field = OrderField(
            name=name,
            column=self._comparable(name),
            annotation=self._row.model_fields[name].annotation,
            optional=name in self._optional,
            value=partial(self._value, name),
        )
        return Order(self._form, self.keys, field, descending=descending)

    def _condition(self, name: str, lookup: str, value: Any) -> ColumnElement[bool]:
        column = self._comparable(name)
        if lookup == "in":
            return self._among(name, column, value)
        value = self._value(name, value)
        if lookup in _COMPARE:
            if value is None or self._kinds[name] in _UNORDERED:
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
        if kind is ColumnKind.TEXT and not self._sqlite and name not in self._form.names:
            return column.collate("C")
        return column

    def _value(self, name: str, value: Any) -> Any:
        is_text = self._kinds[name] is ColumnKind.DECIMAL and self._sqlite
        if is_text and isinstance(value, Decimal | int):
            return float(Decimal(value))
        return self._shape.stored_value(name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderField:
    """The field that rows are ordered by.

    Attributes:
        name: of the field.
        column: as it is compared.
        annotation: the type of its values.
        optional: whether rows may have no value in it.
        value: makes of a value what the column is compared with.
    """

    name: str
    column: ColumnElement[Any]
    annotation: Any
    optional: bool
    value: Callable[[Any], Any]


class Order:
    """An order of rows, by a field and then by key, and where a page of it begins.

    Rows without a value in the field come last.

    Args:
        form: of the keys.
        keys: the columns of the key.
        field: by which they are ordered; None: by their key alone.
        descending: whether the greatest value comes first; keys after a field rise in any case.
    """

    def __init__(
        self,
        form: KeyForm,
        keys: Sequence[ColumnElement[Any]],
        field: OrderField | None,
        *,
        descending: bool,
    ) -> None:
        self._form = form
        self._keys = keys
        self._field = field
        self._descending = descending
        if field is not None:
            place: Any = GenericAlias(tuple, (field.annotation, str))
            self._place: TypeAdapter[Any] = TypeAdapter(place, config=_BASE64)

    @property
    def clauses(self) -> list[ColumnElement[Any]]:
        """What a statement's rows are ordered by."""
        field = self._field
        if field is None:
            return [key.desc() if self._descending else key for key in self._keys]
        column = field.column.desc() if self._descending else field.column
        # Without the first, an index on the field has the order.
        missing = [field.column.is_(None)] if field.optional else []
        return [*missing, column, *self._keys]

    def cursor(self, row: BaseModel) -> str:
        """Returns where the page behind a row begins: its key, or its value and key as one word."""
        key = self._form.text_of(row)
        if self._field is None:
            return key
        place = self._place.dump_json((getattr(row, self._field.name), key))
        return base64.urlsafe_b64encode(place).decode()

    def behind(self, cursor: str) -> ColumnElement[bool]:
        """Returns the condition that holds for the rows behind a cursor.

        Raises:
            ValueError: it is not one of this order.
        """
        field = self._field
        if field is None:
            values = self._form.values(self._form.parse(cursor))
            return compared(lt if self._descending else gt, self._keys, values)
        try:
            value, text = self._place.validate_json(base64.urlsafe_b64decode(cursor.encode()))
            key = self._form.values(text)
        except (ValueError, UnicodeEncodeError) as error:
            raise ValueError(
                "after is what the page before said, for the same field and order"
            ) from error
        greater_key = compared(gt, self._keys, key)
        if value is None:
            return and_(field.column.is_(None), greater_key)
        value = field.value(value)
        further = field.column < value if self._descending else field.column > value
        same = and_(field.column == value, greater_key)
        return or_(further, same, field.column.is_(None))


def compared(
    compare: Callable[[Any, Any], Any],
    columns: Sequence[ColumnElement[Any]],
    values: Sequence[Any],
) -> ColumnElement[bool]:
    """Returns a comparison of the columns of a key with the values of one, the first part first."""
    if len(columns) == 1:
        found: ColumnElement[bool] = compare(columns[0], values[0])
        return found
    given = (literal(value, of.type) for value, of in zip(values, columns, strict=True))
    found = compare(tuple_(*columns), tuple_(*given))
    return found

"""
The shape of a row model: its columns, and the canonical form of its rows.

A row that was read from a database must equal one that stayed in memory; otherwise a fold would
depend on where a batch ended. `canonical` makes them equal. Used by `Projection`, which refuses row models
that no table can hold, by `fold` and by `tables.row_tables`. Pure.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from math import isnan
from types import NoneType, UnionType
from typing import Annotated, Any, Generic, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from headrace.errors import DefinitionError

__all__ = ["ColumnKind", "RowField", "RowShape", "kind_of"]

R = TypeVar("R", bound=BaseModel)

# PostgreSQL's limit for the name of a column, in bytes.
_COLUMN_NAME_BYTES_MAX = 63
# Names that no quotes make free: columns that every table of PostgreSQL has by itself, and words that
# SQLite takes for values in what is read through a view.
_TAKEN_NAMES = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid", "true", "false"})


class ColumnKind(Enum):
    """What a column holds."""

    TEXT = "text"
    INTEGER = "integer"
    FLOAT = "float"
    BOOLEAN = "boolean"
    DECIMAL = "decimal"
    DATE = "date"
    TIMESTAMP = "timestamp"


_KINDS: Mapping[Any, ColumnKind] = {
    str: ColumnKind.TEXT,
    int: ColumnKind.INTEGER,
    float: ColumnKind.FLOAT,
    bool: ColumnKind.BOOLEAN,
    Decimal: ColumnKind.DECIMAL,
    date: ColumnKind.DATE,
    datetime: ColumnKind.TIMESTAMP,
}
_TYPES: Mapping[ColumnKind, type] = {kind: python for python, kind in _KINDS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowField:
    """One field of a row model, and so one column."""

    name: str
    kind: ColumnKind
    optional: bool


class RowShape(Generic[R]):
    """The fields of a row model in order.

    Args:
        owner: the projection's name, for sentences.
        model: the row model.

    Attributes:
        model: the row model.
        fields: its fields in order.
        one_form: of each field the types whose values fit it and have one form only.
        fingerprint: the same for the same columns in the same order; 64 hexadecimal digits.

    Raises:
        DefinitionError: a field or the model cannot be kept in a table; the sentence names it.
    """

    def __init__(self, owner: str, model: type[R]) -> None:
        self.model = model
        self.fields = tuple(
            _read_field(owner, model, name, info.annotation)
            for name, info in model.model_fields.items()
        )
        _check_model(owner, model)
        text = "\n".join(f"{f.name} {f.kind.value} {f.optional}" for f in self.fields)
        self.fingerprint = hashlib.sha256(text.encode()).hexdigest()
        self._owner = owner
        self._types = tuple((field.name, _accepted(field)) for field in self.fields)
        self._floats = _names(self.fields, ColumnKind.FLOAT)
        self._zoned = _names(self.fields, ColumnKind.TIMESTAMP)
        self._decimals = _names(self.fields, ColumnKind.DECIMAL)
        odd = {float, datetime, Decimal}
        self.one_form = {name: types - odd for name, types in self._types}
        # No value of the right type has another form.
        self._as_it_is = not (self._floats or self._zoned or self._decimals)

    def load(self, values: Mapping[str, Any]) -> R:
        """Makes a row of stored values."""
        return self.model.model_validate(values, by_alias=False, by_name=True)

    def canonical(self, row: R) -> R:
        """Returns the row in its one form: exact types, moments in UTC, decimals written out.

        Raises:
            DefinitionError: a value does not fit its field, a number is not a number (SQLite would
                keep NULL instead) or a moment has no zone.
        """
        values = row.__dict__
        for name, types in self._types:
            if type(values[name]) not in types:
                row = self._convert(row)
                break
        else:
            if type(row) is not self.model:
                row = self._convert(row)
        if self._as_it_is:
            return row
        changes = self._changes(row.__dict__)
        return row.model_copy(update=changes) if changes else row

    def _convert(self, row: R) -> R:
        try:
            return self.load({field.name: row.__dict__[field.name] for field in self.fields})
        except ValidationError as error:
            raise DefinitionError(
                f"projection {self._owner}: a fold made a row that is no"
                f" {self.model.__name__}: {error}"
            ) from error

    def _changes(self, values: Mapping[str, Any]) -> dict[str, Any]:
        for name in self._floats:
            if values[name] is not None and isnan(values[name]):
                raise self._no_number(name, values[name])
        changes: dict[str, Any] = {}
        for name in self._zoned:
            moment = values[name]
            if moment is not None and moment.tzinfo is not UTC:
                changes[name] = self._to_utc(name, moment)
        for name in self._decimals:
            number = values[name]
            if number is not None and not _written_out(number):
                changes[name] = self._write_out(name, number)
        return changes

    def _to_utc(self, name: str, moment: datetime) -> datetime:
        if moment.tzinfo is None:
            raise DefinitionError(
                f"projection {self._owner}: {name}={moment!r} has no time zone;"
                " a row holds moments with a zone"
            )
        return moment.astimezone(UTC)

    def _write_out(self, name: str, number: Decimal) -> Decimal:
        if not number.is_finite():
            raise self._no_number(name, number)
        number = Decimal(format(number, "f"))
        return number.copy_abs() if number.is_zero() else number

    def _no_number(self, name: str, value: object) -> DefinitionError:
        return DefinitionError(
            f"projection {self._owner}: {name}={value} is no number that a table can hold"
        )

    def __repr__(self) -> str:
        return f"<RowShape of {self.model.__name__}>"


def _read_field(owner: str, model: type[BaseModel], name: str, annotation: Any) -> RowField:
    kind, optional = kind_of(annotation)
    if kind is None:
        raise DefinitionError(
            f"projection {owner}: field {model.__name__}.{name} is a {annotation!r}; a column is"
            " str, int, float, bool, Decimal, date or datetime, or one of these or None"
        )
    if len(name.encode()) > _COLUMN_NAME_BYTES_MAX:
        raise DefinitionError(
            f"projection {owner}: field {model.__name__}.{name} has a name of more than"
            f" {_COLUMN_NAME_BYTES_MAX} bytes"
        )
    return RowField(name=name, kind=kind, optional=optional)


def kind_of(annotation: Any) -> tuple[ColumnKind | None, bool]:
    """Returns which kind of column holds an annotated type, and whether the type admits None."""
    plain, optional = _without_none(annotation)
    return _KINDS.get(plain), optional


def _without_none(annotation: Any) -> tuple[Any, bool]:
    plain = _bare(annotation)
    if get_origin(plain) not in {Union, UnionType}:
        return plain, False
    members = [_bare(member) for member in get_args(plain)]
    others = [member for member in members if member is not NoneType]
    if len(others) != 1 or len(members) == 1:
        return plain, False
    return others[0], True


def _bare(annotation: Any) -> Any:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation


def _check_model(owner: str, model: type[BaseModel]) -> None:
    for name in model.model_fields:
        if name.casefold() in _TAKEN_NAMES:
            raise DefinitionError(
                f"projection {owner}: field {model.__name__}.{name} has a name that PostgreSQL or"
                " SQLite keeps for itself; give it another one"
            )
    folded = [name.casefold() for name in model.model_fields]
    if len(set(folded)) != len(folded):
        raise DefinitionError(
            f"projection {owner}: two fields of {model.__name__} differ in case alone,"
            " which SQL does not tell apart"
        )
    if model.__private_attributes__ or model.model_config.get("extra") == "allow":
        raise DefinitionError(
            f"projection {owner}: {model.__name__} has private attributes or extra fields,"
            " which no column would keep"
        )


def _accepted(field: RowField) -> frozenset[type]:
    wanted = _TYPES[field.kind]
    return frozenset({wanted, NoneType} if field.optional else {wanted})


def _names(fields: tuple[RowField, ...], kind: ColumnKind) -> tuple[str, ...]:
    return tuple(field.name for field in fields if field.kind is kind)


def _written_out(number: Decimal) -> bool:
    sign, _, exponent = number.as_tuple()
    return isinstance(exponent, int) and exponent <= 0 and not (sign and number.is_zero())

"""
The shape of a row model: its columns, and the canonical form of its rows.

A row that was read from a database must equal one that stayed in memory; otherwise a fold would
depend on where a batch ended. `canonical` makes them equal. Used by `Projection`, which refuses row models
that no table can hold, by `fold` and by `tables.row_tables`. Pure.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from math import isnan
from types import NoneType
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from headrace.errors import DefinitionError
from headrace.projections.definition.column_types import (
    ColumnKind,
    NoColumn,
    column_type,
    kind_of,
)
from headrace.projections.definition.json_values import JsonForm

__all__ = ["ColumnKind", "RowField", "RowShape", "kind_of"]

R = TypeVar("R", bound=BaseModel)

# PostgreSQL's limit for the name of a column, in bytes.
_COLUMN_NAME_BYTES_MAX = 63
# Names that no quotes make free: columns that every table of PostgreSQL has by itself, and words that
# SQLite takes for values in what is read through a view.
_TAKEN_NAMES = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid", "true", "false"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RowField:
    """One field of a row model, and so one column; see `ColumnType`."""

    name: str
    kind: ColumnKind
    optional: bool
    python: type = object
    enum: type[Enum] | None = None
    choices: frozenset[Any] = frozenset()
    structure: str = ""


class RowShape(Generic[R]):
    """The fields of a row model in order.

    Args:
        owner: the projection's name, for sentences.
        model: the row model.
        keys: the fields that make the key, in order.

    Attributes:
        model: the row model.
        fields: its fields in order.
        one_form: of each field the types whose values fit it and have one form only.
        fingerprint: the same for the same columns in the same order; 64 hexadecimal digits.

    Raises:
        DefinitionError: a field or the model cannot be kept in a table; the sentence names it.
    """

    def __init__(self, owner: str, model: type[R], keys: Sequence[str] = ()) -> None:
        self.model = model
        self.fields = tuple(
            _read_field(owner, model, name, info.annotation)
            for name, info in model.model_fields.items()
        )
        _check_model(owner, model)
        lines = [f"{f.name} {f.kind.value} {f.optional}{f.structure}" for f in self.fields]
        # A key of one field has no line, as ever.
        lines += [f"key {' '.join(keys)}"] if len(keys) > 1 else []
        self.fingerprint = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        self._owner = owner
        self._types = tuple((field.name, _accepted(field)) for field in self.fields)
        self._floats = _names(self.fields, ColumnKind.FLOAT)
        self._zoned = _names(self.fields, ColumnKind.TIMESTAMP)
        self._decimals = _names(self.fields, ColumnKind.DECIMAL)
        self._bytes = _names(self.fields, ColumnKind.BYTES)
        self._choices = tuple((f.name, f.choices) for f in self.fields if f.choices)
        self._enums = tuple((f.name, f.enum) for f in self.fields if f.enum is not None)
        self._json = tuple(
            (name, JsonForm(_annotated(model, name)))
            for name in _names(self.fields, ColumnKind.JSON)
        )
        odd = {
            float,
            datetime,
            Decimal,
            *(f.python for f in self.fields if f.structure or f.choices),
        }
        self.one_form = {name: types - odd for name, types in self._types}
        # No value of the right type has another form.
        self._as_it_is = not (
            self._floats or self._zoned or self._decimals or self._choices or self._json
        )
        # Values of rows are those of their columns.
        self._as_stored = not (self._enums or self._json)

    def load(self, values: Mapping[str, Any]) -> R:
        """Makes a row of stored values."""
        if not self._as_stored:
            values = self._loaded(values)
        return self.model.model_validate(values, by_alias=False, by_name=True)

    def stored(self, row: R) -> dict[str, Any]:
        """Returns the values of a row in its one form for the columns: enums as their values, JSON as text."""
        values = row.__dict__.copy()
        return values if self._as_stored else self.to_stored(values)

    def to_stored(self, values: dict[str, Any]) -> dict[str, Any]:
        """Changes some values of a row to what their columns hold, where they are; returns them."""
        for name, _ in self._enums:
            if isinstance(values.get(name), Enum):
                values[name] = values[name].value
        for name, form in self._json:
            if values.get(name) is not None:
                values[name] = form.text(values[name])
        return values

    def stored_value(self, name: str, value: Any) -> Any:
        """Returns a value of one field as its column holds it; None stays None.

        Raises:
            ValueError: JSON of the field cannot have it.
        """
        return self.to_stored({name: value})[name]

    def readable(self, row: R) -> dict[str, Any]:
        """Returns a row as JSON can say it; bytes in base64, with - and _."""
        if not self._bytes:
            return row.model_dump(mode="json")
        told = row.model_dump(mode="json", exclude=set(self._bytes))
        for name in self._bytes:
            value = row.__dict__[name]
            told[name] = None if value is None else base64.urlsafe_b64encode(value).decode()
        return {name: told[name] for name in self.model.model_fields}

    def to_json(self, row: R) -> bytes:
        """Returns a row as JSON; as `readable`."""
        return to_json(self.readable(row)) if self._bytes else row.model_dump_json().encode()

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
        for name, choices in self._choices:
            if row.__dict__[name] is not None and row.__dict__[name] not in choices:
                row = self._convert(row)
        changes = self._changes(row.__dict__)
        return row.model_copy(update=changes) if changes else row

    def _loaded(self, values: Mapping[str, Any]) -> dict[str, Any]:
        loaded = dict(values)
        for name, enum in self._enums:
            member = enum._value2member_map_.get(loaded[name])
            # What is no member is for the model to refuse.
            loaded[name] = loaded[name] if member is None else member
        for name, form in self._json:
            if loaded[name] is not None:
                loaded[name] = form.value(loaded[name])
        return loaded

    def _convert(self, row: R) -> R:
        try:
            values = {field.name: row.__dict__[field.name] for field in self.fields}
            return self.model.model_validate(values, by_alias=False, by_name=True)
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
        for name, form in self._json:
            if values[name] is not None:
                changes[name] = self._one_form(name, form, values[name])
        return changes

    def _one_form(self, name: str, form: JsonForm, value: Any) -> Any:
        try:
            return form.value(form.text(value))
        except ValueError as error:
            raise DefinitionError(
                f"projection {self._owner}: a fold made a row that is no {self.model.__name__}:"
                f" {name}: {error}"
            ) from error

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
    try:
        found = column_type(annotation)
    except NoColumn as error:
        raise DefinitionError(
            f"projection {owner}: field {model.__name__}.{name} is a {annotation!r}: {error}"
        ) from error
    if len(name.encode()) > _COLUMN_NAME_BYTES_MAX:
        raise DefinitionError(
            f"projection {owner}: field {model.__name__}.{name} has a name of more than"
            f" {_COLUMN_NAME_BYTES_MAX} bytes"
        )
    return RowField(
        name=name,
        kind=found.kind,
        optional=found.optional,
        python=found.python,
        enum=found.enum,
        choices=found.choices,
        structure=found.structure,
    )


def _annotated(model: type[BaseModel], name: str) -> Any:
    info = model.model_fields[name]
    annotation: Any = info.annotation
    return Annotated[annotation, *info.metadata] if info.metadata else annotation


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
    wanted = field.python
    return frozenset({wanted, NoneType} if field.optional else {wanted})


def _names(fields: tuple[RowField, ...], kind: ColumnKind) -> tuple[str, ...]:
    return tuple(field.name for field in fields if field.kind is kind)


def _written_out(number: Decimal) -> bool:
    sign, _, exponent = number.as_tuple()
    return isinstance(exponent, int) and exponent <= 0 and not (sign and number.is_zero())

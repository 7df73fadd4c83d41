"""
Which kind of column holds values of an annotated type, and why some types have none.

    str int float bool Decimal date datetime UUID bytes     a column each
    Literal["a", "b"], Enum of texts or of integers         their values, as text or integers
    list[…], dict[str, …], a pydantic model                 JSON

Used by `RowShape`, for rows, and by `expressions`, for fields of events. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin
from uuid import UUID

from pydantic import BaseModel, RootModel

__all__ = ["ColumnKind", "ColumnType", "NoColumn", "column_type", "kind_of"]


class ColumnKind(Enum):
    """What a column holds."""

    TEXT = "text"
    INTEGER = "integer"
    FLOAT = "float"
    BOOLEAN = "boolean"
    DECIMAL = "decimal"
    DATE = "date"
    TIMESTAMP = "timestamp"
    UUID = "uuid"
    BYTES = "bytes"
    JSON = "json"


# Those that Spark and columns of files know of events by themselves.
_PLAIN: Final[Mapping[Any, ColumnKind]] = {
    str: ColumnKind.TEXT,
    int: ColumnKind.INTEGER,
    float: ColumnKind.FLOAT,
    bool: ColumnKind.BOOLEAN,
    Decimal: ColumnKind.DECIMAL,
    date: ColumnKind.DATE,
    datetime: ColumnKind.TIMESTAMP,
}
_KINDS: Final = {**_PLAIN, UUID: ColumnKind.UUID, bytes: ColumnKind.BYTES}
# Of the values of a `Literal` or an `Enum`.
_CHOSEN: Final[Mapping[type, ColumnKind]] = {str: ColumnKind.TEXT, int: ColumnKind.INTEGER}


class NoColumn(ValueError):
    """No column holds values of a type; the sentence says what does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnType:
    """What a column holds of an annotated type.

    Attributes:
        kind: of the column.
        optional: whether the type admits None.
        python: the type of the values in a row.
        enum: whose values are kept, if it is one.
        choices: the values of a `Literal`; empty for any.
        structure: of JSON, the names and kinds of what is in it; the same for the same.
    """

    kind: ColumnKind
    optional: bool
    python: type
    enum: type[Enum] | None = None
    choices: frozenset[Any] = frozenset()
    structure: str = ""


def kind_of(annotation: Any) -> tuple[ColumnKind | None, bool]:
    """Returns the kind of a type that is plain in every engine, and whether the type admits None."""
    plain, optional = _without_none(annotation)
    return (_PLAIN.get(plain) if _is_hashable(plain) else None), optional


def column_type(annotation: Any) -> ColumnType:
    """Returns what a column holds of an annotated type.

    Raises:
        NoColumn: no column holds it.
    """
    plain, optional = _without_none(annotation)
    if _is_hashable(plain) and plain in _KINDS:
        return ColumnType(kind=_KINDS[plain], optional=optional, python=plain)
    if get_origin(plain) is Literal:
        return _of_literal(plain, optional)
    if isinstance(plain, type) and issubclass(plain, Enum):
        kind = _kind_of_all((member.value for member in plain), repr(plain))
        return ColumnType(kind=kind, optional=optional, python=plain, enum=plain)
    structure = _structure(plain, ())
    python = get_origin(plain) or plain
    return ColumnType(kind=ColumnKind.JSON, optional=optional, python=python, structure=structure)


def _of_literal(plain: Any, optional: bool) -> ColumnType:
    values = [each for each in get_args(plain) if each is not None]
    kind = _kind_of_all(values, repr(plain))
    return ColumnType(
        kind=kind,
        optional=optional or len(values) < len(get_args(plain)),
        python=type(values[0]),
        choices=frozenset(values),
    )


def _kind_of_all(values: Any, described: str) -> ColumnKind:
    kinds = {_CHOSEN.get(type(value)) for value in values}
    if len(kinds) != 1 or None in kinds:
        raise NoColumn(f"the values of {described} must all be str, or all be int")
    kind = kinds.pop()
    assert kind is not None, "looked at above"
    return kind


def _structure(annotation: Any, within: tuple[type, ...]) -> str:
    """Returns what JSON of a type looks like.

    Raises:
        NoColumn: a part of it has no form in JSON that gives the same value back.
    """
    plain, optional = _without_none(annotation)
    mark = "?" if optional else ""
    origin, parts = get_origin(plain), get_args(plain)
    if origin is list:
        return f"[{_structure(parts[0], within)}]{mark}"
    if origin is dict:
        if _bare(parts[0]) is not str:
            raise NoColumn(f"the keys of a dict must be str, and not {parts[0]!r}")
        return f"{{{_structure(parts[1], within)}}}{mark}"
    if isinstance(plain, type) and issubclass(plain, BaseModel):
        return _structure_of(plain, within) + mark
    refused = _refusal(plain, origin)
    if refused is not None:
        raise NoColumn(refused)
    found = column_type(plain)
    if found.kind is ColumnKind.BYTES:
        raise NoColumn("JSON has no bytes; give them a column of their own, or write them as str")
    return f"{found.kind.value}{'?' if optional or found.optional else ''}"


def _structure_of(model: type[BaseModel], within: tuple[type, ...]) -> str:
    if issubclass(model, RootModel):
        raise NoColumn(f"{model.__name__} is a RootModel; use the type in it")
    if model.__private_attributes__ or model.model_config.get("extra") == "allow":
        raise NoColumn(f"{model.__name__} has private attributes or extra fields")
    if model in within:
        return model.__name__
    inner = (*within, model)
    fields = (
        f"{name}:{_structure(info.annotation, inner)}" for name, info in model.model_fields.items()
    )
    return f"({','.join(fields)})"


def _refusal(plain: Any, origin: Any) -> str | None:
    """Returns why a type has no column and what has one instead; None: it may have one."""
    if plain in (Any, object):
        return "any value is no type; name the type"
    if origin in {Union, UnionType}:
        return "of several types none is the column's; use one of them, or a model with a field for each"
    for kind, sentence in _REFUSED.items():
        if kind in (plain, origin):
            return sentence
    known = get_origin(plain) is Literal or (_is_hashable(plain) and plain in _KINDS)
    if known or (isinstance(plain, type) and issubclass(plain, Enum)):
        return None
    return (
        "a column is str, int, float, bool, Decimal, date, datetime, UUID, bytes, a Literal or an Enum of"
        " str or int, or as JSON a list, a dict or a pydantic model; or one of these or None"
    )


_REFUSED: Final[Mapping[Any, str]] = {
    set: "a set has no order, so it has no one form; use a list",
    frozenset: "a set has no order, so it has no one form; use a list",
    tuple: "JSON has lists and no tuples; use a list, or a model with a field for each part",
    list: "say of what, as in list[str]",
    dict: "say of what, as in dict[str, int]",
}


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


def _is_hashable(annotation: Any) -> bool:
    try:
        hash(annotation)
    except TypeError:
        return False
    return True

"""
Models made of values that were checked before, past pydantic's checks.

An event that was checked when it was stored, and a row made of another row's values, come by the
million: checking them again costs more than all else that is done with them. What is made here is
what the model would have made. Used where values are known to be right; uses pydantic's internals.
Pure.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict

__all__ = ["make_unchecked", "plain_fields"]

M = TypeVar("M", bound=BaseModel)

_PLAIN_CONFIG: Final = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
_PLAIN_SCHEMAS: Final = {"str": str, "int": int, "float": float, "bool": bool}
_NUMBER_BOUNDS: Final = frozenset({"ge", "gt", "le", "lt"})
_BOUNDS: Final[Mapping[Any, frozenset[str]]] = {
    int: _NUMBER_BOUNDS | {"multiple_of"},
    float: _NUMBER_BOUNDS,
    str: frozenset({"min_length", "max_length"}),
}

# What `object.__setattr__` would look up each time.
_new: Final = object.__new__
_set_values: Final = BaseModel.__dict__["__dict__"].__set__
_set_names: Final = BaseModel.__dict__["__pydantic_fields_set__"].__set__
_set_extra: Final = BaseModel.__dict__["__pydantic_extra__"].__set__
_set_private: Final = BaseModel.__dict__["__pydantic_private__"].__set__


def make_unchecked(model: type[M], values: dict[str, Any], names: set[str]) -> M:
    """Makes an instance of values as they are.

    Args:
        model: without private attributes and extra fields.
        values: one for each field, in the order of the fields; becomes the instance's own.
        names: of the fields that were given; may be that of many instances.
    """
    made = _new(model)
    _set_values(made, values)
    _set_names(made, names)
    _set_extra(made, None)
    _set_private(made, None)
    return made


def plain_fields(
    message_type: type[BaseModel],
    *,
    more: Mapping[str, tuple[Any, frozenset[str]]] = MappingProxyType({}),
    other: Any = None,
) -> dict[str, Any] | None:
    """Returns the types of a message's fields, if values of these types make the message as is.

    They are types for msgspec, which checks the bounds of numbers and texts as the model does.

    Args:
        message_type: the class.
        more: types besides those that JSON has, by the name of their schema, each with the keys that
            the schema may have.
        other: the type of fields that are of no such type and have no functions of their own; None:
            there may be none.

    None where the model has rules of its own, or fields of other types, so that values must go
    through it.
    """
    # What is stored of a personal field is ciphertext, which only the registry of messages opens.
    if not message_type.__pydantic_complete__ or getattr(message_type, "message_personal", None):
        return None
    schema: Any = message_type.__pydantic_core_schema__
    if schema["type"] == "definitions":
        schema = schema["schema"]
    if (
        message_type.model_config != _PLAIN_CONFIG
        or message_type.__private_attributes__
        or schema["type"] != "model"
        or schema.get("custom_init")
        or schema.get("post_init")
        or schema["schema"]["type"] != "model-fields"
    ):
        return None
    fields: dict[str, Any] = {}
    for name, field in schema["schema"]["fields"].items():
        found = _plain_type(field["schema"], more)
        if found is None and not _has_rules(field["schema"]):
            found = other
        if found is None or field.keys() - {"type", "schema", "metadata"}:
            return None
        fields[name] = found
    return fields


def _plain_type(schema: Any, more: Mapping[str, tuple[Any, frozenset[str]]]) -> Any:
    """Returns the type of values that a field's schema takes and leaves as they are."""
    name, rules = schema["type"], schema.keys() - {"type", "metadata"}
    if name == "default" and rules <= {"schema", "default"}:
        # Stored events have all fields: where one is missing, its default is the model's to give.
        return _plain_type(schema["schema"], more)
    if name == "nullable" and rules == {"schema"}:
        inner = _plain_type(schema["schema"], more)
        return None if inner is None else inner | None
    if name in more:
        found, allowed = more[name]
        return found if rules <= allowed else None
    if name not in _PLAIN_SCHEMAS:
        return None
    return _bounded(_PLAIN_SCHEMAS[name], {rule: schema[rule] for rule in rules})


def _bounded(plain: Any, bounds: dict[str, Any]) -> Any:
    """Returns a type with bounds; None where msgspec does not know them, or means another thing."""
    if not bounds:
        return plain
    if not bounds.keys() <= _BOUNDS.get(plain, frozenset()):
        return None
    try:
        bounded = Annotated[plain, msgspec.Meta(**bounds)]
        msgspec.json.Decoder(bounded)
    except (TypeError, ValueError):
        return None
    return bounded


def _has_rules(schema: Any) -> bool:
    """Whether a field has functions of its own."""
    if schema["type"] in {"nullable", "default"}:
        return _has_rules(schema["schema"])
    rules: bool = schema["type"].startswith("function-")
    return rules

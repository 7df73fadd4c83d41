"""
Models made of values that were checked before, past pydantic's checks.

An event that was checked when it was stored, and a row made of another row's values, come by the
million: checking them again costs more than all else that is done with them. What is made here is
what the model would have made. Used where values are known to be right; uses pydantic's internals.
Pure.
"""

from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict

__all__ = ["make_unchecked", "plain_fields"]

M = TypeVar("M", bound=BaseModel)

_PLAIN_CONFIG: Final = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
_PLAIN_SCHEMAS: Final = {"str": str, "int": int, "float": float, "bool": bool}

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


def plain_fields(message_type: type[BaseModel]) -> dict[str, Any] | None:
    """Returns the types of a message's fields, if values of these types make the message as is.

    None where the model has rules of its own, or fields of other types than JSON has, so that
    values must go through it.
    """
    if not message_type.__pydantic_complete__:
        return None
    schema: Any = message_type.__pydantic_core_schema__
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
        found = _plain_type(field["schema"])
        if found is None or field.keys() - {"type", "schema", "metadata"}:
            return None
        fields[name] = found
    return fields


def _plain_type(schema: Any) -> Any:
    """Returns the type of values that a field's schema takes and leaves as they are."""
    if schema["type"] == "default" and schema.keys() <= {"type", "schema", "default"}:
        # Stored events have all fields: where one is missing, its default is the model's to give.
        return _plain_type(schema["schema"])
    if schema["type"] == "nullable" and schema.keys() == {"type", "schema"}:
        inner = _plain_type(schema["schema"])
        return None if inner is None else inner | None
    return _PLAIN_SCHEMAS.get(schema["type"]) if schema.keys() == {"type"} else None

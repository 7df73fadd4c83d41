"""
Whether what a message holds comes back from its JSON as it was.

Decided once for each class, by its pydantic schema. A class that can never come back whole is
refused when it is defined. One whose fields are of exact types needs no look at its values; of any
other, what was encoded is decoded and compared. Used by message classes and `serialization`. Pure.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol, get_args, get_origin

import msgspec
from pydantic import BaseModel, Secret, SecretBytes, SecretStr, ValidationError

from headrace.errors import DefinitionError, SerializationError

__all__ = ["EXACT", "Form", "difference", "form_of"]

_decode: Final = msgspec.json.Decoder().decode
_SECRETS: Final = (SecretStr, SecretBytes, Secret)

# Types whose every value comes back, and those among them that JSON writes as text or as a list, so
# that a strict model would not take them back. A number with a fraction is one if it is finite.
_NATIVE: Final = frozenset({"str", "int", "bool", "none"})
_WRITTEN: Final = frozenset({"datetime", "date", "time", "timedelta", "uuid", "bytes", "decimal"})
_COLLECTIONS: Final = frozenset({"list", "set", "frozenset", "tuple"})
_KEYS: Final = frozenset({"str", "int", "uuid", "date"})
_ENCODINGS: Final = frozenset(
    {"ser_json_timedelta", "ser_json_temporal", "ser_json_bytes", "val_json_bytes"}
)
# Values that a default may have, by the type of its field: defaults are not validated.
_DEFAULTS: Final[Mapping[str, tuple[type, ...]]] = {
    "str": (str,), "int": (int,), "bool": (bool,), "none": (type(None),),
    "nullable": (type(None),), "list": (list,), "dict": (dict,), "tuple": (tuple,), "set": (set,),
}  # fmt: skip


class Form(Protocol):
    """What has to be done with a message of one class when it is encoded."""

    def check(self, message: BaseModel, data: bytes) -> None:
        """Returns if the encoded fields of a message come back as they are.

        Raises:
            SerializationError: they do not; the sentence names the field.
        """
        ...


class _Exact:
    """The form of a class whose every message comes back."""

    def check(self, message: BaseModel, data: bytes) -> None:
        """Has nothing to do."""


EXACT: Final[Form] = _Exact()


class _ExactWithin:
    """One whose messages come back as long as no field holds a subclass of its model.

    Attributes:
        models: of the fields, at any depth.
        read: makes a message of what was encoded.
    """

    def __init__(self, models: tuple[type[BaseModel], ...], read: Callable[[bytes], Any]) -> None:
        self.models = models
        self._read = read

    def check(self, message: BaseModel, data: bytes) -> None:
        """Compares, once one of the models has a subclass."""
        for model in self.models:
            if model.__subclasses__():
                _compare(message, data, self._read)
                return


class _Compared:
    """One whose values decide."""

    def __init__(self, read: Callable[[bytes], Any]) -> None:
        self._read = read

    def check(self, message: BaseModel, data: bytes) -> None:
        """Compares."""
        _compare(message, data, self._read)


def form_of(message_type: type[BaseModel], *, as_json: bool = False) -> Form:
    """Returns the form of a message class, or another model, whose fields are all known.

    Args:
        message_type: the class.
        as_json: what was encoded is read as JSON, of which strict models take dates as well.

    Raises:
        DefinitionError: no message of the class could be read again; the sentence names the field
            and says what to do.
    """
    walk = _Walk(as_json=as_json)
    read = message_type.model_validate_json if as_json else _reading(message_type)
    walk.value(message_type.__pydantic_core_schema__, "", {})
    if walk.refusals:
        raise DefinitionError(f"{message_type.__name__}: {'; '.join(walk.refusals)}")
    if not walk.exact:
        return _Compared(read)
    models = tuple(model for model in walk.models if model is not message_type)
    return _ExactWithin(models, read) if models else EXACT


def _reading(message_type: type[BaseModel]) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Any:
        return message_type.__pydantic_validator__.validate_python(_decode(data))

    return read


def _compare(message: BaseModel, data: bytes, read: Callable[[bytes], Any]) -> None:
    kind = type(message)
    try:
        again = read(data)
    except (ValidationError, msgspec.MsgspecError) as error:
        raise SerializationError(
            f"{kind.__name__} could not be read again as it is written: {_what(error)}"
        ) from None
    found = difference(message, again)
    if found:
        raise SerializationError(f"{kind.__name__}: {found}; annotate the exact type")


def _what(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    return "; ".join(
        f"field {'.'.join(map(str, each['loc']))}: {each['msg']}"
        for each in error.errors(include_url=False, include_context=False, include_input=False)
    )


class _Walk:
    """A way through the schema of a class.

    Attributes:
        exact: whether only types were met whose values come back.
        models: the models that were met.
        refusals: what can never come back, as sentences.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self._as_json = as_json
        self.exact = True
        self.models: dict[type[BaseModel], None] = {}
        self.refusals: list[str] = []
        self._definitions: dict[str, Any] = {}

    def value(self, schema: Any, path: str, config: Mapping[str, Any]) -> None:
        """Looks at the schema of one value, and at all within it."""
        kind = schema["type"]
        if "serialization" in schema:
            self.exact = False
        if kind in _NATIVE:
            return
        if kind in _WRITTEN or kind == "enum":
            self._written(schema, path, config)
        elif kind == "float":
            # A model's own setting goes before that of the type within.
            self.exact &= schema.get("allow_inf_nan", config.get("allow_inf_nan")) is False
        elif kind in _COLLECTIONS or kind == "dict":
            self._collection(schema, path, config)
        elif kind == "literal":
            self.exact &= all(type(each) in {str, int, type(None)} for each in schema["expected"])
        elif kind == "model":
            self._model(schema, path)
        else:
            self._composed(schema, path, config)

    def _composed(self, schema: Any, path: str, config: Mapping[str, Any]) -> None:
        kind = schema["type"]
        inner = list(_within(schema))
        if kind == "definition-ref":
            found = self._definitions.pop(schema["schema_ref"], None)
            inner = [] if found is None else [found]
        elif kind == "definitions":
            self._definitions |= {each["ref"]: each for each in schema["definitions"]}
            inner = [schema["schema"]]
        elif kind == "default":
            self.exact &= _is_fitting(schema)
        elif kind != "nullable":
            self.exact = False
        for each in inner:
            self.value(each, path, config)

    def _written(self, schema: Any, path: str, config: Mapping[str, Any]) -> None:
        kind = schema["type"]
        if self._is_strict(schema, config):
            self.refusals.append(
                f"field {path} is strict, and a {kind} that is stored as JSON would not be taken"
                " back; use strict=False for it"
            )
        if kind == "enum":
            values = {type(each.value) for each in schema["members"]}
            self.exact &= values in ({str}, {int})
        elif kind == "decimal" and schema.get("allow_inf_nan"):
            self.exact = False

    def _collection(self, schema: Any, path: str, config: Mapping[str, Any]) -> None:
        kind = schema["type"]
        if kind == "dict":
            self.exact &= schema.get("keys_schema", {"type": "any"})["type"] in _KEYS
            self.exact &= "values_schema" in schema
        else:
            self.exact &= "items_schema" in schema
            if kind != "list" and self._is_strict(schema, config):
                self.refusals.append(
                    f"field {path} is strict, and a {kind} that is stored as a JSON list would not"
                    " be taken back; use strict=False for it"
                )
        for inner in _within(schema):
            self.value(inner, path, config)

    def _is_strict(self, schema: Any, config: Mapping[str, Any]) -> bool:
        return not self._as_json and bool(schema.get("strict", config.get("strict")))

    def _model(self, schema: Any, path: str) -> None:
        if schema["cls"] in self.models:
            return
        self.models[schema["cls"]] = None
        config = schema.get("config", {})
        inner = schema["schema"]
        if schema.get("root_model") or inner["type"] != "model-fields":
            self.exact = False
            while inner["type"] != "model-fields" and isinstance(inner.get("schema"), dict):
                inner = inner["schema"]
        if inner["type"] != "model-fields":
            self.value(inner, path, config)
            return
        extra = config.get("extra_fields_behavior")
        if (
            schema.get("custom_init")
            or schema.get("post_init")
            or extra == "allow"
            or _ENCODINGS & config.keys()
        ):
            self.exact = False
        for name, field in inner["fields"].items():
            self._field(schema["cls"], _path(path, name), name, field, config)
        if extra == "forbid":
            self.refusals += (
                f"{_path(path, each['property_name'])} is a computed field, which would be stored"
                " and then refused as unknown; make it a plain property"
                for each in inner.get("computed_fields", ())
            )

    def _field(
        self, model: type[BaseModel], path: str, name: str, field: Any, config: Mapping[str, Any]
    ) -> None:
        if "validation_alias" in field:
            self.exact = False
            if not (config.get("populate_by_name") or config.get("validate_by_name")):
                self.refusals.append(
                    f"field {path} has an alias, and what is stored is named by fields; remove the"
                    " alias, or set validate_by_name=True in the model's config"
                )
        if field.get("serialization_exclude"):
            self.refusals.append(
                f"field {path} is excluded and would not be stored; remove exclude=True, or the"
                " field"
            )
        if "serialization_exclude_if" in field:
            self.exact = False
        annotation = model.model_fields[name].annotation if name in model.model_fields else None
        if any(issubclass(each, _SECRETS) for each in _classes(annotation)):
            self.refusals.append(
                f"field {path} is a secret, of which only asterisks would be stored; keep the"
                " secret elsewhere and store its name"
            )
        self.value(field["schema"], path, config)


def _path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _classes(annotation: Any) -> Iterator[type]:
    """Returns the classes that an annotation is made of."""
    origin = get_origin(annotation)
    for each in (annotation, origin):
        if isinstance(each, type):
            yield each
    for inner in get_args(annotation):
        yield from _classes(inner)


def _within(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Returns the schemas that one is made of."""
    for key, part in schema.items():
        if key in {"metadata", "serialization", "default"}:
            continue
        parts = part.values() if isinstance(part, dict) and "type" not in part else (part,)
        for each in parts:
            for one in each if isinstance(each, list) else (each,):
                found = one[0] if isinstance(one, tuple) and one else one  # a choice with its label
                if isinstance(found, dict) and "type" in found:
                    yield found


def _is_fitting(schema: Any) -> bool:
    """Whether the default of a field is a value that its type would have made."""
    inner = schema["schema"]
    if "default_factory" in schema:
        factory = schema["default_factory"]
        return factory in _DEFAULTS.get(inner["type"], ())
    value = schema.get("default")
    if inner["type"] == "nullable" and value is not None:
        inner = inner["schema"]
    if inner["type"] == "enum":
        return isinstance(value, inner["cls"])
    # Of a collection only an empty one says nothing about its values.
    return type(value) in _DEFAULTS.get(inner["type"], ()) and (
        not value or inner["type"] in _NATIVE
    )


def difference(value: Any, again: Any, path: str = "") -> str:
    """Returns a sentence about the first difference, without what the values are; or nothing.

    `==` does not tell a date from its text in a field that takes either, an event from one of its base
    class, nor 1 from True.

    Args:
        value: what there was.
        again: what came back.
        path: of both, in the message that holds them; empty: it is the message.
    """
    if type(value) is not type(again):
        return (
            f"field {path} holds a value of {type(value).__name__}, which comes back as one of"
            f" {type(again).__name__}"
        )
    if isinstance(value, BaseModel):
        return _of_models(value, again, path)
    if isinstance(value, Mapping):
        return _of_mappings(value, again, path)
    if isinstance(value, list | tuple):
        if len(value) != len(again):
            return f"field {path} holds {len(value)} values, of which {len(again)} come back"
        return _first(
            difference(one, other, f"{path}.{place}")
            for place, (one, other) in enumerate(zip(value, again, strict=True))
        )
    if value == again or (value != value and again != again):
        return ""
    if "__eq__" not in _defined(value) and hasattr(value, "__dict__"):
        return _of_mappings(vars(value), vars(again), path)
    return f"field {path} holds a {type(value).__name__} that does not come back as it was"


def _defined(value: Any) -> set[str]:
    """Returns the names that a value's own class and its bases define, other than `object`."""
    return {name for base in type(value).__mro__[:-1] for name in vars(base)}


def _of_models(value: BaseModel, again: BaseModel, path: str) -> str:
    held = {**vars(value), **(value.__pydantic_extra__ or {})}
    back = {**vars(again), **(again.__pydantic_extra__ or {})}
    return _of_mappings(held, back, path)


def _of_mappings(value: Mapping[Any, Any], again: Mapping[Any, Any], path: str) -> str:
    if value.keys() != again.keys():
        if path:
            return f"field {path} holds keys that do not come back as they are"
        return f"fields {', '.join(sorted(value.keys() ^ again.keys()))} do not come back"
    return _first(
        difference(one, again[key], f"{path}.{key}" if path else str(key))
        for key, one in value.items()
    )


def _first(sentences: Any) -> str:
    return next(filter(None, sentences), "")

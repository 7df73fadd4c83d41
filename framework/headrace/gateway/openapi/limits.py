"""
The schemas of commands and rows, with the limits of what ids, numbers and text may be.

Used by the document. Pure.
"""

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, models_json_schema
from pydantic_core import core_schema

from headrace.domain.identity import ID_CHARACTERS_MAX
from headrace.domain.message import Command
from headrace.errors import DefinitionError
from headrace.gateway.openapi.parts import STORABLE, Json
from headrace.gateway.pages import INTEGER_MAX

__all__ = ["bound_ids", "bound_values", "schemas_of"]


class _Schemas(GenerateJsonSchema):
    """As pydantic makes them; but bytes of rows are in base64, as the answers have them."""

    def bytes_schema(self, schema: core_schema.BytesSchema) -> Json:
        """Returns the schema of bytes."""
        found = super().bytes_schema(schema)
        return found | {"format": "base64url"} if self.mode == "serialization" else found

    def encode_default(self, dft: Any) -> Any:
        """Returns a default value as it is answered."""
        if isinstance(dft, bytes) and self.mode == "serialization":
            return base64.urlsafe_b64encode(dft).decode()
        return super().encode_default(dft)


def schemas_of(
    commands: Iterable[type[BaseModel]], rows: Iterable[type[BaseModel]]
) -> tuple[Mapping[tuple[type[BaseModel], JsonSchemaMode], Json], Json]:
    """Returns a reference to the schema of each model, and the schemas by name.

    Raises:
        DefinitionError: a model has a field that JSON Schema cannot describe.
    """
    wanted: list[tuple[type[BaseModel], JsonSchemaMode]] = []
    wanted += [(one, "validation") for one in commands]
    wanted += [(one, "serialization") for one in dict.fromkeys(rows)]
    try:
        references, schema = models_json_schema(
            wanted, ref_template="#/components/schemas/{model}", schema_generator=_Schemas
        )
    except PydanticInvalidForJsonSchema as error:
        raise DefinitionError(f"no OpenAPI document can be made: {error}") from error
    return references, schema.get("$defs", {})  # type: ignore[return-value]  # keys are what we passed


def bound_ids(
    commands: Iterable[type[Command]],
    references: Mapping[tuple[type[BaseModel], JsonSchemaMode], Json],
    schemas: Json,
) -> None:
    """Says of each command's id what every id must be."""
    for one in commands:
        name = _name_in(references, one)
        field = schemas[name]["properties"][one.aggregate_id_field]
        if field.get("type") == "string" and "format" not in field:
            field.setdefault("minLength", 1)
            field.setdefault("maxLength", ID_CHARACTERS_MAX)


def _name_in(
    references: Mapping[tuple[type[BaseModel], JsonSchemaMode], Json], command: type[BaseModel]
) -> str:
    name: str = references[command, "validation"]["$ref"].rpartition("/")[2]
    return name


def bound_values(waiting: list[Any], schemas: Json) -> None:
    """Says of the values in models what every table can hold: 64 bits, and text without NUL."""
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting += one
        elif isinstance(one, dict) and id(one) not in seen:
            seen.add(id(one))
            if "$ref" in one:
                waiting.append(schemas[one["$ref"].rpartition("/")[2]])
            waiting += one.values()
            if one.get("type") == "integer":
                one.setdefault("minimum", -INTEGER_MAX)
                one.setdefault("maximum", INTEGER_MAX)
            elif one.get("type") == "string" and not one.keys() & {"enum", "const", "format"}:
                one.setdefault("pattern", STORABLE["pattern"])

"""
The OpenAPI 3.1 document of an application, made from the pydantic models of its commands and rows.

Served at `/openapi.json`, for tools that generate clients. Pure.
"""

import base64
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, models_json_schema
from pydantic_core import core_schema

from headrace.domain.identity import ID_CHARACTERS_MAX
from headrace.domain.message import Command
from headrace.errors import DefinitionError
from headrace.gateway.catalogue import Catalogue
from headrace.gateway.pages import CONTROLS, INTEGER_MAX, TEXT_CHARACTERS_MAX
from headrace.gateway.problems import MEDIA_TYPE, TYPE_PREFIX
from headrace.gateway.settings import GatewaySettings
from headrace.gateway.sse.stream import EVENT_STREAM
from headrace.projections.definition.key_form import KeyForm
from headrace.projections.definition.projection import Projection
from headrace.projections.definition.shape import ColumnKind, RowField

__all__ = ["document"]

Json = dict[str, Any]

# Text that every database stores.
_STORABLE: Final = {"type": "string", "pattern": r"^[^\u0000]*$"}

_EXAMPLES: Final = {"string": "text", "integer": 1, "number": 1.0, "boolean": True, "null": None}
_PROBLEMS: Final = {
    "400": ("malformed", "The body, the Idempotency-Key or the framing is malformed; says where."),
    "404": ("no-row", "There is no such thing; close names are listed for a command."),
    "408": ("slow-body", "The body did not arrive in time."),
    "409": ("rejected", "A business rule said no; `error` is its code."),
    "413": ("too-large", "The body is larger than `body_bytes_max`."),
    "415": ("not-json", "The body is not application/json."),
    "421": ("misdirected", "The `Host` is none of the gateway's; the setting `hosts` names more."),
    "422": ("invalid", "Values do not fit; `errors` lists them by field."),
    "500": ("defect", "A defect; the service's log has it."),
    "503": ("unavailable", "Something is away; the same request later is safe."),
    "504": ("timeout", "No answer in time; the same Idempotency-Key is safe."),
}


def document(
    *,
    title: str,
    catalogue: Catalogue,
    projections: Mapping[str, Projection[Any]],
    settings: GatewaySettings,
) -> Json:
    """Returns the document.

    Raises:
        DefinitionError: a model has a field that JSON Schema cannot describe.
    """
    commands = [one for versions in catalogue.names.values() for one in versions.values()]
    references, schemas = _schemas(commands, [p.row for p in projections.values()])
    _bound_ids(commands, references, schemas)
    _bound_values([schemas[_name_in(references, one)] for one in commands], schemas)
    paths: Json = {}
    for name, versions in catalogue.names.items():
        bodies = [references[one, "validation"] for one in versions.values()]
        paths[f"/commands/{name}"] = {
            "post": _command(name, versions, bodies[0] if len(bodies) == 1 else {"anyOf": bodies})
        }
    for name, projection in projections.items():
        row = references[projection.row, "serialization"]
        paths[f"/projections/{name}"] = {"get": _many(projection, row, settings)}
        paths[f"/projections/{name}/{{key}}"] = {"get": _one(projection, row)}
    paths["/results"] = {"get": _RESULT}
    paths |= _OPERATIONS
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": "1"},
        "paths": paths,
        "components": {
            "schemas": schemas | _SCHEMAS,
            "parameters": _parameters(settings),
            "responses": {f"problem-{status}": _problem(status) for status in _PROBLEMS},
        },
    }


def _schemas(
    commands: Iterable[type[BaseModel]], rows: Iterable[type[BaseModel]]
) -> tuple[Mapping[tuple[type[BaseModel], JsonSchemaMode], Json], Json]:
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


def _bound_ids(
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


def _bound_values(waiting: list[Any], schemas: Json) -> None:
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
                one.setdefault("pattern", _STORABLE["pattern"])


def _command(name: str, versions: Mapping[int, type[Command]], body: Json) -> Json:
    newest = max(versions)
    content: Json = {"schema": body}
    example = _example(versions[newest])
    if example is not None:
        content["example"] = example
    summary = (versions[newest].__doc__ or "").strip().partition("\n")[0]
    return {
        "operationId": f"command.{name}",
        "tags": ["commands"],
        "summary": summary or name,
        "parameters": [
            {
                "name": "version",
                "in": "query",
                "description": "The message's version; the highest by default.",
                "schema": {"type": "integer", "enum": list(versions), "default": newest},
            },
            _reference("parameters", "wait_ms"),
            _reference("parameters", "Idempotency-Key"),
            _reference("parameters", "Prefer"),
        ],
        "requestBody": {"required": True, "content": {"application/json": content}},
        "responses": {
            "200": _success("Handled.", "Headrace.CommandResult"),
            "202": _success("Durable in the queue (`respond-async`).", "Headrace.Accepted")
            | {"headers": {"Location": {"description": "Of the result.", "schema": _TEXT}}},
            **_refusals(
                "400", "404", "408", "409", "413", "415", "421", "422", "500", "503", "504"
            ),
        },
    }


def _one(projection: Projection[Any], row: Json) -> Json:
    return {
        "operationId": f"projection.{projection.name}.one",
        "tags": ["projections"],
        "summary": f"The row of a {projection.key}",
        "parameters": [
            {
                "name": "key",
                "in": "path",
                "required": True,
                "description": _key_said(projection),
                "schema": _key_schema(projection.key_form),
            },
            *(_reference("parameters", name) for name in ("seen", "wait_ms", *_CONDITIONAL)),
        ],
        "responses": _followed("The row.", row),
    }


def _key_said(projection: Projection[Any]) -> str:
    if len(projection.key_form.names) == 1:
        return f"The {projection.key}, percent-encoded."
    return (
        f"The {projection.key}, joined by commas and percent-encoded; within a part write %2C for a comma"
        " and %25 for a %, before that."
    )


def _key_schema(form: KeyForm) -> Json:
    if form.kinds == (ColumnKind.INTEGER,):
        return {"type": "integer"}
    return {"type": "string", **({"format": "uuid"} if form.kinds == (ColumnKind.UUID,) else {})}


def _many(projection: Projection[Any], row: Json, settings: GatewaySettings) -> Json:
    page = {
        "type": "object",
        "required": ["rows", "after"],
        "properties": {
            "rows": {"type": "array", "items": row, "maxItems": settings.page_rows_max},
            "after": {
                "type": ["string", "null"],
                "description": "Send it as `after` for the next page; null: this is the last.",
            },
        },
    }
    filters = [one for field in projection.shape.fields for one in _filters(projection, field)]
    return {
        "operationId": f"projection.{projection.name}.many",
        "tags": ["projections"],
        "summary": f"Rows in the order of their {projection.key}, or of a field",
        "parameters": [
            *filters,
            _sort(projection),
            *(
                _reference("parameters", name)
                for name in ("limit", "after", "seen", "wait_ms", *_CONDITIONAL)
            ),
        ],
        "responses": _followed("A page.", page),
    }


def _followed(description: str, schema: Json) -> Json:
    """The responses of what can be asked for once, again if it has changed, or at each change."""
    tag = {"description": "Of these bytes.", "schema": _TEXT}
    content = {"application/json": {"schema": schema}, EVENT_STREAM: {"schema": _TEXT}}
    return {
        "200": {"description": description, "headers": {"ETag": tag}, "content": content},
        "304": {"description": "Unchanged since the `If-None-Match`.", "headers": {"ETag": tag}},
        **_refusals("400", "404", "421", "422", "500", "503", "504"),
    }


def _filters(projection: Projection[Any], row_field: RowField) -> Iterator[Json]:
    """Yields the conditions that a query may have of a field."""
    field = row_field.name
    schema = _value_schema(row_field, projection.row.model_fields[field].annotation)
    if row_field.kind is ColumnKind.JSON:
        said = "Only rows with {} value, written as JSON."
        for name, which in ((field, "this"), (f"{field}.ne", "another")):
            text = said.format(which)
            yield {"name": name, "in": "query", "description": text, "schema": schema}
        return
    described = {
        field: "Only rows with this value.",
        f"{field}.ne": "Only rows with another value.",
        f"{field}.in": "Only rows with one of these values, separated by commas.",
    }
    ordered = {
        f"{field}.ge": "Only rows with this value or a greater one.",
        f"{field}.gt": "Only rows with a greater value.",
        f"{field}.le": "Only rows with this value or a smaller one.",
        f"{field}.lt": "Only rows with a smaller value.",
    }
    if schema.get("type") != "boolean":
        described |= ordered
    _bound_values([schema], {})
    if schema == _STORABLE:
        schema = schema | {"maxLength": TEXT_CHARACTERS_MAX}
    listed = {"type": "array", "items": schema, "minItems": 1}
    for name, text in described.items():
        if name in CONTROLS:
            continue
        one = {"name": name, "in": "query", "description": text}
        if name.endswith(".in"):
            yield one | {"schema": listed, "style": "form", "explode": False}
        else:
            yield one | {"schema": schema}


def _value_schema(field: RowField, annotation: Any) -> Json:
    if field.kind is ColumnKind.JSON:
        return {"type": "string", "contentMediaType": "application/json"}
    if field.kind is ColumnKind.BYTES:
        return {"type": "string", "format": "base64url"}
    # An optional enum would be a reference to a place that this document does not have.
    return TypeAdapter(field.enum or annotation).json_schema()


def _sort(projection: Projection[Any]) -> Json:
    names = [each.name for each in projection.shape.fields if each.kind is not ColumnKind.JSON]
    fields = [f"{sign}{name}" for name in names for sign in ("", "-")]
    # No word orders by a key of several fields: leave it out.
    by_key = {"default": projection.key} if len(projection.key_form.names) == 1 else {}
    return {
        "name": "sort",
        "in": "query",
        "description": "A field to order by, with a - in front for the greatest first. Rows without a"
        f" value come last; rows with equal ones by their {projection.key}.",
        "schema": {"type": "string", "enum": fields} | by_key,
    }


def _example(command_type: type[Command]) -> Json | None:
    """Returns a body that the command takes, if simple values of its fields' types make one."""
    schema = command_type.model_json_schema()
    properties = schema.get("properties", {})
    body = {}
    for name in schema.get("required", []):
        if properties[name].get("type") not in _EXAMPLES:
            return None
        body[name] = _EXAMPLES[properties[name]["type"]]
    try:
        command_type.model_validate(body)
    except ValidationError:
        return None
    return body


def _parameters(settings: GatewaySettings) -> Json:
    wait = {"type": "integer", "minimum": 1, "maximum": settings.wait_ms_max}
    key = {
        "type": "string",
        "minLength": 1,
        "maxLength": ID_CHARACTERS_MAX,
        "pattern": r"^[!-~]([ -~]*[!-~])?$",
    }
    rows = {"type": "integer", "minimum": 1, "maximum": settings.page_rows_max}
    described = (
        ("wait_ms", "query", "How long to wait.", wait | {"default": settings.wait_ms}),
        ("limit", "query", "Rows of the page.", rows | {"default": settings.page_rows}),
        ("after", "query", "Only rows with greater keys.", _STORABLE),
        (
            "seen",
            "query",
            "AGGREGATE_ID@VERSION of a command's result: wait until it can be seen.",
            _SEEN,
        ),
        ("If-None-Match", "header", "The `ETag` of an answer that you have.", _TEXT),
        ("Last-Event-ID", "header", "The id of the last event that you have.", _TEXT),
        (
            "Idempotency-Key",
            "header",
            "The command's id: the same again has no second effect and gets the same answer.",
            key,
        ),
        (
            "Prefer",
            "header",
            "`wait=SECONDS`, or `respond-async` (RFC 7240).",
            {"type": "string", "examples": ["respond-async", "wait=5"]},
        ),
    )
    return {
        name: {"name": name, "in": place, "description": text, "schema": schema}
        for name, place, text, schema in described
    }


def _reference(kind: str, name: str) -> Json:
    return {"$ref": f"#/components/{kind}/{name}"}


def _success(description: str, schema: str) -> Json:
    content = {"application/json": {"schema": _reference("schemas", schema)}}
    return {"description": description, "content": content}


def _refusals(*statuses: str) -> Json:
    return {status: _reference("responses", f"problem-{status}") for status in statuses}


def _problem(status: str) -> Json:
    kind, description = _PROBLEMS[status]
    example = {
        "type": f"{TYPE_PREFIX}{kind}",
        "title": kind.replace("-", " ").capitalize(),
        "status": int(status),
        "detail": description,
    }
    if status == "422":
        example["errors"] = [{"field": "amount", "sentence": "Field required"}]
    if status == "409":
        example |= {"error": "InsufficientFunds", "command_id": "order-1", "aggregate_id": "ada"}
    content = {"schema": _reference("schemas", "Headrace.Problem"), "example": example}
    response: Json = {"description": description, "content": {MEDIA_TYPE: content}}
    if status == "503":
        response["headers"] = {
            "Retry-After": {"description": "In seconds.", "schema": {"type": "integer"}}
        }
    return response


_SEEN: Final = {
    "type": "string",
    "pattern": rf"^[^\u0000]{{1,{ID_CHARACTERS_MAX}}}@[1-9][0-9]{{0,17}}$",
    "examples": ["ada@3"],
}
_CONDITIONAL: Final = ("If-None-Match", "Last-Event-ID")
_TEXT: Final = {"type": "string"}
_SCHEMAS: Final[Json] = {
    "Headrace.CommandResult": {
        "type": "object",
        "required": ["status", "aggregate_id", "command_id"],
        "properties": {
            "status": {"enum": ["executed", "unchanged"]},
            "aggregate_id": _TEXT,
            "command_id": _TEXT,
            "version": {"type": ["integer", "null"]},
            "value": {"description": "What the handler answered."},
            "error": _TEXT,
            "sentence": _TEXT,
        },
        "examples": [
            {
                "status": "executed",
                "aggregate_id": "ada",
                "command_id": "order-1",
                "version": 3,
                "value": {"balance": 5},
                "error": "",
                "sentence": "",
            }
        ],
    },
    "Headrace.Accepted": {
        "type": "object",
        "required": ["status", "aggregate_id", "command_id"],
        "properties": {
            "status": {"const": "accepted"},
            "aggregate_id": _TEXT,
            "command_id": _TEXT,
        },
    },
    "Headrace.Problem": {
        "type": "object",
        "description": "RFC 9457.",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": {"type": "string", "format": "uri"},
            "title": _TEXT,
            "status": {"type": "integer"},
            "detail": _TEXT,
            "error": _TEXT,
            "command_id": _TEXT,
            "aggregate_id": _TEXT,
            "close_matches": {"type": "array", "items": _TEXT},
            "errors": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["field", "sentence"],
                    "properties": {"field": _TEXT, "sentence": _TEXT},
                },
            },
        },
        "additionalProperties": True,
    },
}


def _operation(name: str, summary: str, media_type: str, *refusals: str) -> Json:
    return {
        "get": {
            "operationId": name,
            "tags": ["operations"],
            "summary": summary,
            "responses": {
                "200": {"description": "Yes.", "content": {media_type: {"schema": {}}}},
                **_refusals(*refusals, "400", "421"),
            },
        }
    }


_ID: Final = _STORABLE | {"minLength": 1, "maxLength": ID_CHARACTERS_MAX}
_RESULT: Final[Json] = {
    "operationId": "result",
    "tags": ["commands"],
    "summary": "The result of a command that was sent before",
    "parameters": [
        *(
            {"name": name, "in": "query", "required": True, "schema": _ID}
            for name in ("aggregate_id", "command_id")
        ),
        _reference("parameters", "wait_ms"),
    ],
    "responses": {
        "200": {
            "description": "It was handled. As an event stream: one event `result` or `problem`.",
            "content": {
                "application/json": {"schema": _reference("schemas", "Headrace.CommandResult")},
                EVENT_STREAM: {"schema": _TEXT},
            },
        },
        **_refusals("400", "404", "409", "421", "422", "500", "503"),
    },
}


_OPERATIONS: Final[Json] = {
    "/health": _operation("health", "Whether the process is alive", "application/json"),
    "/ready": _operation("ready", "Whether every part is there", "application/json", "503"),
    "/openapi.json": _operation("openapi", "This document", "application/json"),
    "/docs": _operation("docs", "This document as a page", "text/html"),
}

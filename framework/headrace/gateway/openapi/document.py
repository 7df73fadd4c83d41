"""
The OpenAPI 3.1 document of an application, made from the pydantic models of its commands and rows.

Served at `/openapi.json`, for tools that generate clients. Pure.
"""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from headrace.domain.identity import ID_CHARACTERS_MAX
from headrace.domain.message import Command
from headrace.gateway.catalogue import Catalogue
from headrace.gateway.openapi.limits import _name_in, bound_ids, bound_values, schemas_of
from headrace.gateway.openapi.parts import (
    PROBLEMS,
    SCHEMAS,
    STORABLE,
    TEXT,
    Json,
    parameters,
    problem_response,
    reference,
    refusals,
    success,
)
from headrace.gateway.openapi.projections import many_rows, one_row
from headrace.gateway.settings import GatewaySettings
from headrace.gateway.sse.stream import EVENT_STREAM
from headrace.projections.definition.projection import Projection

__all__ = ["document"]

# The scheme of tokens, and the operations that need none.
_SCHEME: Final = "token"
_WITHOUT_TOKEN: Final = frozenset({"/health", "/ready"})
_EXAMPLES: Final = {"string": "text", "integer": 1, "number": 1.0, "boolean": True, "null": None}


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
    references, schemas = schemas_of(commands, [p.row for p in projections.values()])
    bound_ids(commands, references, schemas)
    bound_values([schemas[_name_in(references, one)] for one in commands], schemas)
    paths: Json = {}
    for name, versions in catalogue.names.items():
        bodies = [references[one, "validation"] for one in versions.values()]
        paths[f"/commands/{name}"] = {
            "post": _command(name, versions, bodies[0] if len(bodies) == 1 else {"anyOf": bodies})
        }
    for name, projection in projections.items():
        row = references[projection.row, "serialization"]
        paths[f"/projections/{name}"] = {"get": many_rows(projection, row, settings)}
        paths[f"/projections/{name}/{{key}}"] = {"get": one_row(projection, row)}
    paths["/results"] = {"get": _RESULT}
    paths |= _OPERATIONS
    described: Json = {
        "openapi": "3.1.0",
        "info": {"title": title, "version": "1"},
        "paths": paths,
        "components": {
            "schemas": schemas | SCHEMAS,
            "parameters": parameters(settings),
            "responses": {f"problem-{status}": problem_response(status) for status in PROBLEMS},
        },
    }
    return _secured(described) if settings.asks_for_tokens else described


def _secured(described: Json) -> Json:
    """Returns a document in which each operation needs a token, but for those that watch a process."""
    paths: Json = {}
    for path, operations in described["paths"].items():
        paths[path] = {
            method: operation
            | {"responses": operation["responses"] | refusals("401", "403")}
            | ({"security": [{}, {_SCHEME: []}]} if path in _WITHOUT_TOKEN else {})
            for method, operation in operations.items()
        }
    scheme = {"type": "http", "scheme": "bearer", "description": "`Authorization: Bearer TOKEN`"}
    return described | {
        "paths": paths,
        "security": [{_SCHEME: []}],
        "components": described["components"] | {"securitySchemes": {_SCHEME: scheme}},
    }


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
            reference("parameters", "wait_ms"),
            reference("parameters", "Idempotency-Key"),
            reference("parameters", "Prefer"),
        ],
        "requestBody": {"required": True, "content": {"application/json": content}},
        "responses": {
            "200": success("Handled.", "Headrace.CommandResult"),
            "202": success("Durable in the queue (`respond-async`).", "Headrace.Accepted")
            | {"headers": {"Location": {"description": "Of the result.", "schema": TEXT}}},
            **refusals("400", "404", "408", "409", "413", "415", "421", "422", "500", "503", "504"),
        },
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


def _operation(name: str, summary: str, media_type: str, *statuses: str) -> Json:
    return {
        "get": {
            "operationId": name,
            "tags": ["operations"],
            "summary": summary,
            "responses": {
                "200": {"description": "Yes.", "content": {media_type: {"schema": {}}}},
                **refusals(*statuses, "400", "421"),
            },
        }
    }


_ID: Final = STORABLE | {"minLength": 1, "maxLength": ID_CHARACTERS_MAX}


_RESULT: Final[Json] = {
    "operationId": "result",
    "tags": ["commands"],
    "summary": "The result of a command that was sent before",
    "parameters": [
        *(
            {"name": name, "in": "query", "required": True, "schema": _ID}
            for name in ("aggregate_id", "command_id")
        ),
        reference("parameters", "wait_ms"),
    ],
    "responses": {
        "200": {
            "description": "It was handled. As an event stream: one event `result` or `problem`.",
            "content": {
                "application/json": {"schema": reference("schemas", "Headrace.CommandResult")},
                EVENT_STREAM: {"schema": TEXT},
            },
        },
        **refusals("400", "404", "409", "421", "422", "500", "503"),
    },
}


_OPERATIONS: Final[Json] = {
    "/health": _operation("health", "Whether the process is alive", "application/json"),
    "/ready": _operation("ready", "Whether every part is there", "application/json", "503"),
    "/openapi.json": _operation("openapi", "This document", "application/json"),
    "/docs": _operation("docs", "This document as a page", "text/html"),
}

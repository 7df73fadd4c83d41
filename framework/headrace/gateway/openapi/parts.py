"""
What several operations of the OpenAPI document have in common: parameters, answers, problems, schemas.

Used by the modules of this room. Pure.
"""

from typing import Any, Final

from headrace.domain.identity import ID_CHARACTERS_MAX
from headrace.gateway.problems import MEDIA_TYPE, TYPE_PREFIX
from headrace.gateway.settings import GatewaySettings

__all__ = [
    "CONDITIONAL",
    "PROBLEMS",
    "SCHEMAS",
    "STORABLE",
    "TEXT",
    "Json",
    "parameters",
    "problem_response",
    "reference",
    "refusals",
    "success",
]

Json = dict[str, Any]


# Text that every database stores.
STORABLE: Final = {"type": "string", "pattern": r"^[^\u0000]*$"}


PROBLEMS: Final = {
    "400": ("malformed", "The body, the Idempotency-Key or the framing is malformed; says where."),
    "401": ("unauthenticated", "There is no valid token; `WWW-Authenticate` says how to send one."),
    "403": ("not-allowed", "None of the client's roles may do that."),
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


TEXT: Final = {"type": "string"}


_SEEN: Final = {
    "type": "string",
    "pattern": rf"^[^\u0000]{{1,{ID_CHARACTERS_MAX}}}@[1-9][0-9]{{0,17}}$",
    "examples": ["ada@3"],
}


CONDITIONAL: Final = ("If-None-Match", "Last-Event-ID")


def parameters(settings: GatewaySettings) -> Json:
    """Returns the parameters that operations refer to, by name."""
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
        ("after", "query", "Only rows with greater keys.", STORABLE),
        (
            "seen",
            "query",
            "AGGREGATE_ID@VERSION of a command's result: wait until it can be seen.",
            _SEEN,
        ),
        ("If-None-Match", "header", "The `ETag` of an answer that you have.", TEXT),
        ("Last-Event-ID", "header", "The id of the last event that you have.", TEXT),
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


def reference(kind: str, name: str) -> Json:
    """Returns a reference to a part of the document."""
    return {"$ref": f"#/components/{kind}/{name}"}


def success(description: str, schema: str) -> Json:
    """Returns an answer in JSON of a schema that has a name."""
    content = {"application/json": {"schema": reference("schemas", schema)}}
    return {"description": description, "content": content}


def refusals(*statuses: str) -> Json:
    """Returns references to the problems of these statuses."""
    return {status: reference("responses", f"problem-{status}") for status in statuses}


def problem_response(status: str) -> Json:
    """Returns the answer with a problem of a status."""
    kind, description = PROBLEMS[status]
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
    content = {"schema": reference("schemas", "Headrace.Problem"), "example": example}
    response: Json = {"description": description, "content": {MEDIA_TYPE: content}}
    if status == "401":
        response["headers"] = {"WWW-Authenticate": {"description": "`Bearer`.", "schema": TEXT}}
    if status == "503":
        response["headers"] = {
            "Retry-After": {"description": "In seconds.", "schema": {"type": "integer"}}
        }
    return response


SCHEMAS: Final[Json] = {
    "Headrace.CommandResult": {
        "type": "object",
        "required": ["status", "aggregate_id", "command_id"],
        "properties": {
            "status": {"enum": ["executed", "unchanged"]},
            "aggregate_id": TEXT,
            "command_id": TEXT,
            "version": {"type": ["integer", "null"]},
            "value": {"description": "What the handler answered."},
            "error": TEXT,
            "sentence": TEXT,
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
            "aggregate_id": TEXT,
            "command_id": TEXT,
        },
    },
    "Headrace.Problem": {
        "type": "object",
        "description": "RFC 9457.",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": {"type": "string", "format": "uri"},
            "title": TEXT,
            "status": {"type": "integer"},
            "detail": TEXT,
            "error": TEXT,
            "command_id": TEXT,
            "aggregate_id": TEXT,
            "close_matches": {"type": "array", "items": TEXT},
            "errors": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["field", "sentence"],
                    "properties": {"field": TEXT, "sentence": TEXT},
                },
            },
        },
        "additionalProperties": True,
    },
}

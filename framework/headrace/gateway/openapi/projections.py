"""
The operations of projections: one row, and pages of rows with conditions and an order.

Used by the document. Pure.
"""

from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter

from headrace.gateway.openapi.limits import bound_values
from headrace.gateway.openapi.parts import CONDITIONAL, STORABLE, TEXT, Json, reference, refusals
from headrace.gateway.pages import CONTROLS, TEXT_CHARACTERS_MAX
from headrace.gateway.settings import GatewaySettings
from headrace.gateway.sse.stream import EVENT_STREAM
from headrace.projections.definition.key_form import KeyForm
from headrace.projections.definition.projection import Projection
from headrace.projections.definition.shape import ColumnKind, RowField

__all__ = ["many_rows", "one_row"]


def one_row(projection: Projection[Any], row: Json) -> Json:
    """Returns the operation that gets a row by its key."""
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
            *(reference("parameters", name) for name in ("seen", "wait_ms", *CONDITIONAL)),
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


def many_rows(projection: Projection[Any], row: Json, settings: GatewaySettings) -> Json:
    """Returns the operation that gets pages of rows."""
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
                reference("parameters", name)
                for name in ("limit", "after", "seen", "wait_ms", *CONDITIONAL)
            ),
        ],
        "responses": _followed("A page.", page),
    }


def _followed(description: str, schema: Json) -> Json:
    """The responses of what can be asked for once, again if it has changed, or at each change."""
    tag = {"description": "Of these bytes.", "schema": TEXT}
    content = {"application/json": {"schema": schema}, EVENT_STREAM: {"schema": TEXT}}
    return {
        "200": {"description": description, "headers": {"ETag": tag}, "content": content},
        "304": {"description": "Unchanged since the `If-None-Match`.", "headers": {"ETag": tag}},
        **refusals("400", "404", "421", "422", "500", "503", "504"),
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
    bound_values([schema], {})
    if schema == STORABLE:
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

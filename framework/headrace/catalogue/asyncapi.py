"""
A catalogue as an AsyncAPI 3 document: channels for topics, messages with the schemas of their fields.

Used by `headrace catalog`, for tools that read such documents. Pure.
"""

from typing import Any

from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import models_json_schema

from headrace.catalogue.topics import topics_of
from headrace.errors import DefinitionError
from headrace.registration.definition import Definition

__all__ = ["asyncapi_document"]

Json = dict[str, Any]


def asyncapi_document(definition: Definition) -> Json:
    """Returns the document.

    Raises:
        DefinitionError: a message has a field that JSON Schema cannot describe.
    """
    topics = topics_of(definition)
    types: list[Any] = list(dict.fromkeys(one for each in topics for one in each.types))
    try:
        references, schema = models_json_schema(
            [(one, "validation") for one in types], ref_template="#/components/schemas/{model}"
        )
    except PydanticInvalidForJsonSchema as error:
        raise DefinitionError(f"no AsyncAPI document can be made: {error}") from error
    channels: Json = {}
    operations: Json = {}
    for topic in topics:
        keys = [_key(one) for one in topic.types]
        channels[topic.address] = {
            "address": topic.address,
            "description": topic.carries,
            "messages": {key: {"$ref": f"#/components/messages/{key}"} for key in keys},
        }
        operations[f"{topic.action}.{topic.address}"] = {
            "action": topic.action,
            "channel": {"$ref": f"#/channels/{topic.address}"},
        }
    return {
        "asyncapi": "3.0.0",
        "info": {"title": definition.name, "version": "1"},
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": {_key(one): _message(one, references[one, "validation"]) for one in types},
            "schemas": schema.get("$defs", {}),
        },
    }


def _key(one: Any) -> str:
    return f"{one.message_name}.v{one.message_version}"


def _message(one: Any, payload: Json) -> Json:
    summary = (one.__dict__.get("__doc__") or "").strip().partition("\n")[0]
    message = {"name": one.message_name, "title": _key(one), "payload": payload}
    return message | ({"summary": summary} if summary else {})

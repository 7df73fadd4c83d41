"""The AsyncAPI document is one, by the schema of AsyncAPI 3, and its references lead somewhere."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from headrace import App
from headrace.app import load_app
from headrace.catalogue.asyncapi import asyncapi_document

# Of https://github.com/asyncapi/spec-json-schemas (Apache 2.0), without descriptions and examples.
SCHEMA = json.loads((Path(__file__).parents[3] / "golden" / "asyncapi-3.0.0.json").read_text())


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [each for one in value.values() for each in references(one)]
    return [each for one in value for each in references(one)] if isinstance(value, list) else []


def check(document: dict[str, Any]) -> None:
    jsonschema.validate(document, SCHEMA)
    for reference in references(document):
        place: Any = document
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]


@pytest.mark.parametrize(
    "path", ["samples.bank:app", "samples.conference:app", "samples.registration:app"]
)
def test_the_document_of_a_sample_is_valid(path: str) -> None:
    check(asyncapi_document(load_app(path).definition))


def test_the_document_of_an_application_with_every_part_is_valid(shop: App) -> None:
    document = asyncapi_document(shop.definition)
    check(document)
    assert document["operations"]["receive.shop.commands.slow"]["action"] == "receive"
    assert document["components"]["messages"]["Sold.v1"]["summary"] == "Pieces <left> the shop."
    assert json.dumps(document) == json.dumps(asyncapi_document(shop.definition))


def test_the_schema_refuses_a_wrong_document() -> None:
    with pytest.raises(jsonschema.ValidationError):
        check({"asyncapi": "3.0.0", "info": {"title": "x"}})

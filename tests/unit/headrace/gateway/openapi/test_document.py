"""The OpenAPI document: valid, complete, and its examples are what commands take."""

from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import validate

from headrace.domain.message import AggregateId, Command
from headrace.errors import DefinitionError
from headrace.gateway.catalogue import Catalogue
from headrace.gateway.openapi.document import document
from headrace.gateway.settings import GatewaySettings
from samples.bank import app


class Rename(Command, version=1):
    """Gives another name.

    More of it.
    """

    id: AggregateId


class RenameBoth(Command, name="Rename", version=2):
    id: AggregateId
    name: str


class Odd(Command):
    id: AggregateId
    what: type


PUBLIC = [one for one in app.command_types if not one.message_internal]


def made(*types: type[Command]) -> dict[str, Any]:
    return document(
        title="t",
        catalogue=Catalogue(types),
        projections=app.projections,
        settings=GatewaySettings(),
    )


def test_the_bank_has_a_valid_document_with_every_command_and_projection() -> None:
    found = made(*app.command_types)
    validate(found)
    public = {f"/commands/{one.message_name}" for one in PUBLIC}
    assert {path for path in found["paths"] if path.startswith("/commands/")} == public
    for name in app.projections:
        assert {f"/projections/{name}", f"/projections/{name}/{{key}}"} <= found["paths"].keys()


def test_every_example_of_a_body_is_a_command_that_fits() -> None:
    found = made(*app.command_types)
    for one in PUBLIC:
        body = found["paths"][f"/commands/{one.message_name}"]["post"]["requestBody"]
        one.model_validate(body["content"]["application/json"]["example"])


def test_several_versions_of_a_command_share_a_path() -> None:
    found = made(Rename, RenameBoth)
    validate(found)
    operation = found["paths"]["/commands/Rename"]["post"]
    assert len(operation["requestBody"]["content"]["application/json"]["schema"]["anyOf"]) == 2
    assert operation["parameters"][0]["schema"] == {"type": "integer", "enum": [1, 2], "default": 2}


def test_the_first_line_of_a_docstring_is_the_summary() -> None:
    assert made(Rename)["paths"]["/commands/Rename"]["post"]["summary"] == "Gives another name."


def test_every_problem_has_an_example_of_its_status() -> None:
    responses = made(Rename)["components"]["responses"]
    assert {"problem-409", "problem-422", "problem-503", "problem-504"} <= responses.keys()
    for name, response in responses.items():
        example = response["content"]["application/problem+json"]["example"]
        assert name == f"problem-{example['status']}"


def test_a_field_that_json_schema_cannot_describe_is_found_at_start() -> None:
    with pytest.raises(DefinitionError, match="OpenAPI"):
        made(Odd)


def test_a_commands_id_is_described_with_the_lengths_that_ids_have() -> None:
    found = made(Rename)["components"]["schemas"]["Rename"]["properties"]["id"]
    assert (found["minLength"], found["maxLength"]) == (1, 255)


def test_conditions_and_orders_of_a_projection_are_described() -> None:
    parameters = made()["paths"]["/projections/balances"]["get"]["parameters"]
    named = {one["name"]: one["schema"] for one in parameters if "name" in one}
    assert {"balance", "balance.ge", "balance.in", "closed.ne"} <= named.keys()
    assert not {"closed.ge", "closed.lt"} & named.keys()
    assert {"balance", "-balance"} <= set(named["sort"]["enum"])


def test_a_gateway_that_asks_for_tokens_says_so_in_each_operation() -> None:
    assert "security" not in made(*app.command_types)
    found = document(
        title="t",
        catalogue=Catalogue(app.command_types),
        projections=app.projections,
        settings=GatewaySettings(tokens=Path("tokens")),
    )
    validate(found)
    assert found["security"] == [{"token": []}]
    assert found["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    for path, operations in found["paths"].items():
        for operation in operations.values():
            assert {"401", "403"} <= operation["responses"].keys()
            assert ("security" in operation) == (path in {"/health", "/ready"})

"""A problem: RFC 9457's members, its own, and never what the client sent as a value."""

import json

import pytest
from pydantic import BaseModel, ValidationError

from headrace.gateway.problems import Problem, invalid, named_errors


class Card(BaseModel):
    number: int
    owner: str


def test_a_problem_has_the_members_of_the_standard_and_its_own() -> None:
    problem = Problem(
        409, "rejected", "NotEmpty", "it holds 5", headers={"X": "1"}, error="NotEmpty"
    )
    response = problem.response
    assert response.status_code == 409
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["x"] == "1"
    assert json.loads(response.body) == {
        "type": "urn:headrace:problem:rejected", "title": "NotEmpty", "status": 409,
        "detail": "it holds 5", "error": "NotEmpty",
    }  # fmt: skip


def test_wrong_fields_are_named_but_their_values_are_not_repeated() -> None:
    with pytest.raises(ValidationError) as caught:
        Card.model_validate({"number": "4111 secret"})
    errors = named_errors(caught.value)
    assert [error["field"] for error in errors] == ["number", "owner"]
    assert "secret" not in str(errors)


def test_a_list_of_errors_is_bounded() -> None:
    problem = invalid("many", [{"field": str(n), "sentence": "no"} for n in range(1_000)])
    assert len(problem.body["errors"]) == 50

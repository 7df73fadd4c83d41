"""Parts of the document that operations refer to exist under the names that they use."""

import re

import pytest

from headrace.gateway.openapi.parts import (
    PROBLEMS,
    STORABLE,
    parameters,
    problem_response,
    refusals,
)
from headrace.gateway.settings import GatewaySettings


@pytest.mark.parametrize("status", PROBLEMS)
def test_a_problem_has_an_example_of_its_own_status(status: str) -> None:
    content = problem_response(status)["content"]["application/problem+json"]
    assert content["example"]["status"] == int(status)
    assert refusals(status)[status] == {"$ref": f"#/components/responses/problem-{status}"}


def test_limits_of_waits_and_pages_are_those_of_the_settings() -> None:
    found = parameters(GatewaySettings(wait_ms=5, wait_ms_max=7, page_rows=2, page_rows_max=3))
    assert (found["wait_ms"]["schema"]["default"], found["wait_ms"]["schema"]["maximum"]) == (5, 7)
    assert (found["limit"]["schema"]["default"], found["limit"]["schema"]["maximum"]) == (2, 3)


@pytest.mark.parametrize(("key", "fits"), [("a b", True), ("a", True), (" a", False), ("ä", False), ("", False)])  # fmt: skip
def test_an_idempotency_key_is_printable_without_outer_spaces(key: str, fits: bool) -> None:
    pattern = parameters(GatewaySettings())["Idempotency-Key"]["schema"]["pattern"]
    assert (re.match(pattern, key) is not None) is fits


def test_text_that_databases_store_has_no_nul() -> None:
    assert re.match(STORABLE["pattern"], "a\nü")
    assert not re.match(STORABLE["pattern"], "a\0")

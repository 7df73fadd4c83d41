"""
The whole gateway under requests made from its own OpenAPI document, fitting and unfitting ones.

No answer is a server error, and each has a status, a media type and a body that the document describes.
"""

import asyncio
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import positive_data_acceptance

from headrace.access.principal import Principal
from headrace.access.tokens import new_token, token_line
from headrace.gateway.server import serving
from headrace.gateway.settings import GatewaySettings
from samples.bank import app

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SECONDS_MAX = 60
EXAMPLES = 15


def check_each_operation(url: str, **headers: str) -> list[str]:
    """Sends generated requests, all with these headers, to every operation; returns the operations."""
    schema = schemathesis.openapi.from_url(
        f"{url}/openapi.json", timeout=SECONDS_MAX, headers=dict(headers)
    )
    schema.config.generation.update(modes=list(schemathesis.GenerationMode))
    seen = []
    for found in schema.get_all_operations():
        operation: APIOperation = found.ok()
        seen.append(operation.label)
        check(url, operation, headers)
    return seen


def check(url: str, operation: APIOperation, headers: dict[str, str]) -> None:
    """Sends generated requests to one operation."""

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def send(case: schemathesis.Case) -> None:
        # A request may ask for a wait that is too short, and gets the documented 504.
        excluded = [not_a_server_error]
        if {"after", "sort"} <= (case.query or {}).keys():
            # Made up: a page that is sorted by a field names both in its `after`.
            excluded.append(positive_data_acceptance)
        answer = case.call_and_validate(
            base_url=url, timeout=SECONDS_MAX, excluded_checks=excluded, headers=headers
        )
        assert answer.status_code not in {500, 502}, answer.text

    send()


async def test_no_answer_is_an_error_of_the_server_or_undocumented() -> None:
    async with (
        app.run_local() as bank,
        serving(app, bank, GatewaySettings(port=0, wait_ms=200, wait_ms_max=500)) as served,
    ):
        seen = await asyncio.to_thread(check_each_operation, f"http://{served.address}")
    assert {"POST /commands/Deposit", "GET /results", "GET /projections/balances"} <= set(seen)


async def test_a_gateway_that_asks_for_tokens_answers_as_its_document_says(tmp_path: Path) -> None:
    token = new_token()
    tokens = tmp_path / "tokens"
    tokens.write_text(token_line(Principal("ann"), token))
    settings = GatewaySettings(port=0, wait_ms=200, wait_ms_max=500, tokens=tokens)
    async with app.run_local() as bank, serving(app, bank, settings) as served:
        seen = await asyncio.to_thread(
            check_each_operation, f"http://{served.address}", Authorization=f"Bearer {token}"
        )
    assert {"POST /commands/Deposit", "GET /results", "GET /projections/balances"} <= set(seen)

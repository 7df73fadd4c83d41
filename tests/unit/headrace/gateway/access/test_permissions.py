"""What a client may do: commands, rows, streams and results, by what the application declares."""

from typing import Any

import httpx
import pytest
from starlette.requests import Request
from structlog.testing import capture_logs

from headrace.access.allowances import Allowances
from headrace.bus import CommandResult
from headrace.errors import HeadraceError
from headrace.gateway.access.audit import AccessAudit
from headrace.gateway.access.permissions import Permissions
from headrace.gateway.gateway import Gateway
from headrace.gateway.problems import Problem
from headrace.gateway.settings import GatewaySettings
from samples.bank import app
from samples.bank.accounts import OpenAccount
from samples.bank.read_models import balances

ADA = {"account_id": "ada", "owner": "Ada"}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, http: Any, clients: Any) -> httpx.AsyncClient:
    """A gateway where clerks open accounts and auditors see balances and all results."""
    monkeypatch.setattr(app, "allowances", Allowances())
    app.allow("clerk", OpenAccount)
    app.allow(["auditor", "boss"], balances, results=True)
    clients.add("eve", "auditor")
    client: httpx.AsyncClient = http(GatewaySettings(tokens=clients.path))
    return client


async def test_a_command_is_executed_for_a_role_that_may_and_403_for_others(
    client: httpx.AsyncClient, clients: Any
) -> None:
    for name, command, status in (
        ("ann", "OpenAccount", 200),
        ("ann", "Deposit", 403),
        ("bob", "OpenAccount", 403),
        ("eve", "OpenAccount", 403),
    ):
        with capture_logs() as logs:
            answer = await client.post(
                f"/commands/{command}", json=ADA, headers=clients.headers(name)
            )
        assert answer.status_code == status, answer.text
        lines = [line for line in logs if line["event"] == "audit"]
        assert len(lines) == (status == 403)
    assert answer.json()["type"] == "urn:headrace:problem:not-allowed"
    assert answer.json()["detail"].startswith("eve may not send OpenAccount: none of its roles may")
    assert (lines[0]["user"], lines[0]["reason"]) == ("eve", "may not send OpenAccount")


async def test_a_refusal_comes_before_the_body_is_read(
    client: httpx.AsyncClient, clients: Any
) -> None:
    answer = await client.post("/commands/Deposit", content=b"{", headers=clients.headers("ann"))
    assert answer.status_code == 403


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("path", ["/projections/balances", "/projections/balances/ada"])
async def test_rows_and_their_streams_are_403_without_a_role(
    client: httpx.AsyncClient, clients: Any, path: str, accept: str
) -> None:
    for name in ("ann", "bob"):
        answer = await client.get(path, headers=clients.headers(name) | {"Accept": accept})
        assert (answer.status_code, answer.json()["title"]) == (403, "Not allowed")
    if accept == "application/json":
        answer = await client.get(path, headers=clients.headers("eve"))
        assert answer.status_code == (200 if path.endswith("balances") else 404)


async def test_a_projection_that_no_declaration_names_is_403(
    client: httpx.AsyncClient, clients: Any
) -> None:
    others = set(app.projections) - {"balances"}
    assert others
    for name in others:
        answer = await client.get(f"/projections/{name}", headers=clients.headers("eve"))
        assert answer.status_code == 403


async def test_a_result_is_shown_to_a_role_that_may_see_all_of_them(
    client: httpx.AsyncClient, clients: Any
) -> None:
    sent = clients.headers("ann") | {"Idempotency-Key": "k"}
    opened = await client.post("/commands/OpenAccount", json=ADA, headers=sent)
    path = "/results?aggregate_id=ada&command_id={}&wait_ms=1"
    eve = clients.headers("eve")
    assert (await client.get(path.format("ann:k"), headers=eve)).content == opened.content
    told = await client.get(path.format("ann:k"), headers=eve | {"Accept": "text/event-stream"})
    assert "event: result" in told.text
    for name, command_id, status in (("eve", "k", 404), ("bob", "ann:k", 404), ("ann", "k", 200)):
        answer = await client.get(path.format(command_id), headers=clients.headers(name))
        assert answer.status_code == status


async def test_a_refusal_of_the_service_is_403_too(
    client: httpx.AsyncClient, http: Any, bank: Any, clients: Any, failing_bus: Any
) -> None:
    result = CommandResult(
        status="rejected",
        aggregate_id="ada",
        command_id="ann:k",
        error="CommandNotAllowed",
        sentence="ann may not send OpenAccount",
    )
    bank.bus = failing_bus(result=result)
    other = http(GatewaySettings(tokens=clients.path))
    answer = await other.post("/commands/OpenAccount", json=ADA, headers=clients.headers("ann"))
    assert (answer.status_code, answer.json()["error"]) == (403, "CommandNotAllowed")


async def test_a_gateway_without_tokens_does_not_serve_an_application_with_roles(
    client: httpx.AsyncClient, bank: Any
) -> None:
    with pytest.raises(HeadraceError, match=r"bank allows roles .*set http.tokens"):
        Gateway(app, bank, GatewaySettings())


def test_a_client_without_a_name_may_do_nothing_where_roles_count() -> None:
    allowances = Allowances()
    permissions = Permissions(allowances, AccessAudit())
    request = Request({"type": "http", "method": "GET", "path": "/", "headers": []})
    permissions.require_send(request, "Deposit")
    assert permissions.ids(request, "ann:k") == ("ann:k",)
    allowances.allow(["*"], commands=["Deposit"], projections=["balances"])
    with pytest.raises(Problem, match="may not send Deposit"):
        permissions.require_send(request, "Deposit")
    with pytest.raises(Problem, match="may not read balances"):
        permissions.require_read(request, "balances")

"""The door: nothing but what watches a process is reached without a valid token."""

from typing import Any

import pytest
from starlette.requests import Request
from structlog.testing import capture_logs

from headrace.gateway.access import key_set
from headrace.gateway.access.audit import AccessAudit
from headrace.gateway.access.authentication import Authentication
from headrace.gateway.access.caller import Caller, caller_of
from headrace.gateway.access.door import FrontDoor
from headrace.gateway.settings import GatewaySettings

INSIDE = (
    ("GET", "/projections/balances"),
    ("GET", "/projections/balances/ada"),
    ("GET", "/results?aggregate_id=a&command_id=c"),
    ("POST", "/commands/OpenAccount"),
    ("GET", "/openapi.json"),
    ("GET", "/docs"),
    ("GET", "/nowhere"),
    ("GET", "/health/"),
)


@pytest.mark.parametrize(("method", "path"), INSIDE)
async def test_every_path_needs_a_token(http: Any, clients: Any, method: str, path: str) -> None:
    client = http(GatewaySettings(tokens=clients.path, wait_ms=1))  # for a result that never comes
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic x"}):
        answer = await client.request(method, path, headers=headers)
        assert (answer.status_code, answer.json()["title"]) == (401, "No valid token")
        assert answer.headers["www-authenticate"].startswith('Bearer realm="bank"')
        assert answer.headers["cache-control"] == "no-store"
    answer = await client.request(method, path, headers=clients.headers("ann"))
    assert answer.status_code != 401


@pytest.mark.parametrize("path", ["/health", "/ready"])
async def test_a_watcher_learns_the_status_of_a_process_and_a_client_its_parts(
    http: Any, clients: Any, path: str
) -> None:
    client = http(GatewaySettings(tokens=clients.path))
    bare = await client.get(path)
    assert (bare.status_code, list(bare.json())) == (200, ["status"])
    whole = await client.get(path, headers=clients.headers("bob"))
    assert whole.json().keys() > bare.json().keys()
    assert (await client.get(path, headers={"Authorization": "Bearer wrong"})).status_code == 401


async def test_a_part_that_is_not_ready_is_named_to_clients_alone(http: Any, clients: Any) -> None:
    async def broken() -> None:
        raise OSError("secret")

    client = http(GatewaySettings(tokens=clients.path, ready_cache_ms=0), {"lag": broken})
    bare = await client.get("/ready")
    assert (bare.status_code, bare.headers["retry-after"], "lag" in bare.text) == (503, "1", False)
    whole = await client.get("/ready", headers=clients.headers("ann"))
    assert (whole.status_code, whole.json()["parts"]["lag"]) == (503, "OSError")


async def test_a_page_of_another_origin_may_send_a_token_and_read_a_refusal(
    http: Any, clients: Any
) -> None:
    shop = "https://shop.example"
    client = http(GatewaySettings(tokens=clients.path, origins=(shop,)))
    asking = {
        "Origin": shop,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization",
    }
    assert (await client.options("/commands/Deposit", headers=asking)).status_code == 200
    refused = await client.get("/projections/balances", headers={"Origin": shop})
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == shop
    # Nothing is served to a method that needs no token.
    assert (await client.options("/projections/balances")).status_code == 405


async def test_refusals_are_in_the_audit_and_tokens_are_not(http: Any, clients: Any) -> None:
    client = http(GatewaySettings(tokens=clients.path))
    with capture_logs() as logs:
        await client.get("/docs")
        await client.get("/docs", headers={"Authorization": "Bearer hrt_secret"})
        await client.get("/docs", headers=clients.headers("ann"))
    lines = [line for line in logs if line["event"] == "audit"]
    assert [(line["outcome"], line["reason"]) for line in lines] == [
        ("refused", "no token"),
        ("refused", "unknown token"),
    ]
    assert "secret" not in str(logs)


async def test_a_gateway_without_tokens_asks_for_none(http: Any) -> None:
    assert (await http().get("/projections/balances")).status_code == 200


async def test_a_token_whose_roles_change_is_no_longer_the_one_that_opened_a_stream(
    clients: Any,
) -> None:
    callers: list[Caller] = []

    async def inside(scope: Any, receive: Any, send: Any) -> None:
        callers.append(caller_of(Request(scope)))

    authentication = Authentication(GatewaySettings(tokens=clients.path), "bank")
    door = FrontDoor(inside, authentication, AccessAudit())
    header = (b"authorization", f"Bearer {clients.tokens['ann']}".encode())
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [header]}

    async def untouched(*_: Any) -> Any:
        raise AssertionError("the door reads no body and answers nothing")

    await door(scope, untouched, untouched)
    (ann,) = callers
    assert await ann.still_valid()
    clients.path.write_text(clients.path.read_text().replace("ann:clerk:", "ann::"))
    authentication.look()
    assert not await ann.still_valid()
    clients.path.write_text("")
    authentication.look()
    assert not await ann.still_valid()


async def test_a_signed_token_opens_the_door_and_each_bad_one_gets_the_same_answer(
    http: Any, issuer: Any, signed_settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_set, "fetch", issuer.fetch)
    client = http(signed_settings())

    async def get(token: str) -> Any:
        return await client.get("/docs", headers={"Authorization": f"Bearer {token}"})

    assert (await get(issuer.token("rs256"))).status_code == 200
    bad = [
        issuer.token("rs256", exp=1),
        issuer.token("rs256", aud="shop"),
        issuer.token("rs256", iss="https://evil.example/"),
        issuer.token("rs256", {"kid": "made-up"}),
        issuer.token("rs256")[:-9],
        "a.b.c",
        "unknown",
    ]
    answers = [await get(token) for token in bad]
    seen = {(each.status_code, each.headers["www-authenticate"], each.content) for each in answers}
    assert len(seen) == 1
    assert answers[0].status_code == 401


async def test_tokens_that_cannot_be_judged_are_503(
    http: Any, issuer: Any, signed_settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_set, "fetch", issuer.fetch)
    issuer.answer = OSError("away")
    headers = {"Authorization": f"Bearer {issuer.token('rs256')}"}
    answer = await http(signed_settings()).get("/docs", headers=headers)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")

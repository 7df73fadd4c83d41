"""What all requests have in common: routes, problems, the limit of requests at work, defects."""

import asyncio
import subprocess
import sys
from typing import Any

import httpx
import pytest
from openapi_spec_validator import validate
from sqlalchemy.exc import OperationalError

from headrace.errors import SchemaOutOfDate, SubjectKeysAway
from headrace.gateway.gateway import Gateway
from headrace.gateway.settings import GatewaySettings
from headrace.subscriptions.status import ReaderState
from headrace_mq.metrics.histogram import Histogram
from samples.bank import app


async def test_a_living_process_says_so_and_how_every_reader_is_doing(http: Any, bank: Any) -> None:
    answer = (await http().get("/health")).json()
    assert (answer["status"], answer["alarms"]) == ("alive", [])
    assert "projection balances" in bank.readers
    assert {*answer["readers"]} == {*bank.readers}
    assert {one["state"] for one in answer["readers"].values()} <= {"starting", "running"}


async def test_a_reader_that_retries_is_seen_and_its_error_stays_in_the_log(
    http: Any, bank: Any
) -> None:
    (name,) = [one for one in bank.readers if one.startswith("process manager")]
    bank.readers[name].report(ReaderState.RETRYING, "postgresql://ann:secret@host is away")
    answer = await http().get("/health")
    assert answer.json()["readers"][name]["state"] == "retrying"
    assert "secret" not in answer.text


async def test_ready_names_every_part(http: Any) -> None:
    async def broker() -> None:
        pass

    answer = await http(GatewaySettings(), {"broker": broker}).get("/ready")
    assert answer.status_code == 200
    assert answer.json()["parts"] == {"broker": "ready", "read_models": "ready"}


async def test_not_ready_is_503_and_says_which_part(http: Any) -> None:
    async def event_store() -> None:
        raise SchemaOutOfDate("the schema is behind; run: headrace db upgrade")

    answer = await http(GatewaySettings(), {"event_store": event_store}).get("/ready")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "event_store: the schema is behind" in answer.json()["detail"]
    assert answer.json()["parts"]["read_models"] == "ready"


async def test_the_document_and_the_page_are_served(http: Any) -> None:
    client = http()
    validate((await client.get("/openapi.json")).json())
    page = await client.get("/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert "POST /commands/Deposit" in page.text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("GET", "/health/", 404), ("GET", "/commands/Deposit", 405), ("DELETE", "/health", 405)],
)  # fmt: skip
async def test_a_wrong_path_or_method_is_a_problem_too(
    http: Any, method: str, path: str, status: int
) -> None:
    answer = await http().request(method, path)
    assert (answer.status_code, answer.json()["status"]) == (status, status)
    assert answer.headers["content-type"] == "application/problem+json"
    assert ("allow" in answer.headers) == (status == 405)


async def test_a_page_that_gives_its_name_the_gateways_address_gets_nothing(http: Any) -> None:
    client = http(GatewaySettings(host="gateway.internal", hosts=("API.example.com",)))
    for host, status in (
        ("evil.example:8080", 421),
        ("localhost:8080", 200),
        ("gateway.internal", 200),
        ("api.example.com", 200),
    ):
        answer = await client.get("/projections/balances", headers={"Host": host})
        assert answer.status_code == status, host
    refusal = await client.post("/commands/OpenAccount", headers={"Host": "evil.example"}, json={})
    assert (refusal.status_code, refusal.json()["title"]) == (421, "Misdirected request")
    assert "--http-hosts" in refusal.json()["detail"]


async def test_pages_of_named_origins_may_call_the_gateway_and_no_others(http: Any) -> None:
    shop, evil = "https://shop.example", "https://evil.example"
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "prefer"}
    for settings, origin, allowed in (
        (GatewaySettings(origins=(shop,)), shop, shop),
        (GatewaySettings(origins=(shop,)), evil, None),
        (GatewaySettings(origins=("*",)), evil, "*"),
        (GatewaySettings(), shop, None),
    ):
        client = http(settings)
        answer = await client.get("/projections/balances", headers={"Origin": origin})
        assert answer.headers.get("access-control-allow-origin") == allowed
        assert "access-control-allow-credentials" not in answer.headers
        asking = {"Origin": origin, **asked}
        answer = await client.options("/commands/Deposit", headers=asking)
        assert (answer.status_code == 200) == (allowed is not None)


async def test_one_request_too_many_is_503_but_the_process_is_alive(http: Any, bank: Any) -> None:
    begun, let_go = asyncio.Event(), asyncio.Event()

    class SlowBus:
        async def execute(self, *_: Any, **__: Any) -> Any:
            begun.set()
            await let_go.wait()
            raise ZeroDivisionError("secret")

    bank.bus = SlowBus()
    client = http(GatewaySettings(requests_max=1))
    body = {"account_id": "ada", "owner": "x"}
    first = asyncio.create_task(client.post("/commands/OpenAccount", json=body))
    await begun.wait()
    crowded = await client.get("/projections/balances")
    assert (crowded.status_code, crowded.headers["retry-after"]) == (503, "1")
    assert (await client.get("/health")).status_code == 200
    let_go.set()
    assert (await first).status_code == 500
    assert (await client.get("/projections/balances")).status_code == 200


async def test_a_defect_is_500_without_its_story(http: Any, bank: Any, failing_bus: Any) -> None:
    bank.bus = failing_bus(error=ZeroDivisionError("secret"))
    answer = await http().post("/commands/OpenAccount", json={"account_id": "a", "owner": "x"})
    assert (answer.status_code, answer.json()["title"]) == (500, "Internal error")
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text


@pytest.mark.parametrize(
    "error",
    [OSError("gone"), OperationalError("x", None, Exception("gone")), SubjectKeysAway("gone")],
)
async def test_a_database_that_is_away_is_503(http: Any, bank: Any, error: Exception) -> None:
    class Away:
        def __getattr__(self, _name: str) -> Any:
            raise error

    bank.read_models = Away()
    answer = await http().get("/projections/balances")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "gone" not in answer.text


def test_an_import_without_the_extra_says_what_to_install() -> None:
    code = "import sys; sys.modules['uvicorn'] = None; import headrace.gateway"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ExtraMissing" in done.stderr
    assert "pip install 'headrace[http]'" in done.stderr


async def test_requests_are_counted_by_route_and_status(bank: Any) -> None:
    gateway = Gateway(app, bank)
    transport = httpx.ASGITransport(gateway)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for path in ("/health", "/projections/balances", "/projections/nope", "/a/b/c", "/"):
            await client.get(path)
        await client.get("/health", headers={"Host": "evil.example"})
        assert gateway.times == {}
        gateway.measure(Histogram)
        await client.get("/health")
    assert gateway.requests == {
        ("health", 200): 2, ("projections", 200): 1, ("projections", 404): 1, ("other", 404): 2,
        ("health", 421): 1,
    }  # fmt: skip
    counts = {route: each.read().total for route, each in gateway.times.items()}
    assert (counts["health"], sum(counts.values())) == (1, 1)

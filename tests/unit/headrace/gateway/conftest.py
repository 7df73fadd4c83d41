"""A bank that runs in this process, HTTP in front of it without a socket, and clients with tokens."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.access.principal import Principal
from headrace.access.tokens import new_token, token_line
from headrace.app import RunningApp
from headrace.gateway.gateway import Gateway
from headrace.gateway.openapi.document import document
from samples.bank import app

_documents: dict[tuple[str, ...], Any] = {}


@pytest.fixture(autouse=True)
def _the_bank_is_described_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the OpenAPI document of the bank once for the same settings: a gateway begins with it."""

    def describe(**named: Any) -> Any:
        if list(named["projections"].values()) != list(app.projections.values()):
            return document(**named)
        asked = (named["title"], repr(named["catalogue"].names), repr(named["settings"]))
        if asked not in _documents:
            _documents[asked] = document(**named)
        return _documents[asked]

    monkeypatch.setattr("headrace.gateway.gateway.document", describe)


@pytest.fixture
async def bank() -> AsyncIterator[RunningApp]:
    """The bank sample, with events in memory."""
    async with app.run_local() as running:
        yield running


@pytest.fixture
async def http(bank: RunningApp) -> AsyncIterator[Callable[..., httpx.AsyncClient]]:
    """Makes clients of a gateway with the given settings and checks."""
    async with AsyncExitStack() as stack:

        def connect(*arguments: Any) -> httpx.AsyncClient:
            transport = httpx.ASGITransport(Gateway(app, bank, *arguments))
            client = httpx.AsyncClient(transport=transport, base_url="http://localhost")
            stack.push_async_callback(client.aclose)
            return client

        yield connect


@pytest.fixture
def client(http: Callable[..., httpx.AsyncClient]) -> httpx.AsyncClient:
    """One client for many requests: a gateway costs more than they do."""
    return http()


@pytest.fixture
def held(bank: Any) -> tuple[asyncio.Event, asyncio.Event]:
    """Says when a command is at work, which is not done before the second event is set."""
    begun, let_go = asyncio.Event(), asyncio.Event()
    execute = bank.bus.execute

    async def slow(*arguments: Any, **named: Any) -> Any:
        begun.set()
        await let_go.wait()
        return await execute(*arguments, **named)

    bank.bus.execute = slow
    return begun, let_go


class FailingBus:
    """A bus whose every call ends with one error, or with one result."""

    def __init__(self, *, error: Exception | None = None, result: Any = None) -> None:
        self._error = error
        self._result = result
        self.waits: list[int] = []

    async def execute(
        self, command: Any, *, command_id: str, timeout_ms: int, principal: Any
    ) -> Any:
        self.waits.append(timeout_ms)
        if self._error is not None:
            raise self._error
        return self._result

    async def send(self, command: Any, *, command_id: str, principal: Any) -> str:
        if self._error is not None:
            raise self._error
        return command_id


@pytest.fixture
def failing_bus() -> type[FailingBus]:
    """The class of buses that fail on purpose."""
    return FailingBus


class Clients:
    """A file of tokens, and the tokens of the clients in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tokens: dict[str, str] = {}
        self._lines: dict[str, str] = {}

    def add(self, name: str, *roles: str) -> dict[str, str]:
        """Gives a client a token; returns the headers of its requests."""
        self.tokens[name] = new_token()
        principal = Principal(name, frozenset(roles))
        self._lines[name] = token_line(principal, self.tokens[name])
        self._write()
        return self.headers(name)

    def remove(self, name: str) -> None:
        """Takes a client's token away."""
        del self._lines[name]
        self._write()

    def headers(self, name: str) -> dict[str, str]:
        """The headers of a client's requests."""
        return {"Authorization": f"Bearer {self.tokens[name]}"}

    def _write(self) -> None:
        self.path.write_text("".join(f"{line}\n" for line in self._lines.values()))


@pytest.fixture
def new_clients(tmp_path: Path) -> Callable[[], Clients]:
    """Makes a file of tokens without clients."""
    return lambda: Clients(tmp_path / "tokens")


@pytest.fixture
def clients(new_clients: Callable[[], Clients]) -> Clients:
    """A file of tokens: of ann, a clerk, and of bob."""
    clients = new_clients()
    clients.add("ann", "clerk")
    clients.add("bob")
    return clients

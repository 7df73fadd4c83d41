"""A broker in this process, a console of it without a socket, and a browser with its cookie and token."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from headrace.console.console import Console
from headrace.console.sessions import Sessions
from headrace.console.settings import ConsoleSettings
from headrace_mq import AdminClient
from headrace_mq._net.address import BrokerAddress
from headrace_mq.broker.server import Broker
from headrace_mq.broker.stopped_broker import add_user
from headrace_mq.settings import BrokerSettings, StoreSettings
from headrace_mq.testing.embedded import broker as embedded


class Browser:
    """A client that keeps its cookie, and sends the token of its pages."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def page(self, path: str, **query: Any) -> str:
        """The text of a page that is there."""
        answer = await self.client.get(path, params=query or None)
        assert answer.status_code == 200, answer.text
        return answer.text

    async def token(self) -> str:
        """The token of this browser."""
        found: str = (await self.client.get("/api/token")).json()["token"]
        return found

    async def send(self, verb: str, **fields: Any) -> httpx.Response:
        """Sends a form with its token, and goes where the answer leads."""
        token = await self.token()
        return await self.client.post(
            f"/do/{verb.replace(' ', '/')}", data={"token": token, **fields}, follow_redirects=True
        )

    async def sign_in(self, user: str, password: str) -> httpx.Response:
        """Fills in the form of the door."""
        page = (await self.client.get("/sign-in")).text
        found = re.search(r'name="token" value="([0-9a-f]+)"', page)
        assert found
        fields = {"token": found[1], "user": user, "password": password}
        return await self.client.post("/sign-in", data=fields)


@pytest.fixture
async def broker() -> AsyncIterator[str]:
    """The address of a broker without a login."""
    async with embedded() as address:
        yield address


@pytest.fixture
async def admin(broker: str) -> AsyncIterator[AdminClient]:
    async with AdminClient(broker) as admin:
        yield admin


@pytest.fixture
async def console() -> AsyncIterator[Callable[..., Any]]:
    """Makes browsers of a new console of a broker."""
    async with AsyncExitStack() as stack:

        async def make(
            address: str, more: Any = None, bundle: Any = None, **limits: Any
        ) -> Browser:
            settings = ConsoleSettings(**limits)
            sessions = Sessions(BrokerAddress.parse(address), settings)
            await stack.enter_async_context(sessions)
            made = Console(sessions, settings, more, bundle)
            stack.callback(made.stop)
            transport = httpx.ASGITransport(made)
            client = httpx.AsyncClient(transport=transport, base_url="http://localhost:9879")
            return Browser(await stack.enter_async_context(client))

        yield make


@pytest.fixture
async def browser(broker: str, console: Callable[..., Any]) -> Browser:
    """A browser at a console of the broker without a login."""
    made: Browser = await console(broker)
    return made


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[str]:
    """The address of a broker with a login: root may do everything, ann nothing."""
    for name in ("root", "ann"):
        add_user(tmp_path, name, SecretStr(f"secret of {name}"), admin=name == "root")
    store = StoreSettings(directory=tmp_path, segment_bytes=1 << 20)
    broker = Broker(BrokerSettings(store=store, port=0, login=True))
    await broker.start()
    yield broker.address
    await broker.aclose()

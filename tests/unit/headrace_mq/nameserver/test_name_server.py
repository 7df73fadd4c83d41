"""A name server over its socket: who may register and ask, and what it refuses."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import SecretStr
from structlog.testing import capture_logs

from headrace_mq._net.link import Link, LinkSettings
from headrace_mq._net.login import credentials_of
from headrace_mq.broker.metadata import users_file
from headrace_mq.broker.users.user_book import UserBook
from headrace_mq.errors import (
    InvalidArgument,
    LoginFailed,
    MessageQueueError,
    NotPermitted,
    Throttled,
    UnknownRequest,
)
from headrace_mq.nameserver.name_server import NameServer
from headrace_mq.protocol.access import SetUser
from headrace_mq.protocol.bodies import Heartbeat, Hello, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import encode_frame
from headrace_mq.protocol.names.routes import (
    LEADER,
    FindRoutes,
    Register,
    Registered,
    RoutesAnswer,
)
from headrace_mq.testing.clock import ManualClock
from headrace_mq.testing.embedded import name_server

HERE = Register("c", "g1", "a:1", LEADER, 1, ["a:1"])


@asynccontextmanager
async def linked(server: NameServer, login: str = "") -> AsyncIterator[Link]:
    address = f"tcp://{server.address}?{login}" if login else server.address
    link = Link(address, client_id="me", settings=LinkSettings((1, 5)))
    await link.start(10_000)
    try:
        yield link
    finally:
        await link.aclose()


async def register(link: Link, said: Register = HERE) -> Registered:
    return await link.ask(Registered, RequestCode.REGISTER, said, timeout_ms=10_000)


async def routes(link: Link, cluster: str = "c") -> RoutesAnswer:
    return await link.ask(RoutesAnswer, RequestCode.ROUTES, FindRoutes(cluster), timeout_ms=10_000)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0)


async def test_a_broker_is_found_until_its_connection_ends() -> None:
    async with name_server() as server, linked(server) as client:
        async with linked(server) as broker:
            assert (await register(broker)).expires_ms == 10_000
            (route,) = (await routes(client)).brokers
            assert (route.broker, route.role, route.addresses) == ("a:1", LEADER, ["a:1"])
            assert (await routes(client, "other")).brokers == []
        await until(lambda: not server.routes("", "").brokers)
        assert (await routes(client)).brokers == []
        assert server.answered == {"register": 1, "routes": 3}


async def test_a_name_server_that_was_just_started_says_that_it_is_not_ready() -> None:
    clock = ManualClock()
    async with name_server(clock=clock, not_ready_ms=2_000) as server, linked(server) as client:
        assert not (await routes(client)).ready
        clock.advance(2_000)
        assert (await routes(client)).ready


async def test_a_request_for_brokers_is_refused_with_the_right_address() -> None:
    async with name_server() as server, linked(server) as client:
        with pytest.raises(UnknownRequest, match="nameserver://HOST:PORT/CLUSTER"):
            await client.request(RequestCode.HEARTBEAT, encode(Heartbeat()), timeout_ms=10_000)
        with pytest.raises(InvalidArgument):
            await register(client, Register("", "", "", "", 0, []))
        assert server.refused == 2


async def test_a_connection_that_asks_too_often_is_refused_for_a_second() -> None:
    clock = ManualClock()
    async with (
        name_server(clock=clock, requests_per_second_max=2) as server,
        linked(server) as client,
    ):
        body = encode(FindRoutes())
        for _ in range(2):
            await client.request(RequestCode.ROUTES, body, timeout_ms=10_000)
        with pytest.raises(Throttled, match="2 requests in a second"):
            await client.request(RequestCode.ROUTES, body, timeout_ms=10_000)
        clock.advance(1_000)
        await client.request(RequestCode.ROUTES, body, timeout_ms=10_000)


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """A folder with users, as `headrace user add --data` makes it."""
    folder = tmp_path / "users"
    (folder / "metadata").mkdir(parents=True)
    book = UserBook(users_file(folder))
    password = credentials_of(SecretStr("a long pencil"))
    book.change(SetUser("add", "brokers", [password], admin=1))
    book.change(SetUser("add", "ann", [password]))
    return folder


@pytest.fixture
def login(tmp_path: Path) -> Callable[[str], str]:
    file = tmp_path / "password.txt"
    file.touch(mode=0o600)
    file.write_text("a long pencil")
    return lambda user: f"user={user}&password_file={file}"


async def test_with_a_login_brokers_are_administrators_and_any_user_may_ask(
    users: Path, login: Callable[[str], str]
) -> None:
    async with name_server(login=True, data=users) as server:
        with pytest.raises(LoginFailed, match="HEADRACE_USER"):
            async with linked(server):
                pass
        async with linked(server, login("brokers")) as broker, linked(server, login("ann")) as ann:
            await register(broker)
            assert len((await routes(ann)).brokers) == 1
            with pytest.raises(NotPermitted, match="user ann may not register"):
                await register(ann)


async def test_users_are_read_again_at_a_signal(users: Path, login: Callable[[str], str]) -> None:
    async with name_server(login=True, data=users) as server:
        book = UserBook(users_file(users))
        book.load()
        book.change(SetUser("add", "bob", [credentials_of(SecretStr("a long pencil"))]))
        server.renew()
        async with linked(server, login("bob")) as bob:
            await routes(bob)
        (users / "metadata" / "users.json").write_bytes(b"no users")
        server.renew()
        async with linked(server, login("bob")) as bob:
            await routes(bob)


async def test_without_an_administrator_a_name_server_with_a_login_does_not_start(
    tmp_path: Path,
) -> None:
    with pytest.raises(MessageQueueError, match="headrace user add NAME --admin --data"):
        async with name_server(login=True, data=tmp_path):
            pass


async def test_a_request_before_the_login_is_refused(users: Path) -> None:
    async with name_server(login=True, data=users) as server:
        host, port = server.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(encode_frame(RequestCode.HELLO, 1, encode(Hello("x", 1, 1))))
        writer.write(encode_frame(RequestCode.REGISTER, 2, encode(HERE)))
        assert b"as a user" in await reader.read()
        writer.close()
        assert server.routes("", "").brokers == []


code = st.one_of(st.sampled_from(list(RequestCode)), st.integers(0, 65_535))
frame = st.builds(
    lambda code, correlation, flags, body: encode_frame(code, correlation, body, flags=flags),
    code,
    st.integers(0, 2**64 - 1),
    st.integers(0, 255),
    st.one_of(st.binary(max_size=200), st.sampled_from([b"\x91" * 50_000, b"\x92\xa1\xff\x90"])),
)
HELLO = encode_frame(RequestCode.HELLO, 1, encode(Hello("fuzz", 1, 1)))


@hypothesis_settings(max_examples=40, deadline=None)
@given(
    says_hello=st.booleans(),
    chunks=st.lists(st.one_of(st.binary(max_size=200), frame), max_size=5),
)
def test_no_bytes_disturb_others(says_hello: bool, chunks: list[bytes]) -> None:
    async def attack() -> None:
        async with name_server() as server:
            host, port = server.address.split(":")
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write((HELLO if says_hello else b"") + b"".join(chunks))
            with suppress(OSError):
                await writer.drain()
            async with linked(server) as client:
                await routes(client)
            writer.close()

    asyncio.run(attack())


async def test_the_log_has_what_changes_and_no_login_of_a_client(
    users: Path, login: Callable[[str], str]
) -> None:
    with capture_logs() as logs:
        async with name_server(login=True, data=users) as server:
            async with linked(server, login("brokers")) as link:
                for _ in range(3):
                    await register(link)
            await until(lambda: not server.routes("", "").brokers)
            with pytest.raises(NotPermitted):
                async with linked(server, login("ann")) as ann:
                    await register(ann)
    lines = [one["event"] for one in logs if one["event"].startswith(("broker ", "audit"))]
    assert lines == ["broker registered", "broker gone", "audit"]

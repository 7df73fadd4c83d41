"""The listener answers GET /metrics, refuses the rest, and lets no client take it up."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from headrace_mq.errors import MessageQueueError
from headrace_mq.metrics import listener as listener_module
from headrace_mq.metrics.listener import CONNECTIONS_MAX, HEADER_BYTES_MAX, MetricsListener

Start = Callable[[Callable[[], Awaitable[bytes]]], Awaitable[MetricsListener]]


async def hello() -> bytes:
    return b"up 1\n"


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    started: list[MetricsListener] = []

    async def begin(text: Callable[[], Awaitable[bytes]]) -> MetricsListener:
        listener = MetricsListener("127.0.0.1:0", text)
        await listener.start()
        started.append(listener)
        return listener

    yield begin
    for one in started:
        await one.aclose()
        await one.aclose()


async def connected(listener: MetricsListener) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = listener.address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def cut_off(reader: asyncio.StreamReader) -> bool:
    """Whether a connection ends without an answer."""
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


async def ask(listener: MetricsListener, request: bytes) -> tuple[str, bytes]:
    reader, writer = await connected(listener)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.decode(), body


async def test_a_scrape_gets_the_text(start: Start) -> None:
    listener = await start(hello)
    head, body = await ask(listener, b"GET /metrics?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK")
    assert "Content-Type: text/plain; version=0.0.4; charset=utf-8" in head
    assert "Content-Length: 5" in head
    assert body == b"up 1\n"
    head, body = await ask(listener, b"HEAD /metrics HTTP/1.1\r\n\r\n")
    assert ("Content-Length: 5" in head, body) == (True, b"")


async def test_settings_are_answered_where_the_owner_has_some() -> None:
    listener = MetricsListener("127.0.0.1:0", hello, b"[]")
    await listener.start()
    try:
        head, body = await ask(listener, b"GET /settings HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (head.split()[1], body) == ("200", b"[]")
        assert "Content-Type: application/json" in head
        head, _ = await ask(listener, b"POST /settings HTTP/1.1\r\n\r\n")
        assert head.split()[1] == "405"
        head, _ = await ask(listener, b"GET /settings HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        assert head.split()[1] == "421"
    finally:
        await listener.aclose()


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /settings HTTP/1.1", "404"),
        ("GET / HTTP/1.1", "404"),
        ("POST /metrics HTTP/1.1", "405"),
        ("nonsense", "404"),
    ],
)
async def test_other_requests_are_refused(start: Start, request_line: str, status: str) -> None:
    listener = await start(hello)
    head, body = await ask(listener, f"{request_line}\r\n\r\n".encode())
    assert head.split()[1] == status
    assert body


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:9464", "200"),
        ("127.0.0.1", "200"),
        ("[::1]:9464", "200"),
        ("LOCALHOST", "200"),
        ("evil.example:9464", "421"),
        ("evil.example", "421"),
        ("", "421"),
        ("localhost\r\nHost: evil.example", "421"),
    ],
)
async def test_a_page_that_gives_its_name_this_address_gets_nothing(
    start: Start, host: str, status: str
) -> None:
    listener = await start(hello)
    head, body = await ask(listener, f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert head.split()[1] == status
    assert (body == b"up 1\n") == (status == "200")


async def test_a_listener_for_other_machines_has_any_name() -> None:
    listener = MetricsListener("0.0.0.0:0", hello)
    await listener.start()
    listener.address = listener.address.replace("0.0.0.0", "127.0.0.1")
    head, _ = await ask(listener, b"GET /metrics HTTP/1.1\r\nHost: broker-1:9464\r\n\r\n")
    assert head.split()[1] == "200"
    await listener.aclose()


async def test_a_text_that_fails_is_an_error_of_the_server(start: Start) -> None:
    async def fail() -> bytes:
        raise RuntimeError("broken")

    listener = await start(fail)
    with capture_logs() as logs:
        head, _ = await ask(listener, b"GET /metrics HTTP/1.1\r\n\r\n")
    assert head.split()[1] == "500"
    assert [line["event"] for line in logs] == ["the metrics could not be collected"]
    assert (await ask(listener, b"GET /metrics HTTP/1.1\r\n\r\n"))[0].split()[1] == "500"


async def test_scrapes_at_the_same_time_share_one_text(start: Start) -> None:
    made, go_on = 0, asyncio.Event()

    async def slow() -> bytes:
        nonlocal made
        made += 1
        await go_on.wait()
        return b"x"

    listener = await start(slow)
    asking = [asyncio.create_task(ask(listener, b"GET /metrics HTTP/1.1\r\n\r\n")) for _ in "123"]
    while len(listener._answering) < 3:
        await asyncio.sleep(0)
    go_on.set()
    assert {body for _, body in await asyncio.gather(*asking)} == {b"x"}
    assert made == 1
    await ask(listener, b"GET /metrics HTTP/1.1\r\n\r\n")
    assert made == 2


async def test_a_head_that_is_too_long_ends_its_connection(start: Start) -> None:
    listener = await start(hello)
    reader, writer = await connected(listener)
    writer.write(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * (4 * HEADER_BYTES_MAX))
    assert await cut_off(reader)
    writer.close()
    assert (await ask(listener, b"GET /metrics HTTP/1.1\r\n\r\n"))[1] == b"up 1\n"


async def test_a_request_that_does_not_come_is_given_up(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "REQUEST_MS_MAX", 20)
    listener = await start(hello)
    reader, writer = await connected(listener)
    writer.write(b"GET /met")
    assert await cut_off(reader)
    writer.close()


async def test_connections_have_a_limit(start: Start) -> None:
    listener = await start(hello)
    held = [await connected(listener) for _ in range(CONNECTIONS_MAX)]
    while len(listener._answering) < CONNECTIONS_MAX:
        await asyncio.sleep(0)
    reader, writer = await connected(listener)
    assert await cut_off(reader)
    writer.close()
    for _, writer in held:
        writer.close()
    while listener._answering:
        await asyncio.sleep(0)
    assert (await ask(listener, b"GET /metrics HTTP/1.1\r\n\r\n"))[1] == b"up 1\n"


async def test_a_listener_that_closes_cuts_off_its_connections(start: Start) -> None:
    async def never() -> bytes:
        await asyncio.Event().wait()
        return b""

    listener = await start(never)
    asking = asyncio.create_task(ask(listener, b"GET /metrics HTTP/1.1\r\n\r\n"))
    while listener._making is None:
        await asyncio.sleep(0)
    await listener.aclose()
    await asyncio.wait([asking])
    assert asking.exception() is not None or asking.result() == ("", b"")


async def test_an_address_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listener = MetricsListener(f"127.0.0.1:{taken.getsockname()[1]}", hello)
        with pytest.raises(
            MessageQueueError, match=r"cannot serve metrics on 127\.0\.0\.1.*--metrics"
        ):
            await listener.start()
    await listener.aclose()


async def test_an_address_of_ipv6_is_understood() -> None:
    listener = MetricsListener("[::1]:0", hello)
    await listener.start()
    assert listener.address.startswith("[::1]:")
    await listener.aclose()

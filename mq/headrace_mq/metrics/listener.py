"""
Serves the text for Prometheus: `GET /metrics` over HTTP, and what the process was given, and nothing else.

    GET /metrics ─▶ the text of this moment; who asks while one is made gets the same one
    GET /settings ─▶ JSON, where the owner has some
    another path ─▶ 404     another method ─▶ 405     another name for this machine ─▶ 421

A connection is closed after its answer. Used by the owner of a process, which makes the text; uses a socket.
"""

import asyncio
import os
import re
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

from headrace_mq._runtime.checks import is_loopback, place_of
from headrace_mq._runtime.log import get_logger
from headrace_mq.errors import MessageQueueError
from headrace_mq.metrics.exposition import CONTENT_TYPE, require_prometheus

__all__ = ["CONNECTIONS_MAX", "HEADER_BYTES_MAX", "REQUEST_MS_MAX", "MetricsListener"]

_HOST = re.compile(
    rb"^host:[ \t]*(?:\[([^\]]*)\]|([^:\r\n]*?))(?::\d*)?[ \t]*\r$", re.IGNORECASE | re.MULTILINE
)
# Prometheus has one or two connections at a time; so few cannot take up a process.
CONNECTIONS_MAX = 16
# A request of Prometheus has 300 bytes.
HEADER_BYTES_MAX = 8 << 10
# How long a request may take to arrive, and its answer to be read; Prometheus gives up after 10 s.
REQUEST_MS_MAX = 10_000

_log = get_logger(__name__)


class MetricsListener:
    """Listens from `start` to `aclose`.

    Args:
        place: `HOST:PORT`; port 0 takes a free one.
        text: makes the text.
        settings: JSON of what the process was given; None: it does not tell.
    """

    def __init__(
        self, place: str, text: Callable[[], Awaitable[bytes]], settings: bytes | None = None
    ) -> None:
        self._host, self._port = place_of(place)
        self._is_near = is_loopback(self._host)
        self._text = text
        self._settings = settings
        self._server: asyncio.Server | None = None
        self._making: asyncio.Future[bytes] | None = None
        self._answering: set[asyncio.Task[None]] = set()
        self.address = ""

    async def start(self) -> None:
        """Begins to listen.

        Raises:
            MessageQueueError: the address cannot be bound, or `prometheus-client` is not installed.
        """
        require_prometheus()
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            self._server = await asyncio.start_server(
                self._connected, self._host, self._port, family=family, limit=HEADER_BYTES_MAX
            )
        except OSError as error:
            known = error.errno is not None and not isinstance(error, socket.gaierror)
            # asyncio's own sentence says the address once more.
            reason = os.strerror(error.errno) if known and error.errno else error.strerror or error
            raise MessageQueueError(
                f"cannot serve metrics on {self._host}:{self._port} ({reason}): stop what uses that port, or name"
                " another address of this machine with --metrics HOST:PORT"
            ) from error
        host, port = self._server.sockets[0].getsockname()[:2]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        _log.info("metrics are served", address=f"http://{self.address}/metrics")

    async def aclose(self) -> None:
        """Stops listening and cuts off the connections; safe to call twice."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)
        if self._making is not None:
            self._making.cancel()
            await asyncio.gather(self._making, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._answering) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._answering.add(task)
        try:
            async with asyncio.timeout(REQUEST_MS_MAX / 1_000):
                await self._answer(reader, writer)
        except (OSError, TimeoutError, asyncio.LimitOverrunError, asyncio.IncompleteReadError):
            writer.transport.abort()
        finally:
            self._answering.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        kind = "text/plain; charset=utf-8"
        if self._is_near and not _is_near(head):
            # A page in a browser of this machine can give its own name this address, but not this one.
            status, body = "421 Misdirected Request", b"use 127.0.0.1 or localhost in the address\n"
        elif path != b"/metrics" and (path != b"/settings" or self._settings is None):
            status, body = "404 Not Found", b"metrics are at /metrics\n"
        elif method not in {b"GET", b"HEAD"}:
            status, body = "405 Method Not Allowed", b"use GET\n"
        elif path == b"/settings":
            status, body, kind = "200 OK", self._settings or b"", "application/json"
        else:
            try:
                status, body, kind = "200 OK", await self._shared_text(), CONTENT_TYPE
            except Exception:  # noqa: BLE001 - Prometheus notes a failed scrape; the process goes on
                _log.exception("the metrics could not be collected")
                status, body = "500 Internal Server Error", b"the reason is in the log\n"
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n".encode()
        )
        if method != b"HEAD":
            writer.write(body)
        await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    async def _shared_text(self) -> bytes:
        """Makes the text; those that ask meanwhile get it too."""
        if self._making is None:
            self._making = asyncio.ensure_future(self._text())
            self._making.add_done_callback(self._made)
        return await asyncio.shield(self._making)

    def _made(self, _text: asyncio.Future[bytes]) -> None:
        self._making = None


def _is_near(head: bytes) -> bool:
    """Whether a request names this machine by its own address, or not at all."""
    said = _HOST.findall(head)
    return all(is_loopback((six or four).decode("latin-1").lower()) for six, four in said)

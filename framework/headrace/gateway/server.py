"""
Serves the gateway on a socket: uvicorn, in the application's event loop, without uvicorn's signal handlers.

Used by `headrace run`, or by your program, and by the console. It opens the socket, and stops in order: no new connections
first, then the requests that are under way.
"""

import asyncio
import contextlib
import ipaddress
import math
import socket
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import uvicorn
from starlette.types import ASGIApp

from headrace._runtime.log import get_logger
from headrace.app import App, RunningApp
from headrace.errors import HeadraceError
from headrace.gateway.certificate import Certificate, Renewable, renewed
from headrace.gateway.connections import Connections
from headrace.gateway.gateway import Gateway
from headrace.gateway.readiness import Check
from headrace.gateway.settings import GatewaySettings

__all__ = ["Listening", "Serving", "listening", "require_safe", "serving"]

log = get_logger(__name__)


# How long cancelled requests may take to send their answer.
_CUT_OFF_MS_MAX: Final = 1_000


class Listening:
    """A server that listens.

    Attributes:
        address: `host:port` where it does.
        scheme: `http` or `https`.
    """

    def __init__(self, address: str, task: asyncio.Task[None], *, scheme: str = "http") -> None:
        self.address = address
        self.scheme = scheme
        self._task = task

    async def failed(self) -> None:
        """Waits, and raises if the server ends before it should."""
        await asyncio.shield(self._task)
        raise HeadraceError("the HTTP server has ended by itself")


class Serving(NamedTuple):
    """A gateway that listens.

    Attributes:
        listening: where.
        gateway: what answers.
    """

    listening: Listening
    gateway: Gateway

    @property
    def address(self) -> str:
        """`host:port` where it listens."""
        return self.listening.address

    @property
    def scheme(self) -> str:
        """`http` or `https`."""
        return self.listening.scheme

    async def failed(self) -> None:
        """Waits, and raises if the server ends before it should."""
        await self.listening.failed()


class _Server(uvicorn.Server):
    """uvicorn that leaves signals to the owner of the process, and says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Installs no handler."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to listen."""
        await super().startup(sockets)
        self.listening.set()


@asynccontextmanager
async def serving(
    app: App,
    running: RunningApp,
    settings: GatewaySettings | None = None,
    checks: Mapping[str, Check] | None = None,
) -> AsyncIterator[Serving]:
    """Serves an application by HTTP until the block ends.

    On the way out no connection is accepted any more, then requests under way are finished within
    `stop_ms`, then cut off.

    Args:
        app: the application.
        running: the same, at work in this event loop.
        settings: where to listen, and every limit.
        checks: what `/ready` looks at besides the read models and the application's parts.

    Raises:
        HeadraceError: the address cannot be had, or the certificate or the tokens cannot be used; the
            sentence says why.
        DefinitionError: no OpenAPI document can be made of the application's models.
    """
    settings = settings or GatewaySettings()
    require_safe(settings)
    failure = asyncio.create_task(running.failed(), name="gateway: parts of the application")

    async def parts() -> None:
        if running.read_only is not None:
            raise HeadraceError(f"read-only: {running.read_only}")
        if failure.done():
            failure.result()
            raise HeadraceError("a part of the application has ended")
        for name, reader in running.readers.items():
            if reader.status.failed:
                raise HeadraceError(f"{name} stands still: {reader.status.error}")
        if running.watch is not None:
            running.watch.alarms.check_room()

    own: dict[str, Check] = {"parts": parts}
    if running.lineage is not None:
        own["lineage"] = running.lineage.check
    if running.watch is not None:
        own["lag"] = running.watch.check_lag
    try:
        gateway = Gateway(app, running, settings, {**(checks or {}), **own})
        if not (settings.asks_for_tokens or _is_loopback(settings.host)):
            log.warning(
                "the gateway asks for no tokens: every client that reaches the address may send commands",
                host=settings.host,
            )
        files = (gateway.authentication,)
        async with listening(gateway, settings, stop=gateway.stop, files=files) as listens:
            yield Serving(listens, gateway)
    finally:
        failure.cancel()
        await asyncio.wait({failure})
        if not failure.cancelled():
            failure.exception()  # looked at: its owner runs the application


@asynccontextmanager
async def listening(
    served: ASGIApp,
    settings: GatewaySettings,
    *,
    stop: Callable[[], None],
    files: Sequence[Renewable | None] = (),
) -> AsyncIterator[Listening]:
    """Serves an ASGI application on a socket until the block ends.

    Args:
        served: what answers.
        settings: where to listen, with which certificate, and the limits of connections.
        stop: called before requests under way are waited for; ends those that would stay open.
        files: what is read from files besides the certificate, and again when they change.

    Raises:
        HeadraceError: the address cannot be had, or the certificate cannot be used; the sentence says why.
    """
    certificate = None
    if settings.tls_certificate is not None and settings.tls_key is not None:
        certificate = Certificate(settings.tls_certificate, settings.tls_key)
    with _bound(settings) as listener:
        server = _Server(_config(served, settings, certificate))
        task = asyncio.create_task(server.serve([listener]), name="http: server")
        renewal = asyncio.create_task(renewed(certificate, *files), name="http: files")
        try:
            await _started(server, task)
            scheme = "http" if certificate is None else "https"
            yield Listening(_address(listener), task, scheme=scheme)
        finally:
            renewal.cancel()
            stop()
            server.should_exit = True
            await task
            cut_off = set(server.server_state.tasks)
            if cut_off:
                await asyncio.wait(cut_off, timeout=_CUT_OFF_MS_MAX / 1_000)


async def _started(server: _Server, task: asyncio.Task[None]) -> None:
    listening = asyncio.create_task(server.listening.wait(), name="gateway: start")
    try:
        await asyncio.wait({listening, task}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        listening.cancel()
    if task.done():
        await task
        raise HeadraceError("the HTTP server ended while it started")


def require_safe(settings: GatewaySettings) -> None:
    """Refuses an address that other machines reach without TLS, or without tokens.

    Raises:
        HeadraceError: the sentence says which settings to give.
    """
    _require_tls(settings)
    _require_tokens(settings)


def _require_tls(settings: GatewaySettings) -> None:
    """Refuses an address that other machines reach without a certificate."""
    if (
        settings.tls_certificate is None
        and not settings.insecure
        and not _is_loopback(settings.host)
    ):
        raise HeadraceError(
            f"other machines reach {settings.host}, and everyone on the way could read and change everything:"
            " set http.tls_certificate and http.tls_key (`headrace certificates make DIR` makes some to try it"
            " out), or http.insecure=true (HEADRACE_INSECURE=true) behind a proxy with TLS"
        )


def _require_tokens(settings: GatewaySettings) -> None:
    """Refuses an address that other machines reach where clients need no token."""
    if not (settings.asks_for_tokens or settings.insecure or _is_loopback(settings.host)):
        raise HeadraceError(
            f"other machines reach {settings.host}, and every client there could send every command: set"
            " http.tokens (--tokens FILE; `headrace token make NAME --tokens FILE` writes it) or http.jwks_url, or"
            " http.insecure=true (HEADRACE_INSECURE=true) behind a proxy that knows its clients"
        )


def _config(
    served: ASGIApp, settings: GatewaySettings, certificate: Certificate | None
) -> uvicorn.Config:
    return uvicorn.Config(
        served,
        ssl_context_factory=None if certificate is None else lambda *_: certificate.context,
        http=Connections(settings).protocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=settings.connections_max,
        timeout_keep_alive=math.ceil(settings.idle_ms / 1_000),
        timeout_graceful_shutdown=math.ceil(settings.stop_ms / 1_000),
    )


def _bound(settings: GatewaySettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        raise HeadraceError(
            f"cannot serve HTTP on {settings.host}:{settings.port} ({_reason(error)}): stop what uses"
            " that port, or name another address of this machine with --http HOST:PORT"
        ) from error


def _reason(error: OSError) -> str:
    # Without the address, which Python adds to it.
    return str(error.strerror or error).partition(" (while")[0]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

"""
One client connection to a broker that comes back by itself.

A `Link` connects, shakes hands, and reconnects with backoff and jitter. Nothing is sent twice here:
a request that was under way when the connection ended fails with `ConnectionLost`, and only its
sender knows whether it may be repeated (`ask` is for requests that may).

Used by producers, consumers and the admin client; uses one `ClientConnection` after the other. Of bodies it
knows the handshake.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import NamedTuple, Self, TypeVar

from headrace_mq._net.address import BrokerAddress, failure_of, unreachable
from headrace_mq._net.busy_poll import BusyPoll, busy_poll_of
from headrace_mq._net.certificates import client_context
from headrace_mq._net.client_connection import Answer, ClientConnection, guarded
from headrace_mq._net.keepalive import VANISHED_MS
from headrace_mq._net.leader_watch import Place, Successor, until_superseded
from headrace_mq._net.login import login_steps
from headrace_mq._net.name_servers import NameServers
from headrace_mq._net.tls_stream import TlsStream
from headrace_mq._runtime.log import get_logger
from headrace_mq.errors import (
    BrokerError,
    Closed,
    ConnectionLost,
    MessageQueueError,
    RequestTimeout,
    TlsFailed,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.access import LoginAnswer
from headrace_mq.protocol.bodies import Body, Hello, HelloAnswer, decode, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import PROTOCOL_VERSION, Frame
from headrace_mq.settings import ConsumerSettings, ProducerSettings

__all__ = ["Link", "LinkSettings", "hello_for", "software"]

# Connecting and shaking hands; a broker that needs longer is as good as absent.
CONNECT_TIMEOUT_MS = 5_000
# Requests of one link that wait for an answer before `request` waits too.
PENDING_MAX = 16_384

B = TypeVar("B", bound=Body)

_log = get_logger(__name__)


class LinkSettings(NamedTuple):
    """How a link keeps its connection.

    Attributes:
        reconnect_ms: first and longest pause between two attempts, doubled in between.
        vanished_ms: when a broker that acknowledges nothing is given up, in milliseconds.
        busy_poll_us: how long its loop stays awake behind what arrives, in microseconds.
        tells: whether the log has why it cannot connect; else who asks for the connection says it.
        reads: whether a replica may answer, too.
    """

    reconnect_ms: tuple[int, int]
    vanished_ms: int = VANISHED_MS
    busy_poll_us: int = 0
    tells: bool = True
    reads: bool = False

    @classmethod
    def of(cls, settings: ProducerSettings | ConsumerSettings) -> Self:
        """Those of a client."""
        pauses = (settings.reconnect_ms_min, settings.reconnect_ms_max)
        return cls(pauses, settings.vanished_ms_max, settings.busy_poll_us)


def hello_for(client_id: str, called: str = "", *, reads: bool = False) -> Hello:
    """The first body of a connection; `called` is what the software calls itself, `reads`: a replica may serve it."""
    return Hello(
        client_id=client_id,
        version_min=PROTOCOL_VERSION,
        version_max=PROTOCOL_VERSION,
        software=called or software(),
        reads=reads,
    )


@cache
def software() -> str:
    """What this client calls itself, with its version where it is installed."""
    # Looked up by the first connection: importing it takes as long as the rest of the client.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"headrace-python {version('headrace')}"
    except PackageNotFoundError:  # run from its sources
        return "headrace-python"


def _epoch_of(found: Successor) -> int:
    assert found.connection.hello is not None
    return found.connection.hello.epoch


def _later_of(one: Successor | None, other: Successor) -> tuple[Successor, Successor | None]:
    """Returns the broker that serves in the later epoch, and the other one; the first of equals."""
    if one is None or _epoch_of(other) > _epoch_of(one):
        return other, one
    return one, other


def _ignore(*_: object) -> None:
    return None


class Link:
    """A connection to one broker that reconnects until it is closed.

    Args:
        address: of the broker; see `BrokerAddress`.
        client_id: the name in the handshake, the same on every reconnection.
        settings: how it keeps its connection.
        on_push: takes every frame that the broker sends unasked.
        on_ready: called when the link can be written to: connected, or writable again.
        on_down: called when an established connection ended.
        software: what it calls itself in the handshake; empty: the name and version of this client.

    Attributes:
        connections: how many it has had so far.
    """

    def __init__(
        self,
        address: str,
        *,
        client_id: str,
        settings: LinkSettings,
        on_push: Callable[[Frame], None] = _ignore,
        on_ready: Callable[[], None] = _ignore,
        on_down: Callable[[], None] = _ignore,
        software: str = "",
    ) -> None:
        self._settings, self._software = settings, software
        self._busy_poll: BusyPoll | None = None
        parsed = BrokerAddress.parse(address).of_one_group()
        self._places, self._tls, self._login = list(parsed.places), parsed.tls, parsed.login
        self._names = NameServers.of(parsed, self._places, self._open_to, self._greet)
        self.address = address
        self.client_id = client_id
        self._on_push = on_push
        self._on_ready, self._on_down = on_ready, on_down
        self._connection: ClientConnection | None = None
        # The latest epoch in which any of several places served.
        self._epoch = 0
        # Found while the connection said nothing: the broker that leads instead.
        self._successor: Successor | None = None
        self._next: asyncio.Future[ClientConnection] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._last_error: Exception | None = None
        self._turns = asyncio.Semaphore(PENDING_MAX)
        self._random = random.SystemRandom()
        self.frame_bytes_max = 0
        self.connections = 0

    async def start(self, timeout_ms: int) -> None:
        """Begins to connect and waits for the first connection.

        Raises:
            ConnectionLost: no broker answered in time; the link is closed again.
            UnsupportedVersion: the broker speaks another version of the protocol.
            LoginFailed: the broker does not let this user in.
        """
        self.begin()
        try:
            await self.reached(timeout_ms)
        except BaseException:
            await self.aclose()
            raise

    def begin(self) -> None:
        """Begins to connect."""
        if self._keeper is not None:
            raise ValueError("a link is started once")
        loop = asyncio.get_running_loop()
        self._busy_poll = busy_poll_of(loop, self._settings.busy_poll_us)
        self._next = loop.create_future()
        self._keeper = asyncio.create_task(self._keep_connected(), name=f"link {self.address}")

    async def reached(self, timeout_ms: int) -> None:
        """Waits for the first connection; raises as `start`, and goes on to connect."""
        await self._connected(timeout_ms)

    async def aclose(self) -> None:
        """Writes what was submitted, closes the connection and stops reconnecting."""
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        connection, self._connection = self._connection, None
        keeper.cancel()
        await asyncio.wait([keeper])
        await self._names.aclose()
        if self._successor is not None:
            self._successor.connection.end("closed")
        if connection is not None:
            await connection.close()
        if self._next is not None and not self._next.done():
            self._next.cancel()

    @property
    def last_error(self) -> Exception | None:
        """Why the last attempt to connect failed; None: none has."""
        return self._last_error

    @property
    def is_up(self) -> bool:
        """Whether a connection stands and its handshake is done."""
        return self._connection is not None

    @property
    def is_ready(self) -> bool:
        """Whether a request submitted now is written without filling memory."""
        return self._connection is not None and self._connection.writable

    def serves(self, _queue: QueueRef) -> bool:
        """Whether what is asked of a queue is answered, or waits for the connection."""
        return True

    async def require_first(self, _topic: str) -> None:
        """Returns if the broker that a topic's scheduled messages wait at has all of its queues; raises InvalidArgument."""

    def submit(
        self,
        code: int,
        *parts: bytes | bytearray,
        receive: Callable[[Answer], None],
        at_once: bool = False,
    ) -> None:
        """Sends a request now or never; `receive` gets the answer's body or the error.

        It leaves with others at the end of this tick, or `at_once` with those submitted before.
        The caller bounds how many it submits. Raises ConnectionLost when there is no connection.
        """
        if self._connection is None:
            raise ConnectionLost(
                f"not connected to {self.address}; wait for the connection, then try again"
            )
        self._connection.submit(code, *parts, receive=receive, at_once=at_once)

    def tell(self, code: int, body: bytes | bytearray) -> bool:
        """Sends a request that wants no answer; False: not `is_ready`, nothing was sent.

        Whether the broker ever gets it, or what it makes of it, is not told.
        """
        if self._connection is None or not self._connection.writable:
            return False
        self._connection.tell(code, body)
        return True

    def drop(self, reason: str) -> None:
        """Ends a connection that its user found dead; the link makes a new one."""
        if self._connection is not None:
            self._connection.end(reason)

    async def request(
        self, code: int, *parts: bytes | bytearray, timeout_ms: int, at_once: bool = False
    ) -> memoryview:
        """Sends one request, waiting for a connection first, and returns the answer's body.

        It leaves with others at the end of this tick, or `at_once` with those submitted before.

        Raises:
            BrokerError: the broker answered with an error code.
            ConnectionLost: the connection ended before the answer; the outcome is unknown.
            RequestTimeout: no connection, or no answer, in time.
            Closed: the link was closed.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1_000), self._turns:
                return await self._exchange(code, *parts, at_once=at_once)
        except TimeoutError as error:
            raise self._too_late(timeout_ms) from error

    async def ask(
        self, kind: type[B], code: int, body: Body | None = None, *, timeout_ms: int
    ) -> B:
        """Like `request`, for requests that may be repeated: asks until an answer comes or time is up.

        What the broker refused until then is raised as its BrokerError.
        """
        parts = () if body is None else (encode(body),)
        refusals: list[BrokerError] = []
        try:
            async with asyncio.timeout(timeout_ms / 1_000), self._turns:
                return decode(kind, await self._persist(refusals, code, *parts))
        except TimeoutError as error:
            raise (refusals[-1] if refusals else self._too_late(timeout_ms)) from error

    async def _persist(self, refusals: list[BrokerError], code: int, *parts: bytes) -> memoryview:
        pause_ms, longest_ms = self._settings.reconnect_ms
        while True:
            try:
                return await self._exchange(code, *parts)
            except TlsFailed:
                raise
            except ConnectionLost:
                continue
            except BrokerError as error:
                if not error.retriable:
                    raise
                refusals[:] = [error]
            await asyncio.sleep(self._jittered(pause_ms))
            pause_ms = min(2 * pause_ms, longest_ms)

    async def _exchange(
        self, code: int, *parts: bytes | bytearray, at_once: bool = False
    ) -> memoryview:
        connection = self._connection or await self._connected(None)
        return await connection.request(code, *parts, at_once=at_once)

    async def _connected(self, timeout_ms: int | None) -> ClientConnection:
        if self._next is None or self._keeper is None:
            raise Closed(f"the connection to {self.address} was closed")
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1_000):
                return await asyncio.shield(self._next)
        except TimeoutError as error:
            raise unreachable(self.address, self._last_error) from error
        except asyncio.CancelledError as error:
            if self._next.cancelled() and self._keeper is None:
                raise Closed(f"the connection to {self.address} was closed") from error
            raise

    def _too_late(self, timeout_ms: int) -> RequestTimeout:
        if self._connection is None:
            return RequestTimeout(str(unreachable(self.address, self._last_error)))
        return RequestTimeout(f"no answer from {self.address} within {timeout_ms} ms")

    def _jittered(self, pause_ms: int) -> float:
        # Clients that lost the same broker must not come back in step.
        return pause_ms * (0.5 + self._random.random() / 2) / 1_000

    async def _keep_connected(self) -> None:
        first_ms, longest_ms = self._settings.reconnect_ms
        pause_ms = first_ms
        while True:
            try:
                connection = await self._connect()
            except (OSError, TimeoutError, ValueError, MessageQueueError) as error:
                # ValueError: a host name that cannot be one.
                if pause_ms == first_ms and self._settings.tells:
                    _log.warning(
                        "cannot connect; the client tries again",
                        address=self.address,
                        reason=str(error),
                    )
                self._failed(error)
            else:
                pause_ms = first_ms
                reason = await self._serve(connection)
                _log.warning("connection lost", address=self.address, reason=reason)
                if self._successor is not None:
                    continue
            await asyncio.sleep(self._jittered(pause_ms))
            pause_ms = min(2 * pause_ms, longest_ms)

    async def _connect(self) -> ClientConnection:
        """Connects to the first address that serves in no earlier epoch than one seen before.

        A leader that was cut off may still serve; it is taken where no other place serves in a later epoch. All together
        have the time of one.
        """
        successor, self._successor = self._successor, None
        if successor is not None and not successor.connection.lost.done():
            return self._reached(*successor)
        failures: dict[Place, Exception] = {}
        earlier: Successor | None = None
        await self._names.look()
        try:
            for place in list(self._places):
                try:
                    async with asyncio.timeout(CONNECT_TIMEOUT_MS / 1_000 / len(self._places)):
                        found = Successor(place, await self._connect_to(place))
                except (OSError, TimeoutError, ValueError, MessageQueueError) as error:
                    if isinstance(error, BrokerError) and not error.retriable:
                        raise
                    failures[place] = error
                    if isinstance(error, TimeoutError):
                        # The others do not wait for it again.
                        self._places.sort(key=lambda each: each == place)
                    continue
                if _epoch_of(found) >= self._epoch or len(self._places) == 1:
                    return self._reached(*found)
                earlier, left = _later_of(earlier, found)
                if left is not None:
                    left.connection.end("another place serves in a later epoch")
            if earlier is not None and not earlier.connection.lost.done():
                # The group may have been made again, with epochs from the beginning.
                taken, earlier = earlier, None
                return self._reached(*taken)
        finally:
            if earlier is not None:
                earlier.connection.end("another place serves in a later epoch")
        raise failure_of(failures)

    def _reached(self, place: Place, connection: ClientConnection) -> ClientConnection:
        # It is asked first the next time.
        self._places.sort(key=lambda each: each != place)
        self._epoch = max(self._epoch, _epoch_of(Successor(place, connection)))
        return connection

    async def _connect_to(self, place: Place) -> ClientConnection:
        connection = await self._open_to(place)
        try:
            await self._greet(connection)
        except BaseException:
            connection.end("the handshake failed")
            raise
        return connection

    async def _open_to(self, place: Place) -> ClientConnection:
        host, port = place
        loop = asyncio.get_running_loop()
        connection = ClientConnection(
            self._on_push,
            self._on_ready,
            self._ended,
            self._settings.vanished_ms,
            self._busy_poll,
        )
        if self._tls is not None:
            # Read for each connection: new files count from the next one on.
            connection.tls = TlsStream.of_client(connection, client_context(self._tls), host)
        await loop.create_connection(lambda: connection.tls or connection, host, port)
        return connection

    async def _greet(self, connection: ClientConnection) -> None:
        try:
            hello = encode(hello_for(self.client_id, self._software, reads=self._settings.reads))
            answer = decode(HelloAnswer, await connection.request(RequestCode.HELLO, hello))
            await self._log_in(connection, answer)
            connection.ready(answer)
        except BaseException as error:
            if connection.tls is not None and connection.tls.failure is not None:
                raise connection.tls.failure from error
            raise

    async def _log_in(self, connection: ClientConnection, hello: HelloAnswer) -> None:
        steps = login_steps(self._login, hello)
        request = next(steps, None)
        while request is not None:
            body = await connection.request(RequestCode.LOGIN, encode(request))
            try:
                request = steps.send(decode(LoginAnswer, body))
            except StopIteration:
                return

    async def _serve(self, connection: ClientConnection) -> str:
        assert connection.hello is not None
        assert self._next is not None
        if connection.lost.done():
            return connection.lost.result()
        self._connection = connection
        self.connections += 1
        self.frame_bytes_max = connection.hello.frame_bytes_max
        if not self._next.done():
            self._next.set_result(connection)
        guarded(self._on_ready)
        watch = None
        if len(self._places) > 1 or self._names.are_asked:
            watch = asyncio.create_task(self._watch(connection), name=f"watch {self.address}")
        try:
            return await asyncio.shield(connection.lost)
        finally:
            if watch is not None:
                watch.cancel()

    async def _watch(self, connection: ClientConnection) -> None:
        """Ends a connection to a broker that leads its group no longer."""
        with suppress(ConnectionLost):  # it ended by itself
            others = self._names.others(self._places[0])
            self._successor = await until_superseded(connection, others, self._open_to, self._greet)
            connection.end("another broker of the group leads")

    def _ended(self, connection: ClientConnection) -> None:
        if self._connection is connection:
            self._connection = None
            self._next = asyncio.get_running_loop().create_future()
            guarded(self._on_down)

    def _failed(self, error: Exception) -> None:
        self._last_error = error
        # A refusal will not pass by waiting: those who wait now get it.
        refused = isinstance(error, BrokerError) and not error.retriable
        if (refused or isinstance(error, TlsFailed)) and self._next is not None:
            waiting, self._next = self._next, asyncio.get_running_loop().create_future()
            waiting.set_exception(error)
            waiting.exception()

"""
The listening side of the wire: accepts connections, and shares the loop and the memory among them.

Used by the broker, with its `FrameHandler`; uses the sockets of the machine. It never knows what a frame
means.
"""

import asyncio
import errno
import os
import socket
from collections import deque
from contextlib import suppress

from headrace_mq._net.busy_poll import BusyPoll, busy_poll_of
from headrace_mq._net.certificates import ServerCertificates
from headrace_mq._net.connection import TURN_MS, Connection, FrameHandler, ServerLimits
from headrace_mq._net.keepalive import notice_vanished
from headrace_mq._net.ledger import Ledger
from headrace_mq._net.tls_stream import TlsStream
from headrace_mq._runtime.clock import Clock, SystemClock
from headrace_mq._runtime.log import get_logger
from headrace_mq.errors import (
    MalformedRequest,
    MessageQueueError,
    Overloaded,
    TooManyConnections,
)
from headrace_mq.protocol.bodies import ErrorAnswer, Hello, decode, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import FLAG_ANSWER, FrameReader, encode_frame

__all__ = [
    "REFUSED_MAX",
    "SUPERVISOR",
    "Connection",
    "FrameHandler",
    "FrameServer",
    "ServerLimits",
    "listening_socket",
]

# Connections the kernel completes while the loop is busy; usual for servers on Linux.
_BACKLOG = 1_024
# Connections that were turned away and are still told why; above it the oldest is cut off.
REFUSED_MAX = 64
# How soon new certificate files are found: they are renewed days before the old ones expire.
CERTIFICATES_LOOK_MS = 10_000
# The client id of who asks only whether the broker is alive, for which a refusal will do.
SUPERVISOR = "supervisor"
_NO_DESCRIPTORS = (
    "as many files and connections are open as the system grants this broker, but for those kept for its"
    " own files; close some, or raise the limit (LimitNOFILE, ulimit -n)"
)

_log = get_logger(__name__)


class FrameServer:
    """Listens, and holds the connections that are open.

    Args:
        limits: what the connections are granted.
        handler: acts on the frames.
        clock: the time.

    Attributes:
        ledger: what each connection holds of the budgets.
        charged_bytes: of all requests in work.
        worked_ms: how long the loop has worked without a look at anything else.
        waiting: connections that have more to do than fits one turn, in the order of their turns.
        now_ms: tells the time.
        refused: connections that were turned away since the start, because there was no room.
    """

    def __init__(
        self, limits: ServerLimits, handler: FrameHandler, clock: Clock | None = None
    ) -> None:
        self.limits = limits
        self.handler = handler
        self.ledger = Ledger[Connection](limits.budgets)
        self.charged_bytes = 0
        self.waiting: deque[Connection] = deque()
        self.now_ms = (clock or SystemClock()).monotonic_ms
        # Turned away, and not gone yet; the oldest first.
        self._refused: dict[Connection, None] = {}
        self.refused = 0
        self.worked_ms = 0
        self._breathes = False
        # A dict as an ordered set.
        self.connections: dict[Connection, None] = {}
        self.loop: asyncio.AbstractEventLoop
        self.busy_poll: BusyPoll | None = None
        self._listener: asyncio.Server | None = None
        self._arriving: dict[Connection, int] = {}
        self._looker: asyncio.TimerHandle | None = None
        self._certificates: ServerCertificates | None = None
        self._certificates_looker: asyncio.TimerHandle | None = None
        self._all_lost = asyncio.Event()
        self._all_lost.set()

    async def listen(
        self,
        host: str,
        port: int,
        certificates: ServerCertificates | None = None,
        listener: socket.socket | None = None,
    ) -> str:
        """Begins to accept connections; returns the address it is bound to.

        Args:
            host: an address of this machine.
            port: 0 takes a free one.
            certificates: with which it speaks TLS; None: it does not.
            listener: listens already, in place of an address, and stays open when the server is closed.

        Raises:
            MessageQueueError: the address cannot be bound.
        """
        self.loop = asyncio.get_running_loop()
        self.busy_poll = busy_poll_of(self.loop, self.limits.busy_poll_us)
        try:
            make = self._make_secure if certificates is not None else lambda: Connection(self)
            if listener is not None:
                taken = listener.dup()
                taken.settimeout(0)
                self._listener = await self.loop.create_server(make, sock=taken, backlog=_BACKLOG)
            else:
                self._listener = await self.loop.create_server(
                    make,
                    host,
                    port,
                    family=_family(host),
                    backlog=_BACKLOG,
                )
        except OSError as error:
            raise _cannot_listen(host, port, error) from error
        for listener in self._listener.sockets:
            notice_vanished(listener, self.limits.vanished_ms)
        self._look_soon()
        self._certificates = certificates
        if certificates is not None:
            self._look_at_certificates_soon(certificates)
        bound_host, bound_port = self._listener.sockets[0].getsockname()[:2]
        return f"[{bound_host}]:{bound_port}" if ":" in bound_host else f"{bound_host}:{bound_port}"

    def stop_accepting(self) -> None:
        """Closes the listening socket; connections stay."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._looker is not None:
            self._looker.cancel()
            self._looker = None
        if self._certificates_looker is not None:
            self._certificates_looker.cancel()
            self._certificates_looker = None

    def renew_certificates(self) -> None:
        """Reads the files of the certificates now; connections that stand stay as they are."""
        if self._certificates is not None:
            self._certificates.look(always=True)

    @property
    def certificate_expires_s(self) -> float | None:
        """When the certificate expires, in seconds since 1970; None without one."""
        return None if self._certificates is None else self._certificates.expires_s

    def _make_secure(self) -> TlsStream:
        assert self._certificates is not None
        connection = Connection(self)
        return TlsStream.of_server(connection, self._certificates.context, _refusal_of_plain)

    def _look_at_certificates_soon(self, certificates: ServerCertificates) -> None:
        def look() -> None:
            certificates.look()
            self._look_at_certificates_soon(certificates)

        self._certificates_looker = self.loop.call_later(CERTIFICATES_LOOK_MS / 1_000, look)

    async def aclose(self, grace_ms: int) -> None:
        """Sends what is queued and closes all connections, by force after `grace_ms`."""
        self.stop_accepting()
        for stop in (Connection.close, Connection.abort):
            for connection in list(self.connections):
                stop(connection)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_lost.wait(), grace_ms / 1_000)

    def look(self) -> None:
        """Refuses the connections whose frame was arriving at the last look already.

        A client that sends byte by byte would otherwise hold a connection and its buffer for good.
        """
        arriving: dict[Connection, int] = {}
        for connection in list(self.connections):
            number = connection.arriving
            if number is None:
                continue
            if self._arriving.get(connection) == number:
                sentence = (
                    f"a frame took longer than {self.limits.frame_ms} ms to arrive; send smaller"
                    " batches over a slow network"
                )
                self.handler.on_unreadable(connection, MalformedRequest(sentence))
                connection.refuse()
            else:
                arriving[connection] = number
        self._arriving = arriving

    def _look_soon(self) -> None:
        self._looker = self.loop.call_later(self.limits.frame_ms / 1_000, self._look_again)

    def _look_again(self) -> None:
        self.look()
        self._look_soon()

    def enter(self, connection: Connection) -> None:
        """Counts a new connection in, or refuses it; called by the connection."""
        self.connections[connection] = None
        self._all_lost.clear()
        host = connection.host
        sentence = self.ledger.refusal(host)
        # The system gives the lowest number that is free: at this one all below are taken.
        if sentence is None and connection.descriptor >= self.limits.descriptors_max:
            sentence = _NO_DESCRIPTORS
        if sentence is not None:
            self._refuse(connection, sentence)
            return
        silent = self.ledger.enter(connection, host)
        if silent is not None:
            most = self.limits.budgets.connections_before_hello_max
            own = self.limits.budgets.connections_before_hello_per_address_max
            self._refuse(
                silent,
                f"more than {most} connections, or {own} of one address, have not said HELLO or not logged in,"
                " and this one has been silent for longest; do it at once, or raise"
                " connections_before_hello_max or connections_before_hello_per_address_max",
            )

    def close_newest(self, count: int) -> None:
        """Closes so many connections, because files need their descriptors; who came last goes first."""
        for connection in list(self.connections)[::-1][:count]:
            if not connection.closing:
                self._refuse(connection, _NO_DESCRIPTORS)

    def note_held(self, connection: Connection, number: int, size: int) -> None:
        """Counts what a connection holds of requests; closes who holds on for longest, above the limit."""
        held_up = self.ledger.hold_request(connection, number, size)
        while held_up is not None:
            most = self.limits.budgets.requests_bytes_max
            error = Overloaded(
                f"requests that have not arrived as a whole take more than {most} bytes, and this"
                " connection's has been on its way for longest; send smaller batches, or raise"
                " requests_bytes_max"
            )
            self.handler.on_unreadable(held_up, error)
            held_up.refuse()
            self.ledger.leave(held_up)
            held_up = self.ledger.hold_request(held_up, 0, 0)

    def note_unread(self, connection: Connection, size: int) -> None:
        """Counts what a client has not read; closes the slowest clients, above the limit."""
        if not self.ledger.hold_answers(connection, size):
            return
        # What was noted of the others is as old as their last answer.
        over = True
        for slow in self.ledger.slow():
            over = self.ledger.hold_answers(slow, slow.unread_bytes)
        for slow in self.ledger.slow():
            if not over:
                return
            _log.warning(
                "connection closed: answers that clients do not read take too much memory",
                client=slow.client_id, host=slow.host, unread_bytes=slow.unread_bytes,
            )  # fmt: skip
            over = self.ledger.hold_answers(slow, 0)
            slow.abort()

    def worked(self, spent_ms: int) -> None:
        """Notes how long the loop worked for one connection."""
        self.worked_ms += spent_ms
        self.breathe_soon()

    def breathe_soon(self) -> None:
        """Lets the loop look at everything else before it works on."""
        if not self._breathes:
            self._breathes = True
            self.loop.call_soon(self._breathe)

    def _breathe(self) -> None:
        self._breathes = False
        self.worked_ms = 0
        # Those that are put back meanwhile have their next turn after the others.
        for _ in range(len(self.waiting)):
            if self.worked_ms > TURN_MS:
                break
            self.waiting.popleft().go_on()
        if self.waiting:
            self.breathe_soon()

    def _refuse(self, connection: Connection, sentence: str) -> None:
        """Tells a client that there is no room; it may take a moment to read that."""
        self.refused += 1
        self.handler.on_unreadable(connection, TooManyConnections(sentence))
        connection.refuse()
        self.ledger.leave(connection)
        self._refused[connection] = None
        if len(self._refused) > REFUSED_MAX:
            oldest = next(iter(self._refused))
            del self._refused[oldest]
            oldest.abort()

    def leave(self, connection: Connection) -> None:
        """Counts a lost connection out; called by the connection."""
        self.connections.pop(connection, None)
        self._refused.pop(connection, None)
        self.ledger.leave(connection)
        if not self.connections:
            self._all_lost.set()
        self.handler.on_lost(connection)


def _refusal_of_plain(data: bytes) -> bytes:
    """What a client gets that does not speak TLS here; its first request is answered where it came whole."""
    sentence = "this broker speaks TLS alone; write its address as tls://HOST:PORT?ca=FILE, or set HEADRACE_TLS_CA"
    correlation, client = 0, ""
    with suppress(MessageQueueError):
        for frame in FrameReader(len(data)).feed(data):
            correlation = frame.correlation
            if frame.code == RequestCode.HELLO:
                client = decode(Hello, frame.body).client_id
            break
    if client != SUPERVISOR:
        _log.warning("connection refused", client=client, reason="it does not speak TLS")
    code = MalformedRequest.code
    return encode_frame(code, correlation, encode(ErrorAnswer(sentence)), flags=FLAG_ANSWER)


def listening_socket(host: str, port: int) -> socket.socket:
    """Returns a socket that listens already, for a process whose servers come and go: see `FrameServer.listen`.

    Args:
        host: an address of this machine.
        port: 0 takes a free one.

    Raises:
        MessageQueueError: the address cannot be bound.
    """
    try:
        return socket.create_server((host, port), family=_family(host), backlog=_BACKLOG)
    except OSError as error:
        raise _cannot_listen(host, port, error) from error


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _cannot_listen(host: str, port: int, error: OSError) -> MessageQueueError:
    return MessageQueueError(f"cannot listen on {host}:{port} ({_reason(error)}); {_remedy(error)}")


def _reason(error: OSError) -> str:
    # asyncio's own sentence says no more than ours.
    if error.errno is None or isinstance(error, socket.gaierror):
        return str(error.strerror or error)
    return os.strerror(error.errno)


def _remedy(error: OSError) -> str:
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return "name an address of this machine, 127.0.0.1 or 0.0.0.0 say"
    if error.errno == errno.EACCES:
        return "choose a port from 1024 on"
    return "stop what uses the port, or choose another one"

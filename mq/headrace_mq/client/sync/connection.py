"""
A plain blocking connection to a broker: it says HELLO, logs in, and asks one thing after the other.

Used by `reader`, from one thread at a time; uses the frames of the protocol. It knows no queues and no offsets.
"""

import random
import socket
import ssl
import time
import uuid
from typing import TypeVar

from headrace_mq._net.address import (
    BrokerAddress,
    ClientLogin,
    ClusterName,
    reasons_of,
    unreachable,
)
from headrace_mq._net.certificates import broken_sentence, client_context
from headrace_mq._net.client_connection import ANSWER_BYTES_BEFORE_HELLO_MAX, ANSWER_BYTES_MAX
from headrace_mq._net.link import hello_for
from headrace_mq._net.login import login_steps
from headrace_mq._net.name_servers import ANSWER_MS_MAX, best_of, routes_of
from headrace_mq.errors import (
    Closed,
    ConnectionLost,
    MessageQueueError,
    NotLeader,
    RequestTimeout,
    ResponseCode,
    TlsFailed,
    error_for,
)
from headrace_mq.protocol.access import LoginAnswer
from headrace_mq.protocol.bodies import Body, ErrorAnswer, HelloAnswer, decode, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import Frame, FrameReader, encode_frame
from headrace_mq.protocol.names.routes import FindRoutes, RoutesAnswer

__all__ = ["BlockingConnection", "places_of"]

RECEIVE_BYTES = 256 << 10
# With TLS one call brings one record, which is no larger.
_RECORD_BYTES = 16 << 10
# How often a group is asked whether it has a leader again; an election takes about a second.
_ELECTION_S = 0.1

B = TypeVar("B", bound=Body)
_Places = tuple[tuple[str, int], ...]
# Where the brokers of an address were the last time, for when no name server answers: each reader has a connection of its own.
_LAST_KNOWN: dict[str, _Places] = {}
_LAST_KNOWN_MAX = 64


class BlockingConnection:
    """A connection to the first broker of an address that serves.

    Args:
        address: as of `BlockingReader`.
        timeout_ms: the longest silence of the broker, while connecting and later.
        reads: it is for reads alone, so that a replica may serve it; one that does not is not asked again.

    Attributes:
        is_to_replica: whether a replica serves it.

    Raises:
        ConnectionLost: no broker answers there; the sentence says what to check.
    """

    def __init__(self, address: str, *, timeout_ms: int, reads: bool = False) -> None:
        self._address = address
        self._timeout_ms = timeout_ms
        self._reads = reads
        self.is_to_replica = False
        self._frames = FrameReader(ANSWER_BYTES_BEFORE_HELLO_MAX)
        self._next_correlation = 1
        # Requests whose answers a caller waits for, and answers that came while another was waited for.
        self._expected: set[int] = set()
        self._arrived: dict[int, Frame] = {}
        self._socket: socket.socket | None = None
        self._host = ""
        self._receive_bytes = RECEIVE_BYTES
        self._connect()
        self._frames.frame_bytes_max = ANSWER_BYTES_MAX

    def close(self) -> None:
        """Closes the connection."""
        sock, self._socket = self._socket, None
        if sock is not None:
            sock.close()

    def ask(self, kind: type[B], code: RequestCode, body: Body) -> B:
        """Asks, and returns the answer. Raises as `receive`."""
        return decode(kind, self.receive(self.send(code, body)))

    def send(self, code: RequestCode, body: Body) -> int:
        """Sends a request; returns what to `receive` its answer with. Raises ConnectionLost, Closed."""
        correlation = self._next_correlation
        self._next_correlation += 1
        try:
            self._open_socket().sendall(encode_frame(code, correlation, encode(body)))
        except OSError as error:
            raise self._lost(error) from error
        self._expected.add(correlation)
        return correlation

    def receive(self, correlation: int) -> memoryview:
        """Returns the body of an answer.

        Raises:
            BrokerError: the broker refused.
            ConnectionLost, RequestTimeout, Closed: no answer will come.
        """
        while correlation not in self._arrived:
            try:
                data = self._open_socket().recv(self._receive_bytes)
            except OSError as error:
                raise self._lost(error) from error
            if not data:
                raise self._lost(None)
            for frame in self._frames.feed(data):
                if frame.is_answer and frame.correlation == 0:
                    # About the connection as a whole, which the broker closes now.
                    self.close()
                    raise error_for(frame.code, decode(ErrorAnswer, frame.body).sentence)
                if frame.correlation in self._expected:
                    self._arrived[frame.correlation] = frame
        frame = self._arrived.pop(correlation)
        self._expected.discard(correlation)
        if frame.code != ResponseCode.OK:
            raise error_for(frame.code, decode(ErrorAnswer, frame.body).sentence)
        return frame.body

    def forget(self, correlation: int) -> None:
        """Drops an answer that no caller waits for any more."""
        self._expected.discard(correlation)
        self._arrived.pop(correlation, None)

    def _open_socket(self) -> socket.socket:
        if self._socket is None:
            raise Closed(f"the reader of {self._address} is closed; make a new one")
        return self._socket

    def _lost(self, error: OSError | None) -> ConnectionLost | RequestTimeout:
        # After a timeout or half an answer the stream is of no use.
        self.close()
        if isinstance(error, TimeoutError):
            return RequestTimeout(f"no answer from {self._address} within {self._timeout_ms} ms")
        if isinstance(error, ssl.SSLError):
            return TlsFailed(broken_sentence(error, self._host))
        return ConnectionLost(
            f"the connection to {self._address} ended: {error or 'closed by the broker'}"
        )

    def _connect(self) -> None:
        """Connects to the first address that answers; a group without a leader is asked again, for the time of one."""
        until = time.monotonic() + self._timeout_ms / 1_000
        while True:
            failures = self._connect_once()
            if not failures:
                return
            waits = any(isinstance(error, NotLeader) for error in failures.values())
            if not waits or self._reads or time.monotonic() > until:
                raise unreachable(self._address, reasons_of(failures)) from next(
                    iter(failures.values())
                )
            time.sleep(_ELECTION_S)

    def _connect_once(self) -> dict[tuple[str, int], Exception]:
        """Returns why no address answered; nothing if one did. All together have the time of one."""
        address = BrokerAddress.parse(self._address)
        tls, login = address.tls, address.login
        places = places_of(address, self._timeout_ms)
        context = None if tls is None else client_context(tls)
        timeout_s = self._timeout_ms / 1_000
        failures: dict[tuple[str, int], Exception] = {}
        for place in places:
            reached = False
            try:
                self._socket = socket.create_connection(place, timeout=timeout_s / len(places))
                reached = True
                self._socket.settimeout(timeout_s)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._host = place[0]
                if context is not None:
                    self._secure(context)
                self._greet(login)
            except NotLeader as error:
                self.close()
                self._frames = FrameReader(ANSWER_BYTES_BEFORE_HELLO_MAX)
                failures[place] = error
            except (OSError, ConnectionLost, RequestTimeout) as error:
                self.close()
                if reached and len(places) == 1:
                    raise
                self._frames = FrameReader(ANSWER_BYTES_BEFORE_HELLO_MAX)
                failures[place] = error
            except BaseException:
                self.close()
                raise
            else:
                return {}
        return failures

    def _greet(self, login: ClientLogin | None) -> None:
        said = hello_for(str(uuid.uuid4()), reads=self._reads)
        hello = self.ask(HelloAnswer, RequestCode.HELLO, said)
        self.is_to_replica = hello.replica
        steps = login_steps(login, hello)
        request = next(steps, None)
        while request is not None:
            answer = self.ask(LoginAnswer, RequestCode.LOGIN, request)
            try:
                request = steps.send(answer)
            except StopIteration:
                return

    def _secure(self, context: ssl.SSLContext) -> None:
        try:
            self._socket = context.wrap_socket(self._open_socket(), server_hostname=self._host)
        except OSError as error:
            raise self._lost(error) from error
        self._receive_bytes = _RECORD_BYTES


def places_of(address: BrokerAddress, timeout_ms: int) -> _Places:
    """Returns where the brokers of an address are.

    Raises:
        MessageQueueError: no name server tells a place, and none is known.
    """
    if address.cluster is None:
        return address.places
    return _named_places(address, address.cluster, timeout_ms)


def _named_places(address: BrokerAddress, name: ClusterName, timeout_ms: int) -> _Places:
    """Returns where brokers are, as name servers say; if none says it, where they were.

    Raises:
        MessageQueueError: no name server tells a place, and none is known.
    """
    failures: dict[tuple[str, int], Exception] = {}
    found: _Places = ()
    for server in random.sample(address.places, len(address.places)):
        one = str(address._replace(places=(server,), cluster=None))
        try:
            connection = BlockingConnection(one, timeout_ms=min(timeout_ms, ANSWER_MS_MAX))
            try:
                answer = connection.ask(RoutesAnswer, RequestCode.ROUTES, FindRoutes(*name))
            finally:
                connection.close()
            places, leads = routes_of(answer, name)
        except MessageQueueError as error:
            failures[server] = error
            continue
        found = tuple(places) if leads else found or tuple(places)
        if leads:
            break
    found = found or _LAST_KNOWN.get(str(address), ())
    if not found:
        raise best_of(failures)
    if len(_LAST_KNOWN) >= _LAST_KNOWN_MAX:
        _LAST_KNOWN.clear()
    _LAST_KNOWN[str(address)] = found
    return found

"""
The name server: listens, lets brokers register, and tells clients where they are.

    broker  HELLO, LOGIN ─▶ REGISTER every second ─▶ kept in `route_table`
    client  HELLO, LOGIN ─▶ ROUTES ─▶ the brokers of a cluster, leaders first; the client then leaves

With a login, REGISTER needs a user that may administer the cluster, as FOLLOW does, and ROUTES needs any user. Without one,
each client that gets here may do both.

Used by `process`; uses the frame server and the login of brokers.
"""

import sys
from pathlib import Path

from headrace_mq._net.certificates import ServerCertificates, ServerFiles
from headrace_mq._net.ledger import Budgets
from headrace_mq._net.server import Connection, FrameServer, ServerLimits
from headrace_mq._runtime.clock import Clock, SystemClock
from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.metadata import users_file
from headrace_mq.broker.refusals import refuse
from headrace_mq.broker.users.replica_door import ReplicaDoor
from headrace_mq.broker.users.user_book import UserBook
from headrace_mq.errors import (
    BrokerError,
    MalformedRequest,
    MessageQueueError,
    ResponseCode,
    Throttled,
    UnknownRequest,
    UnsupportedVersion,
)
from headrace_mq.name_settings import NameServerSettings
from headrace_mq.nameserver.route_table import RouteTable
from headrace_mq.protocol.access import Login
from headrace_mq.protocol.bodies import Body, ErrorAnswer, Hello, HelloAnswer, decode, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import FLAG_ANSWER, PROTOCOL_VERSION, Frame
from headrace_mq.protocol.names.routes import FindRoutes, Register, Registered, RoutesAnswer

__all__ = ["NameServer"]

# A stopping name server waits this long for clients to take their last answers.
_CLOSE_GRACE_MS = 1_000
# How long a frame may take to arrive; it has a few KiB.
_FRAME_MS_MAX = 10_000
# Answers that one client has not read, and all of them: some thirty of the largest.
_ANSWERS_BYTES_MAX, _ALL_ANSWERS_BYTES_MAX = 4 << 20, 64 << 20
_REQUESTS_BYTES_MAX = 64 << 20
# Lines about logins in the log, and about refusals, in a second.
_LINES_PER_SECOND_MAX = 20
# And of one client that is refused, in a minute; the rest is counted.
_REFUSALS_PER_MINUTE_MAX = 10
_SECOND_MS = 1_000
_SERVED = (RequestCode.REGISTER, RequestCode.ROUTES)

_log = get_logger(__name__)


class NameServer:
    """One name server in this process, from `start` to `aclose`.

    Args:
        settings: where it listens, who may come, and its limits.
        clock: the time.

    Attributes:
        address: where it listens; empty before `start`.
        answered: how many requests of each kind were answered.
        refused: how many were refused.
    """

    def __init__(self, settings: NameServerSettings, *, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._table = RouteTable[Connection](
            registrations_max=settings.registrations_max, expiry_ms=settings.expiry_ms,
            not_ready_ms=settings.not_ready_ms, now_ms=self._clock.monotonic_ms(),
        )  # fmt: skip
        self._server = FrameServer(_limits_of(settings), self, self._clock)
        self._book: UserBook | None = None
        self._door: ReplicaDoor | None = None
        # Of each connection: the second in which it asked last, and how often it asked in that.
        self._asked: dict[Connection, tuple[int, int]] = {}
        self.address = ""
        self.answered = {code.name.lower(): 0 for code in _SERVED}
        self.refused = 0

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._server.connections)

    @property
    def expired(self) -> int:
        """How many brokers were forgotten because they said nothing."""
        return self._table.expired

    async def start(self) -> None:
        """Begins to listen.

        Raises:
            DataCorrupt, FormatTooNew: the file of users cannot be used.
            MessageQueueError: the address cannot be bound, a certificate cannot be used, or there is no administrator
                as whom brokers could log in.
        """
        settings = self._settings
        if settings.login and settings.data is not None:
            self._book = _book_of(settings.data)
            self._door = ReplicaDoor(
                self._book,
                self._clock,
                _LINES_PER_SECOND_MAX,
                _REFUSALS_PER_MINUTE_MAX,
                tells_all=False,
            )
        certificates = None
        if settings.tls_certificate is not None and settings.tls_key is not None:
            files = ServerFiles(settings.tls_certificate, settings.tls_key, settings.tls_client_ca)
            certificates = ServerCertificates(files)
        self.address = await self._server.listen(settings.host, settings.port, certificates)
        _log.info("name server started", address=self.address)

    def renew(self) -> None:
        """Reads certificates and users again; connections that stand stay as they are."""
        self._server.renew_certificates()
        if self._book is not None:
            try:
                self._book.load()
            except MessageQueueError as error:
                _log.error(
                    "the file of users cannot be read; the last one counts", reason=str(error)
                )

    async def aclose(self) -> None:
        """Stops; brokers and clients go on with what they know."""
        await self._server.aclose(_CLOSE_GRACE_MS)
        if self._door is not None:
            self._door.close()

    def routes(self, cluster: str, group: str) -> RoutesAnswer:
        """Returns the brokers that are known now."""
        return self._table.routes(cluster, group, self._clock.monotonic_ms())

    # The frame server calls these.

    def on_frame(self, connection: Connection, frame: Frame) -> None:
        """Answers one frame."""
        try:
            answer = self._answer(connection, frame)
        except Exception as error:  # noqa: BLE001 - every failure becomes an answer
            self.refused += 1
            refuse(connection, frame, error)
        else:
            if not frame.is_oneway:
                connection.answer(ResponseCode.OK, frame.correlation, encode(answer))

    def on_unreadable(self, connection: Connection, error: BrokerError) -> None:
        """Says why the connection will be closed."""
        connection.answer(error.code, 0, encode(ErrorAnswer(str(error))))

    def on_drained(self, connection: Connection) -> None:
        """Nothing waits for it."""

    def on_lost(self, connection: Connection) -> None:
        """Forgets the broker that was registered over it."""
        self._asked.pop(connection, None)
        said = self._table.drop(connection)
        if said is not None:
            _log.info("broker gone", host=connection.host, **_told(said))
        if self._door is not None:
            self._door.forget(connection)

    def _answer(self, connection: Connection, frame: Frame) -> Body:
        code = frame.code
        if not connection.client_id:
            return self._greet(connection, frame)
        if frame.version != connection.version:
            raise UnsupportedVersion(
                f"this connection speaks protocol version {connection.version}, a frame has {frame.version}; keep to"
                " what HELLO agreed on"
            )
        if frame.flags & FLAG_ANSWER:
            raise MalformedRequest("a client sends requests, this frame is marked as an answer")
        self._count(connection)
        door = self._door
        if code == RequestCode.LOGIN and door is not None and not connection.user:
            reply = door.step(connection, decode(Login, frame.body))
            if connection.user:
                connection.admit(self._settings.frame_bytes_max)
            return reply
        if code not in _SERVED:
            raise UnknownRequest(
                "this is a name server, which only knows where brokers are; write nameserver://HOST:PORT/CLUSTER as the"
                " broker's address"
            )
        if door is not None:
            door.check(connection, frame)
        now_ms = self._clock.monotonic_ms()
        if code == RequestCode.REGISTER:
            said = decode(Register, frame.body)
            if self._table.register(connection, said, now_ms):
                _log.info("broker registered", host=connection.host, **_told(said))
            answer: Body = Registered(self._settings.expiry_ms)
        else:
            asked = decode(FindRoutes, frame.body)
            answer = self._table.routes(asked.cluster, asked.group, now_ms)
        self.answered[RequestCode(code).name.lower()] += 1
        return answer

    def _greet(self, connection: Connection, frame: Frame) -> Body:
        if frame.code != RequestCode.HELLO:
            raise MalformedRequest("the first frame of a connection is HELLO")
        hello = decode(Hello, frame.body)
        if not hello.version_min <= PROTOCOL_VERSION <= hello.version_max or not hello.client_id:
            raise UnsupportedVersion(
                f"this name server speaks protocol version {PROTOCOL_VERSION}, to clients that say who they are; use"
                " one of its version"
            )
        connection.greet(hello.client_id, PROTOCOL_VERSION)
        login = [] if self._door is None else self._door.greet(connection)
        if not login:
            connection.admit(self._settings.frame_bytes_max)
        return HelloAnswer(self.address, PROTOCOL_VERSION, 0, self._settings.frame_bytes_max, login)

    def _count(self, connection: Connection) -> None:
        second = self._clock.monotonic_ms() // _SECOND_MS
        last, count = self._asked.get(connection, (second, 0))
        count = count + 1 if last == second else 1
        self._asked[connection] = (second, count)
        if count > self._settings.requests_per_second_max:
            raise Throttled(
                f"a connection may send {self._settings.requests_per_second_max} requests in a second to a name server;"
                " wait a second"
            )


def _told(said: Register) -> dict[str, object]:
    return {
        "cluster": said.cluster, "group": said.group, "broker": said.broker, "role": said.role, "epoch": said.epoch,
    }  # fmt: skip


def _book_of(data: Path) -> UserBook:
    book = UserBook(users_file(data))
    book.load()
    if not book.has_admin:
        raise MessageQueueError(
            f"with login on, brokers register as an administrator, and {data} has none: run `headrace user add NAME"
            f" --admin --data {data}`, and start it again"
        )
    return book


def _limits_of(settings: NameServerSettings) -> ServerLimits:
    return ServerLimits(
        budgets=Budgets(
            connections_max=settings.connections_max,
            connections_per_address_max=settings.connections_per_address_max,
            connections_before_hello_max=settings.connections_per_address_max,
            requests_bytes_max=_REQUESTS_BYTES_MAX,
            answers_bytes_max=_ALL_ANSWERS_BYTES_MAX,
            connections_before_hello_per_address_max=settings.connections_per_address_max,
        ),
        descriptors_max=sys.maxsize,
        frame_bytes_before_hello_max=settings.frame_bytes_max,
        outgoing_bytes_max=_ANSWERS_BYTES_MAX,
        hello_ms=settings.login_ms_max,
        frame_ms=_FRAME_MS_MAX,
        vanished_ms=settings.vanished_ms_max,
        busy_poll_us=0,
    )

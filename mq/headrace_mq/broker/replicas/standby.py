"""
What a broker of a group answers while it serves no clients: where the leader is, and, before a term begins, to replicas.

    client  HELLO ─▶ NOT_LEADER, with the leader's address: the client asks the next one of the group
    reader  HELLO, LOGIN, FETCH, DESCRIBE_SETTINGS ─▶ answered, while this broker is a replica in sync
    replica HELLO, LOGIN, FOLLOW ─▶ answered, once this broker was elected: it may serve when the others have its log

Used by `replicated_broker`; the frame server calls it.
"""

from collections.abc import Callable
from typing import Protocol

from headrace_mq._net.server import Connection
from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.refusals import refuse
from headrace_mq.broker.replicas.followers import Followers
from headrace_mq.errors import (
    BrokerError,
    MalformedRequest,
    NotLeader,
    ResponseCode,
    UnsupportedVersion,
)
from headrace_mq.protocol.access import Login, LoginAnswer
from headrace_mq.protocol.bodies import ErrorAnswer, Hello, HelloAnswer, decode, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import PROTOCOL_VERSION, REPLICA_SOFTWARE, Frame
from headrace_mq.protocol.limits import SettingsAnswer

__all__ = ["Standby"]

_log = get_logger(__name__)


class Door(Protocol):
    """Decides which connections are replicas, where there is a login; see `users.replica_door`."""

    def greet(self, connection: Connection) -> list[str]:
        """Takes a certificate for a login, or returns how to log in."""
        ...

    def step(self, connection: Connection, request: Login) -> LoginAnswer:
        """Takes the next message of a login; with the last one the connection has its user."""
        ...

    def check(self, connection: Connection, frame: Frame) -> None:
        """Lets FOLLOW through, or raises."""
        ...

    def forget(self, connection: Connection) -> None:
        """Forgets a closed connection."""
        ...


class Reads(Protocol):
    """Serves those that only read; see `reads.replica_reads`."""

    def begin(self) -> None:
        """Counts from zero."""
        ...

    @property
    def door(self) -> Door | None:
        """Lets users in; None: there is no login."""
        ...

    @property
    def epoch(self) -> int:
        """The one that this replica follows."""
        ...

    def require_current(self) -> None:
        """Raises NotLeader where this broker cannot be sure of what it has."""
        ...

    def greet(self, connection: Connection) -> list[str]:
        """Takes a certificate for a login, or returns how to log in."""
        ...

    def settings(self, connection: Connection, frame: Frame) -> SettingsAnswer:
        """Returns the settings of this broker, or raises."""
        ...

    def fetch(self, connection: Connection, frame: Frame) -> None:
        """Answers a read, now or later."""
        ...

    def look_again(self) -> None:
        """Has reads that wait look again."""
        ...

    def forget(self, connection: Connection) -> None:
        """Forgets a closed connection."""
        ...


class Standby:
    """A frame handler without a broker.

    Args:
        leader: tells where the leader is; empty where there is none.
        frame_bytes_max: for replicas and readers.
        reads: serves those that only read; None: none are served.

    Attributes:
        address: where this broker listens.
        followers: of the term that this broker won; None: it won none.
        door: of that term, for a broker with a login; None: there is none.
    """

    def __init__(
        self, leader: Callable[[], str], frame_bytes_max: int, reads: Reads | None = None
    ) -> None:
        self._leader = leader
        self._frame_bytes_max = frame_bytes_max
        self._reads = reads
        self._readers: set[Connection] = set()
        self.address = ""
        self.followers: Followers | None = None
        self.door: Door | None = None

    def begin(self, address: str) -> None:
        """Begins to answer at an address, at the start or after a term."""
        self.address = address
        if self._reads is not None:
            self._reads.begin()

    def on_frame(self, connection: Connection, frame: Frame) -> None:
        """Answers one frame."""
        try:
            self._serve(connection, frame)
        except Exception as error:  # noqa: BLE001 - every failure becomes an answer
            refuse(connection, frame, error)

    def on_unreadable(self, connection: Connection, error: BrokerError) -> None:
        """Says why the connection will be closed."""
        connection.answer(error.code, 0, encode(ErrorAnswer(str(error))))

    def on_drained(self, connection: Connection) -> None:
        """Has a read look again that waits until the client takes its answers."""
        if self._reads is not None and connection in self._readers:
            self._reads.look_again()

    def on_lost(self, connection: Connection) -> None:
        """Forgets a login that was under way; a question of a lost replica ends by itself."""
        if self.door is not None:
            self.door.forget(connection)
        if self._reads is not None and connection in self._readers:
            self._readers.discard(connection)
            self._reads.forget(connection)

    def _serve(self, connection: Connection, frame: Frame) -> None:
        followers = self.followers
        if self._reads is not None and connection in self._readers:
            self._serve_reader(self._reads, connection, frame)
        elif not connection.client_id:
            if frame.code != RequestCode.HELLO:
                raise MalformedRequest("the first frame of a connection is HELLO")
            hello = decode(Hello, frame.body)
            if hello.reads and self._reads is not None:
                self._greet_reader(self._reads, connection, frame, hello)
                return
            if followers is None or hello.software != REPLICA_SOFTWARE:
                raise NotLeader(self._sentence())
            connection.greet(hello.client_id, PROTOCOL_VERSION)
            login = [] if self.door is None else self.door.greet(connection)
            if not login:
                connection.admit(self._frame_bytes_max)
            answer = HelloAnswer(
                self.address, PROTOCOL_VERSION, followers.epoch, self._frame_bytes_max, login
            )
            connection.answer(ResponseCode.OK, frame.correlation, encode(answer))
        elif frame.code == RequestCode.LOGIN and self.door is not None and not connection.user:
            said = self.door.step(connection, decode(Login, frame.body))
            if connection.user:
                connection.admit(self._frame_bytes_max)
            connection.answer(ResponseCode.OK, frame.correlation, encode(said))
        elif frame.code == RequestCode.FOLLOW and followers is not None:
            if self.door is not None:
                self.door.check(connection, frame)
            followers.follow(connection, frame)
        else:
            raise NotLeader(self._sentence())

    def _greet_reader(
        self, reads: Reads, connection: Connection, frame: Frame, hello: Hello
    ) -> None:
        if not hello.version_min <= PROTOCOL_VERSION <= hello.version_max:
            raise UnsupportedVersion(
                f"this broker speaks protocol version {PROTOCOL_VERSION}, the client {hello.version_min} to"
                f" {hello.version_max}; update the older of the two"
            )
        reads.require_current()
        login = reads.greet(connection)
        connection.greet(hello.client_id, PROTOCOL_VERSION)
        self._readers.add(connection)
        if not login:
            connection.admit(self._frame_bytes_max)
        answer = HelloAnswer(
            self.address, PROTOCOL_VERSION, reads.epoch, self._frame_bytes_max, login, replica=True
        )
        connection.answer(ResponseCode.OK, frame.correlation, encode(answer))

    def _serve_reader(self, reads: Reads, connection: Connection, frame: Frame) -> None:
        if frame.code == RequestCode.LOGIN and reads.door is not None and not connection.user:
            said = reads.door.step(connection, decode(Login, frame.body))
            if connection.user:
                connection.admit(self._frame_bytes_max)
            connection.answer(ResponseCode.OK, frame.correlation, encode(said))
        elif frame.code == RequestCode.FETCH:
            reads.fetch(connection, frame)
        elif frame.code == RequestCode.DESCRIBE_SETTINGS:
            found = reads.settings(connection, frame)
            connection.answer(ResponseCode.OK, frame.correlation, encode(found))
        else:
            raise NotLeader(self._sentence())

    def _sentence(self) -> str:
        if self.followers is not None and (hindrance := self.followers.leadership.hindrance):
            return f"this broker leads its group, and does not serve yet: {hindrance}"
        leader = self._leader()
        where = f"its leader is at {leader}" if leader else "it has no leader at the moment"
        return (
            f"this broker is a replica of its group, and {where}; name all brokers of the group in"
            " the address, HOST:PORT,HOST:PORT"
        )

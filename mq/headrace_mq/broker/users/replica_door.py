"""
Lets replicas of a broker with a login in before its term begins: the same users, proofs and rules as later.

    HELLO ─▶ a certificate that is a user, or LOGIN ─▶ FOLLOW, for those that may administer the cluster
                                                     └▶ FETCH at a replica, for those that may consume the topics

Used by the standby of a group, for one term that is not served yet; from then on the broker's own handlers do the same.
The store takes no entries yet, so the audit of this time stands in the log alone. Name servers use it too: they have no
store at all.
"""

from collections.abc import Collection

from headrace_mq._net.server import Connection
from headrace_mq._runtime.clock import Clock
from headrace_mq.access.needs import NEEDS
from headrace_mq.access.resources import Action, Ask, ResourceKind, owned
from headrace_mq.broker.users.audit import Audit, AuditLimits
from headrace_mq.broker.users.logins import Logins
from headrace_mq.broker.users.user_book import UserBook
from headrace_mq.errors import InvalidArgument, LoginFailed, NotPermitted
from headrace_mq.message import QueueRef
from headrace_mq.protocol.access import ED25519, SCRAM, Login, LoginAnswer
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import Frame
from headrace_mq.store.log.commit_gate import Durable
from headrace_mq.store.message_store import Appended

__all__ = ["ReplicaDoor"]

_NO_LOGIN: dict[int, str] = {
    RequestCode.FOLLOW: "a broker of this group follows as a user: set group.user and group.password_file",
    RequestCode.REGISTER: "a broker registers here as a user: write --nameservers with its user and the file with the"
    " password, tls://HOST:PORT?user=NAME&password_file=FILE",
    RequestCode.DESCRIBE_SETTINGS: "this broker serves users that have logged in: set HEADRACE_USER and HEADRACE_PASSWORD_FILE",
}
_NO_LOGIN_OF_CLIENT = (
    "this name server answers users that have logged in: set HEADRACE_USER and HEADRACE_PASSWORD_FILE, or add"
    " user=NAME&password_file=FILE to its address"
)


class ReplicaDoor:
    """Decides which connections are replicas.

    Args:
        book: the users and rules of the group, loaded.
        clock: the time.
        per_second_max: lines about logins in the log, and about refusals, in a second.
        refusals_per_minute_max: lines about refusals of one client in a minute.
        tells_all: whether the log has logins that succeed, too: those of a name server's clients come all the time.
    """

    def __init__(
        self,
        book: UserBook,
        clock: Clock,
        per_second_max: int,
        refusals_per_minute_max: int,
        *,
        tells_all: bool = True,
    ) -> None:
        self._book = book
        self._tells_all = tells_all
        limits = AuditLimits(
            entries_max=1,
            per_second_max=per_second_max,
            refusals_per_minute_max=refusals_per_minute_max,
            retention="",
        )
        self._audit = Audit(
            _NoStore(),
            clock,
            limits,
            is_closed=lambda: True,
            is_user=lambda name: name in book.policy.users,
        )
        self._logins = Logins[Connection](
            book.credentials, lambda: book.secret, clock.monotonic_ms, book.public_key
        )

    def greet(self, connection: Connection) -> list[str]:
        """Takes a certificate for a login if it is a user's; else returns how to log in."""
        if connection.principal and self._book.is_certified(connection.principal):
            connection.user = connection.principal
            self._note(connection, "done", connection.user, "with a certificate")
            return []
        return [SCRAM, ED25519]

    def step(self, connection: Connection, request: Login) -> LoginAnswer:
        """Takes the next message of a login; with the last one the connection has its user.

        Raises:
            LoginFailed, InvalidArgument: as `Logins.step`.
        """
        try:
            found = self._logins.step(connection, connection.host, request)
        except (InvalidArgument, LoginFailed) as error:
            self._note(connection, "failed", self._logins.named, str(error))
            raise
        if found.user:
            connection.user = found.user
            proof = "with a key" if request.mechanism == ED25519 else "with a password"
            self._note(connection, "done", found.user, proof)
        return found.answer

    def check(self, connection: Connection, frame: Frame) -> None:
        """Lets FOLLOW through, or another request about the cluster.

        Raises:
            LoginFailed: the connection has no user.
            NotPermitted: its user may not do that.
        """
        name = RequestCode(frame.code).name.lower()
        if not connection.user:
            self._audit.refuse(connection, name, detail="no login")
            raise LoginFailed(_NO_LOGIN.get(frame.code, _NO_LOGIN_OF_CLIENT))
        asks = NEEDS[frame.code].asks
        assert asks is not None
        granted = self._book.policy.grants(connection.user)
        for ask in asks(frame.body, lambda _: 0):
            if granted.allows(ask):
                continue
            self._audit.refuse(
                connection, name, resource=ask.resource, detail=f"needs {ask.action}"
            )
            if ask.action != Action.ADMINISTER:
                raise NotPermitted(f"user {connection.user!r} may not {ask}")
            raise NotPermitted(
                f"user {connection.user} may not {name}: a broker's user is an administrator, or may administer the"
                " cluster"
            )

    def check_read(self, connection: Connection, topics: Collection[str]) -> None:
        """Lets a read of topics through.

        Raises:
            LoginFailed: the connection has no user.
            NotPermitted: its user may not consume one of them.
        """
        if not connection.user:
            self._audit.refuse(connection, "fetch", detail="no login")
            raise LoginFailed(
                "this broker serves users that have logged in: set HEADRACE_USER and HEADRACE_PASSWORD_FILE"
            )
        granted = self._book.policy.grants(connection.user)
        for topic in topics:
            ask = owned(Ask(Action.CONSUME, ResourceKind.TOPIC, topic))
            if not granted.allows(ask):
                self._audit.refuse(
                    connection, "fetch", resource=ask.resource, detail=f"needs {ask.action}"
                )
                raise NotPermitted(f"user {connection.user!r} may not {ask}")

    def forget(self, connection: Connection) -> None:
        """Forgets a login that a closed connection left undone."""
        self._logins.forget(connection)
        self._audit.look()

    def close(self) -> None:
        """Writes to the log what was only counted; from now on the broker's own audit has the logins."""
        self._audit.look(ending=True)

    def _note(self, connection: Connection, outcome: str, user: str, detail: str) -> None:
        if outcome == "done" and not self._tells_all:
            return
        resource = f"user:{user}" if user else ""
        self._audit.note(connection, "login", outcome, resource=resource, detail=detail)


class _NoStore:
    """The store of an audit that stands in the log alone."""

    def append(self, batch: bytearray | memoryview, *, retention: str) -> Appended:
        """Is never called."""
        raise NotImplementedError

    def durable(self) -> Durable:
        """Is never called."""
        raise NotImplementedError

    def range(self, queue: QueueRef) -> tuple[int, int]:  # noqa: ARG002 - as of a store
        """Has no entry."""
        return 0, 0

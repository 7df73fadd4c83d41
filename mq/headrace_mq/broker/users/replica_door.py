"""
Lets replicas of a broker with a login in before its term begins: the same users, proofs and rules as later.

    HELLO ─▶ a certificate that is a user, or LOGIN ─▶ FOLLOW, for those that may administer the cluster

Used by the standby of a group, for one term that is not served yet; from then on the broker's own handlers do the same.
"""

from headrace_mq._net.server import Connection
from headrace_mq._runtime.clock import Clock
from headrace_mq.access.needs import NEEDS
from headrace_mq.broker.users.logins import Logins
from headrace_mq.broker.users.user_book import UserBook
from headrace_mq.errors import LoginFailed, NotPermitted
from headrace_mq.protocol.access import ED25519, SCRAM, Login, LoginAnswer
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import Frame

__all__ = ["ReplicaDoor"]


class ReplicaDoor:
    """Decides which connections are replicas.

    Args:
        book: the users and rules of the group, loaded.
        clock: the time.
    """

    def __init__(self, book: UserBook, clock: Clock) -> None:
        self._book = book
        self._logins = Logins[Connection](
            book.credentials, lambda: book.secret, clock.monotonic_ms, book.public_key
        )

    def greet(self, connection: Connection) -> list[str]:
        """Takes a certificate for a login if it is a user's; else returns how to log in."""
        if connection.principal and self._book.is_certified(connection.principal):
            connection.user = connection.principal
            return []
        return [SCRAM, ED25519]

    def step(self, connection: Connection, request: Login) -> LoginAnswer:
        """Takes the next message of a login; with the last one the connection has its user.

        Raises:
            LoginFailed, InvalidArgument: as `Logins.step`.
        """
        found = self._logins.step(connection, connection.host, request)
        if found.user:
            connection.user = found.user
        return found.answer

    def check(self, connection: Connection, frame: Frame) -> None:
        """Lets FOLLOW through.

        Raises:
            LoginFailed: the connection has no user.
            NotPermitted: its user may not follow.
        """
        if not connection.user:
            raise LoginFailed(
                "a broker of this group follows as a user: set group.user and group.password_file"
            )
        asks = NEEDS[RequestCode.FOLLOW].asks
        assert asks is not None
        granted = self._book.policy.grants(connection.user)
        if not all(granted.allows(ask) for ask in asks(frame.body, lambda _: 0)):
            raise NotPermitted(
                f"user {connection.user} may not follow: a broker's user is an administrator, or may administer the"
                " cluster"
            )

    def forget(self, connection: Connection) -> None:
        """Forgets a login that a closed connection left undone."""
        self._logins.forget(connection)

"""
The guard before the handlers: no request is served that its user may not make, and what changes anything is noted.

It asks the policy of this moment for each request, so a change takes effect with the next request of every
connection. The answers are remembered as long as the policy stands. Without a login it lets everything through, but
for writing to the audit, and notes changes all the same.

Used by the dispatcher, and by handlers such as those of PRODUCE and FETCH; uses the table of needs. It tells the audit of refusals
and changes.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from headrace_mq._net.server import Connection
from headrace_mq.access.audit import AUDIT_ALONE
from headrace_mq.access.needs import NEEDS
from headrace_mq.access.resources import (
    MARKS,
    Action,
    Ask,
    ResourceKind,
    is_audit_change,
    is_open,
    owned,
)
from headrace_mq.broker.users.audit import Audit
from headrace_mq.broker.users.details import detail_of
from headrace_mq.broker.users.user_book import UserBook
from headrace_mq.errors import InvalidArgument, LoginFailed, NotPermitted
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import Frame

__all__ = ["Guard"]

# Resources that one request may name: as many as the handlers take.
ASKS_MAX = 4_096
# Users with topics, and groups, that are remembered to pass: as many as there are queues. Some 150 bytes each.
PASSED_MAX = 65_536
_CHANGES = frozenset({Action.CREATE, Action.UPDATE, Action.DELETE, Action.ADMINISTER})

_ASKED_BY_HANDLERS = frozenset(code for code, need in NEEDS.items() if need.asks is None)
# Their handlers note what exactly they changed.
_NOTED_BY_HANDLERS = frozenset({RequestCode.SET_USER, RequestCode.SET_RULE})
# Resources of one request that its entry names.
_NAMED_MAX = 16

R = TypeVar("R")


class Guard:
    """Decides for each request whether it is served.

    Args:
        book: the users and rules; None: there is no login.
        known: tells how many queues a topic has; 0 for one that there is not.
        audit: writes refusals and changes.

    Attributes:
        refused: requests that were refused since the start, because a rule does not allow them.
    """

    def __init__(self, book: UserBook | None, known: Callable[[str], int], audit: Audit) -> None:
        self._book = book
        self._known = known
        self._audit = audit
        self.refused = 0
        # What users sent to and read under this policy: asked for with every batch, so remembered in short.
        self._policy = None if book is None else book.policy
        self._sent: set[tuple[str, str]] = set()
        self._read: set[tuple[str, str, str]] = set()
        self._replicas: set[Connection] = set()

    def passed(
        self, connection: Connection, frame: Frame, handler: Callable[..., R]
    ) -> Callable[..., R]:
        """Lets a request through to its handler; what changes anything comes into the audit. Raises as `check`."""
        code = frame.code
        if code in _ASKED_BY_HANDLERS and (connection.user or self._book is None):
            return handler
        changes = self.check(connection, frame)
        if not changes or (detail := detail_of(code, frame.body)) is None:
            return handler
        if code == RequestCode.FOLLOW:  # a replica asks again and again
            if connection in self._replicas:
                return handler
            self._replicas.add(connection)
        resource = "; ".join(ask.resource for ask in changes[:_NAMED_MAX])
        detail = detail or " ".join(dict.fromkeys(ask.action for ask in changes))
        return partial(self._noted, handler, resource, detail)

    def forget(self, connection: Connection) -> None:
        """Forgets a closed connection."""
        self._replicas.discard(connection)

    def check(self, connection: Connection, frame: Frame) -> list[Ask]:
        """Lets a request through; returns what it changes, for the audit.

        Raises:
            LoginFailed: the client has not logged in.
            NotPermitted: its user may not do that; the sentence names action and resource.
            InvalidArgument: it names too many resources.
            MalformedRequest: its body cannot be read.
        """
        code = frame.code
        need = NEEDS[code]
        if need.before_login:
            return []
        if not connection.user and self._book is not None:
            self._audit.refuse(connection, _name(code), detail="no login")
            raise LoginFailed(
                "this broker serves users that have logged in: set HEADRACE_USER and HEADRACE_PASSWORD_FILE, or"
                " add user=NAME&password_file=FILE to its address"
            )
        changes: list[Ask] = []
        if need.asks is not None:
            for count, ask in enumerate(need.asks(frame.body, self._known)):
                if count >= ASKS_MAX:
                    raise InvalidArgument(
                        f"one request names at most {ASKS_MAX} resources; name fewer at a time"
                    )
                self.require(connection, ask, code)
                if ask.action in _CHANGES and code not in _NOTED_BY_HANDLERS:
                    changes.append(ask)
        return changes

    def allows(self, connection: Connection, ask: Ask) -> bool:
        """Returns whether the user of a connection may do something."""
        ask = owned(ask)
        if is_audit_change(ask):
            return False
        return self._book is None or self._book.policy.grants(connection.user).allows(ask)

    def require(self, connection: Connection, ask: Ask, code: int) -> None:
        """Raises NotPermitted unless the user of a connection may do something, asked for with a request."""
        if self.allows(connection, ask):
            return
        ask = owned(ask)
        self.refused += 1
        self._audit.refuse(
            connection, _name(code), resource=ask.resource, detail=f"needs {ask.action}"
        )
        if is_audit_change(ask):
            raise NotPermitted(AUDIT_ALONE)
        raise NotPermitted(
            f"user {connection.user!r} may not {ask}; `headrace acl explain` tells why, and `headrace acl allow"
            " USER ACTION RESOURCE` allows it"
        )

    def require_publish(self, connection: Connection, topic: str) -> None:
        """Raises NotPermitted unless messages may be sent to a topic, which is made if need be."""
        key = (connection.user, topic)
        if key in self._sent and self._holds():
            return
        ask = Ask(Action.PUBLISH, ResourceKind.TOPIC, topic)
        self.require(connection, ask, RequestCode.PRODUCE)
        if not self._known(topic):
            self.require(connection, ask._replace(action=Action.CREATE), RequestCode.PRODUCE)
        self._trim()
        self._sent.add(key)

    def hides(self, connection: Connection, topic: str) -> bool:
        """Whether the user of a connection sees no more than the heads of a topic's messages."""
        ask = Ask(Action.CONSUME, ResourceKind.TOPIC, topic)
        # Marks say which letters were sent again; nothing of the letters.
        return not topic.startswith(MARKS) and not self.allows(connection, ask)

    def require_heads(self, connection: Connection, topics: Iterable[str], code: int) -> None:
        """Raises NotPermitted unless at least the heads of the messages of topics may be read."""
        for topic in topics:
            consume = Ask(Action.CONSUME, ResourceKind.TOPIC, topic)
            if self.allows(connection, consume):
                continue
            read = consume._replace(action=Action.READ)
            # What each user may look at shows no message; their keys would be some of it.
            self.require(connection, consume if is_open(read) else read, code)

    def require_fetch(self, connection: Connection, topics: set[str], group: str) -> None:
        """Raises NotPermitted unless messages of topics may be read, for a group if one is named."""
        user, read = connection.user, self._read
        if self._holds() and all((user, group, one) in read for one in topics):
            return
        if group:
            ask = Ask(Action.CONSUME, ResourceKind.GROUP, group)
            self.require(connection, ask, RequestCode.FETCH)
        for topic in topics:
            ask = Ask(Action.CONSUME, ResourceKind.TOPIC, topic)
            self.require(connection, ask, RequestCode.FETCH)
        self._trim()
        self._read.update((user, group, topic) for topic in topics)

    def _noted(
        self,
        handler: Callable[..., R],
        resource: str,
        detail: str,
        state: object,
        connection: Connection,
        frame: Frame,
    ) -> R:
        # What a replica asks for is no change that ends later.
        follows = frame.code == RequestCode.FOLLOW
        request = None if follows else (frame.code, frame.correlation)
        with self._audit.noting(
            connection, _name(frame.code), resource=resource, detail=detail, request=request
        ) as noting:
            answer = handler(state, connection, frame)
            noting.ends_later = answer is None
            return answer

    def _holds(self) -> bool:
        """Whether what is remembered is still true."""
        return self._book is None or self._policy is self._book.policy

    def _trim(self) -> None:
        """Forgets what was asked under another policy, or too much of it."""
        if not self._holds() or len(self._sent) + len(self._read) >= PASSED_MAX:
            self._policy = None if self._book is None else self._book.policy
            self._sent.clear()
            self._read.clear()


def _name(code: int) -> str:
    return RequestCode(code).name.lower()

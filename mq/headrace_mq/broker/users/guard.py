"""
The guard before the handlers: no request is served that its user may not make.

It asks the policy of this moment for each request, so a change takes effect with the next request of every
connection. The answers are remembered as long as the policy stands.

Used by the dispatcher, and by the handlers of PRODUCE and FETCH; uses the table of needs. It keeps the audit:
one line in the log for each login, failure, refusal and administrative action, with who, what, where from and
outcome.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from headrace_mq._net.server import Connection
from headrace_mq._runtime.log import get_logger
from headrace_mq.access.needs import NEEDS
from headrace_mq.access.resources import Action, Ask, ResourceKind, owned
from headrace_mq.broker.users.user_book import UserBook
from headrace_mq.errors import BrokerError, InvalidArgument, LoginFailed, NotPermitted
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import Frame
from headrace_mq.protocol.scheduled import SCHEDULE_TOPIC
from headrace_mq.protocol.transactions import TRANSACTION_TOPIC

__all__ = ["JOURNAL_TOPICS", "Guard", "audit", "audited"]

# The broker's own: what is sent there is for other topics, and those are asked about.
JOURNAL_TOPICS = frozenset({SCHEDULE_TOPIC, TRANSACTION_TOPIC})
# Resources that one request may name: as many as the handlers take.
ASKS_MAX = 4_096
# The same refusal of the same user is written once in this time: a client repeats itself.
SAME_REFUSAL_MS = 60_000
# Users with topics, and groups, that are remembered to pass: as many as there are queues. Some 150 bytes each.
PASSED_MAX = 65_536
REFUSALS_MAX = 1_000
_CHANGES = frozenset({Action.CREATE, Action.UPDATE, Action.DELETE, Action.ADMINISTER})

_ASKED_BY_HANDLERS = frozenset(code for code, need in NEEDS.items() if need.asks is None)
# Their handlers write what exactly they changed.
_WITH_DETAILS = frozenset({RequestCode.SET_USER, RequestCode.SET_RULE})
# Resources of one request that its line names.
_NAMED_MAX = 16

R = TypeVar("R")

_log = get_logger("headrace_mq.audit")


def audit(connection: Connection, action: str, outcome: str, **more: str) -> None:
    """Writes one line of the audit.

    Args:
        connection: of the client: who it is, and where from.
        action: what it did, or wanted to.
        outcome: "done", "refused", "failed".
        more: what else there is to know; no secrets.
    """
    write = _log.info if outcome == "done" else _log.warning
    write(
        "audit",
        user=connection.user,
        action=action,
        address=connection.peer,
        outcome=outcome,
        **more,
    )


@contextmanager
def audited(connection: Connection, action: str, **more: str) -> Iterator[None]:
    """Writes what the block does into the audit, and how it ends; see `audit`."""
    try:
        yield
    except BrokerError as error:
        audit(connection, action, "failed", reason=str(error), **more)
        raise
    audit(connection, action, "done", **more)


def _audited(
    handler: Callable[..., R],
    changes: list[Ask],
    state: object,
    connection: Connection,
    frame: Frame,
) -> R:
    what = "; ".join(map(str, changes[:_NAMED_MAX]))
    with audited(connection, RequestCode(frame.code).name.lower(), resource=what):
        return handler(state, connection, frame)


class Guard:
    """Decides for each request whether it is served.

    Args:
        book: the users and rules.
        known: tells how many queues a topic has; 0 for one that there is not.
        now_ms: tells the time.

    Attributes:
        refused: requests that were refused since the start, because a rule does not allow them.
    """

    def __init__(
        self, book: UserBook, known: Callable[[str], int], now_ms: Callable[[], int]
    ) -> None:
        self._book = book
        self._known = known
        self._now_ms = now_ms
        self.refused = 0
        self._refused: dict[tuple[str, Ask], int] = {}
        # What users sent to and read under this policy: asked for with every batch, so remembered in short.
        self._policy = book.policy
        self._sent: set[tuple[str, str]] = set()
        self._read: set[tuple[str, str, str]] = set()

    def passed(
        self, connection: Connection, frame: Frame, handler: Callable[..., R]
    ) -> Callable[..., R]:
        """Lets a request through to its handler; what changes anything comes into the audit. Raises as `check`."""
        if frame.code in _ASKED_BY_HANDLERS and connection.user:
            return handler
        changes = self.check(connection, frame)
        return partial(_audited, handler, changes) if changes else handler

    def check(self, connection: Connection, frame: Frame) -> list[Ask]:
        """Lets a request through; returns what it changes, for the audit.

        Raises:
            LoginFailed: the client has not logged in.
            NotPermitted: its user may not do that; the sentence names action and resource.
            InvalidArgument: it names too many resources.
            MalformedRequest: its body cannot be read.
        """
        need = NEEDS[frame.code]
        if need.before_login:
            return []
        if not connection.user:
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
                self.require(connection, ask)
                if ask.action in _CHANGES and frame.code not in _WITH_DETAILS:
                    changes.append(ask)
        return changes

    def allows(self, connection: Connection, ask: Ask) -> bool:
        """Returns whether the user of a connection may do something."""
        ask = owned(ask)
        if ask.name in JOURNAL_TOPICS and ask.action in {Action.READ, Action.CREATE}:
            return True
        return self._book.policy.grants(connection.user).allows(ask)

    def require(self, connection: Connection, ask: Ask) -> None:
        """Raises NotPermitted unless the user of a connection may do something."""
        if self.allows(connection, ask):
            return
        ask = owned(ask)
        self._note_refusal(connection, ask)
        raise NotPermitted(
            f"user {connection.user!r} may not {ask}; `headrace acl explain` tells why, and `headrace acl allow"
            " USER ACTION RESOURCE` allows it"
        )

    def require_publish(self, connection: Connection, topic: str) -> None:
        """Raises NotPermitted unless messages may be sent to a topic, which is made if need be."""
        key = (connection.user, topic)
        if key in self._sent and self._policy is self._book.policy:
            return
        self.require(connection, Ask(Action.PUBLISH, ResourceKind.TOPIC, topic))
        if not self._known(topic):
            self.require(connection, Ask(Action.CREATE, ResourceKind.TOPIC, topic))
        self._trim()
        self._sent.add(key)

    def require_fetch(self, connection: Connection, topics: set[str], group: str) -> None:
        """Raises NotPermitted unless messages of topics may be read, for a group if one is named."""
        user, read = connection.user, self._read
        if self._policy is self._book.policy and all((user, group, one) in read for one in topics):
            return
        if group:
            self.require(connection, Ask(Action.CONSUME, ResourceKind.GROUP, group))
        for topic in topics:
            self.require(connection, Ask(Action.CONSUME, ResourceKind.TOPIC, topic))
        self._trim()
        self._read.update((user, group, topic) for topic in topics)

    def _trim(self) -> None:
        """Forgets what was asked under another policy, or too much of it."""
        if self._policy is not self._book.policy or len(self._sent) + len(self._read) >= PASSED_MAX:
            self._policy = self._book.policy
            self._sent.clear()
            self._read.clear()

    def _note_refusal(self, connection: Connection, ask: Ask) -> None:
        self.refused += 1
        key, now_ms = (connection.user, ask), self._now_ms()
        last_ms = self._refused.pop(key, None)
        if last_ms is not None and now_ms - last_ms < SAME_REFUSAL_MS:
            self._refused[key] = last_ms
            return
        self._refused[key] = now_ms
        if len(self._refused) > REFUSALS_MAX:
            del self._refused[next(iter(self._refused))]
        audit(connection, str(ask.action), "refused", resource=str(ask))

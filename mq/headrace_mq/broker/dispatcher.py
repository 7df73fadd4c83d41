"""
Code to handler: the one place that knows all requests.

Called by `_net.server` with frames; calls the handlers. However wrong its bytes are, one request's failure stays
that request's, or at worst its connection's.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from headrace_mq._net.server import Connection
from headrace_mq._runtime.log import get_logger
from headrace_mq.archive.pending_queries import QueryPending
from headrace_mq.broker.handlers import (
    admin,
    groups,
    journals,
    limits,
    locks,
    moves,
    offsets,
    releases,
    sessions,
    topics,
    users,
)
from headrace_mq.broker.handlers.fetch import fetch
from headrace_mq.broker.handlers.produce import produce
from headrace_mq.broker.refusals import refuse
from headrace_mq.broker.state import BrokerState
from headrace_mq.errors import (
    BrokerError,
    InvalidArgument,
    MalformedRequest,
    ResponseCode,
    UnknownRequest,
    UnsupportedVersion,
)
from headrace_mq.protocol.bodies import ErrorAnswer, decode, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import FLAG_ANSWER, FLAG_ONEWAY, Frame
from headrace_mq.protocol.limits import HandOverTo

__all__ = ["HANDLERS", "REQUEST_BYTES_MAX", "Dispatcher", "Handler"]

Handler = Callable[[BrokerState, Connection, Frame], "tuple[bytes | memoryview, ...] | None"]


def _follow(state: BrokerState, connection: Connection, frame: Frame) -> None:
    """Answers a replica. Raises InvalidArgument where this broker leads no group."""
    if state.followers is None:
        raise InvalidArgument("this broker is in no group; start it with --record to have replicas")
    state.followers.follow(connection, frame)


def _hand_over(state: BrokerState, _connection: Connection, frame: Frame) -> tuple[bytes, ...]:
    """Begins to hand over to a replica; the answer comes before it leads."""
    if state.followers is None:
        raise InvalidArgument("this broker is in no group; start it with --record to have replicas")
    chosen = state.followers.hand_over(decode(HandOverTo, frame.body).to)
    return (encode(HandOverTo(chosen)),)


def _ask_elsewhere(_state: BrokerState, _connection: Connection, _frame: Frame) -> None:
    """Answers what is for a name server. Raises InvalidArgument."""
    raise InvalidArgument(
        "this is a broker, and no name server; write its address as HOST:PORT, or name the port of a name server, which"
        " is 9875 by default"
    )


HANDLERS: Mapping[int, Handler] = MappingProxyType(
    {
        RequestCode.HELLO: sessions.hello,
        RequestCode.LOGIN: users.login,
        RequestCode.HEARTBEAT: sessions.heartbeat,
        RequestCode.PRODUCE: produce,
        RequestCode.FETCH: fetch,
        RequestCode.COMMIT_OFFSETS: offsets.commit_offsets,
        RequestCode.GET_OFFSETS: offsets.get_offsets,
        RequestCode.JOIN_GROUP: sessions.join_group,
        RequestCode.LEAVE_GROUP: sessions.leave_group,
        RequestCode.REPLY: sessions.reply,
        RequestCode.CREATE_TOPIC: admin.create_topic,
        RequestCode.DESCRIBE_TOPICS: admin.describe_topics,
        RequestCode.QUEUE_RANGES: admin.queue_ranges,
        RequestCode.DESCRIBE_BROKER: admin.describe_broker,
        RequestCode.DESCRIBE_QUEUES: topics.describe_queues,
        RequestCode.FREEZE_QUEUES: topics.freeze_queues,
        RequestCode.DELETE_QUEUES: topics.delete_queues,
        RequestCode.FIND_MESSAGES: admin.find_messages,
        RequestCode.OFFSETS_AT: offsets.offsets_at,
        RequestCode.RESET_OFFSETS: moves.reset_offsets,
        RequestCode.CLONE_OFFSETS: moves.clone_offsets,
        RequestCode.DELETE_GROUP: moves.delete_group,
        RequestCode.LOCK_QUEUES: locks.lock_queues,
        RequestCode.UNLOCK_QUEUES: locks.unlock_queues,
        RequestCode.CANCEL_SCHEDULED: journals.cancel_scheduled,
        RequestCode.DESCRIBE_SCHEDULE: journals.describe_schedule,
        RequestCode.DESCRIBE_PRODUCERS: admin.describe_producers,
        RequestCode.END_TRANSACTIONS: journals.end_transactions,
        RequestCode.TAKE_CHECKS: journals.take_checks,
        RequestCode.DESCRIBE_TRANSACTIONS: journals.describe_transactions,
        RequestCode.SET_QUOTA: limits.set_quota,
        RequestCode.DESCRIBE_QUOTAS: limits.describe_quotas,
        RequestCode.SET_BACKLOG_LIMIT: limits.set_backlog_limit,
        RequestCode.DESCRIBE_BACKLOGS: limits.describe_backlogs,
        RequestCode.DESCRIBE_SETTINGS: limits.describe_settings,
        RequestCode.LIST_GROUPS: groups.list_groups,
        RequestCode.DESCRIBE_GROUP: groups.describe_group,
        RequestCode.DESCRIBE_LAG: groups.describe_lag,
        RequestCode.LIST_CONNECTIONS: groups.list_connections,
        RequestCode.BROKER_STATUS: groups.broker_status,
        RequestCode.SET_GROUP: groups.set_group,
        RequestCode.RELEASE_MESSAGES: releases.release_messages,
        RequestCode.FOLLOW: _follow,
        RequestCode.HAND_OVER: _hand_over,
        RequestCode.NOTE_CHANGE: groups.note_change,
        RequestCode.SET_USER: users.set_user,
        RequestCode.SET_PASSWORD: users.set_password,
        RequestCode.LIST_USERS: users.list_users,
        RequestCode.SET_RULE: users.set_rule,
        RequestCode.LIST_RULES: users.list_rules,
        RequestCode.EXPLAIN_ACCESS: users.explain_access,
        RequestCode.REGISTER: _ask_elsewhere,
        RequestCode.ROUTES: _ask_elsewhere,
    }
)

# Of a request that carries no messages: a thousand queues by their longest names. To decode so much takes
# some ten milliseconds at the worst.
REQUEST_BYTES_MAX = 256 << 10
_WITH_MESSAGES = frozenset({RequestCode.PRODUCE, RequestCode.REPLY})

_log = get_logger(__name__)


class Dispatcher:
    """Serves the frames of all connections of one broker.

    Args:
        state: what the handlers work on.
    """

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def on_frame(self, connection: Connection, frame: Frame) -> None:
        """Handles one request; its answer is queued now or comes later.

        In a group, a change of topics or offsets is answered once all required members have it. Where there is an
        audit, a change is answered once its entry is durable.
        """
        followers, audit = self._state.followers, self._state.audit
        documents = followers.documents.end if followers is not None else 0
        changes = audit.changes if audit is not None else 0
        try:
            handler = _choose(connection, frame)
            if followers is not None:
                followers.admit(frame.code)
            if self._state.guard is not None:
                handler = self._state.guard.passed(connection, frame, handler)
            parts = handler(self._state, connection, frame)
            if parts is None or frame.flags & FLAG_ONEWAY:
                return
            self._check_size(parts)
        except QueryPending as coming:
            kept = frame._replace(body=memoryview(bytearray(frame.body)))
            connection.charge(len(kept.body))
            coming.answer.add_done_callback(partial(self._serve_again, connection, kept))
        except Exception as error:  # noqa: BLE001 - every failure becomes an answer, here alone
            refuse(connection, frame, error)
        else:
            if followers is None and (audit is None or audit.changes == changes):
                connection.answer(ResponseCode.OK, frame.correlation, *parts)
                return
            self._state.answer_held(connection, frame, parts, documents=documents, changes=changes)

    def _serve_again(
        self, connection: Connection, frame: Frame, answer: "asyncio.Future[object]"
    ) -> None:
        """Handles a request once more, now that the archive has told what it asks for."""
        connection.discharge(len(frame.body))
        if answer.cancelled():
            return
        error = answer.exception()
        if isinstance(error, Exception):
            refuse(connection, frame, error)
        else:
            self.on_frame(connection, frame)

    def on_unreadable(self, connection: Connection, error: BrokerError) -> None:
        """Says why the connection will be closed, in an answer to no request in particular."""
        _log.warning("connection refused", client=connection.client_id, reason=str(error))
        connection.answer(error.code, 0, encode(ErrorAnswer(str(error))))

    def on_drained(self, connection: Connection) -> None:
        """Serves what the connection missed while it was congested."""
        self._state.long_poll.wake_connection(connection)

    def on_lost(self, connection: Connection) -> None:
        """Forgets a connection and tells the groups it was in."""
        self._state.forget(connection)

    def _check_size(self, parts: tuple[bytes | memoryview, ...]) -> None:
        size = sum(map(len, parts))
        if size > self._state.body_bytes_max:
            raise InvalidArgument(
                f"the answer has {size} bytes and a frame takes {self._state.body_bytes_max}; ask"
                " for less at a time"
            )


def _choose(connection: Connection, frame: Frame) -> Handler:
    code = frame.code
    if not connection.client_id and code != RequestCode.HELLO:
        raise MalformedRequest("the first frame of a connection is HELLO")
    if connection.client_id and frame.version != connection.version:
        raise UnsupportedVersion(
            f"this connection speaks protocol version {connection.version}, a frame has"
            f" {frame.version}; keep to what HELLO agreed on"
        )
    if frame.flags & FLAG_ANSWER:
        raise MalformedRequest("a client sends requests, this frame is marked as an answer")
    handler = HANDLERS.get(code)
    if handler is None:
        raise UnknownRequest(
            f"this broker knows no request {code}; use one of its version, or update the broker"
        )
    if len(frame.body) > REQUEST_BYTES_MAX and code not in _WITH_MESSAGES:
        raise InvalidArgument(
            f"a request without messages has at most {REQUEST_BYTES_MAX} bytes, this one has"
            f" {len(frame.body)}; ask for less at a time"
        )
    return handler

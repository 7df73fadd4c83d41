"""
The audit of a broker: who did what, to what, from where, and how it ended; in the log, and in a durable topic.

    change done ──▶ log, topic (queue of changes) ──▶ durable ──▶ its client is answered
    login, refusal ──▶ few enough in this second? ──▶ log, topic
                              └─ no ──▶ counted; the count is an entry of its own

So a change that a client has heard of stands in the audit, also after kill -9, and a flood of wrong passwords costs
a bound of disk. The topic keeps the last entries of each kind: an entry has a key, and `audit_entries_max` later
another one has the same key and replaces it (compaction).

Used by `guard` and by handlers; writes to the store. It never reads an entry.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import msgspec

from headrace_mq._net.server import Connection
from headrace_mq._runtime.clock import Clock
from headrace_mq._runtime.log import get_logger
from headrace_mq.access.audit import (
    AUDIT_TOPIC,
    CHANGES,
    CHANGES_BY_OTHERS,
    KINDS,
    LEFT_OUT,
    LOGINS,
    REFUSALS,
    AuditEntry,
    cut,
)
from headrace_mq.archive.pending_queries import QueryPending
from headrace_mq.broker.users.refusals import Refusals
from headrace_mq.errors import BrokerError, BrokerStopping, NotPermitted
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.store.log.commit_gate import Durable
from headrace_mq.store.message_store import Appended

__all__ = ["Audit", "AuditLimits", "AuditStore", "Noting"]

_SECOND_MS = 1_000
# A request of a connection: its code and its correlation.
_Request = tuple[int, int]


class _Begun(NamedTuple):
    """A change that has no end yet."""

    kind: int
    entry: AuditEntry
    host: str


_UNKNOWN = (
    "the broker ended before its replicas confirmed this change, so its outcome is unknown: look whether it is"
    " made, and make it again if it is not"
)

_log = get_logger("headrace_mq.audit")


class AuditStore(Protocol):
    """What the audit needs of the store."""

    def append(self, batch: bytearray | memoryview, *, retention: str) -> Appended:
        """Accepts one batch."""
        ...

    def durable(self) -> Durable:
        """Ends when everything appended so far is durable."""
        ...

    def range(self, queue: QueueRef) -> tuple[int, int]:
        """The first offset held and the next one to become visible."""
        ...


class AuditLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds an audit.

    Attributes:
        entries_max: entries kept of each kind.
        per_second_max: entries about logins, and about refusals, in a second.
        refusals_per_minute_max: entries about refusals of one client in a minute.
        retention: of the topic.
    """

    entries_max: int
    per_second_max: int
    refusals_per_minute_max: int
    retention: str


class _Second:
    """What came of one kind in the present second."""

    __slots__ = ("begun_ms", "count", "left_out")

    def __init__(self) -> None:
        self.begun_ms = self.count = self.left_out = 0


class Noting:
    """What a block says of its change.

    Attributes:
        ends_later: whether the change may not be done when the block ends; `Audit.finish` tells the end.
    """

    __slots__ = ("ends_later",)

    def __init__(self) -> None:
        self.ends_later = False


class Audit:
    """The audit of one start of a broker.

    Args:
        store: takes the entries; its topic exists.
        clock: the time.
        limits: its bounds.
        is_closed: whether nothing may be written to the store, however little.
        administers: whether the user of a connection may administer the cluster; without a login everyone may.
        is_user: whether there is a user of a name.

    Attributes:
        changes: how many changes it has written.
    """

    def __init__(
        self,
        store: AuditStore,
        clock: Clock,
        limits: AuditLimits,
        is_closed: Callable[[], bool] = lambda: False,
        administers: Callable[[Connection], bool] = lambda _: True,
        is_user: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._store = store
        self._clock = clock
        self._limits = limits
        self._is_closed = is_closed
        self._administers = administers
        self._is_user = is_user
        self._ends = [store.range(QueueRef(AUDIT_TOPIC, kind))[1] for kind in range(len(KINDS))]
        self._seconds = [_Second() for _ in KINDS]
        self._refusals = Refusals(clock, limits.refusals_per_minute_max)
        self._later: dict[tuple[Connection, _Request], list[_Begun]] = {}
        self._waiting: set[asyncio.Future[None]] = set()
        self._hindered = ""
        self.changes = 0

    def note(
        self,
        connection: Connection,
        action: str,
        outcome: str,
        *,
        resource: str = "",
        detail: str = "",
    ) -> None:
        """Writes an entry, unless there are too many of its kind just now.

        Args:
            connection: of the client: who it is, and where from.
            action: what it did, or wanted to.
            outcome: "done", "failed" or "refused".
            resource: to what.
            detail: what else there is to know; no secrets, and no bodies of messages.
        """
        entry = self._entry(connection, action, outcome, resource, detail)
        if outcome == "refused" or (action == "login" and outcome != "done"):
            self._write_refusal(entry, connection.host)
        else:
            self._write(LOGINS if action == "login" else self._kind_of(connection), entry)

    def refuse(
        self, connection: Connection, action: str, *, resource: str = "", detail: str = ""
    ) -> None:
        """Writes that a request was refused; the same one of the same client once a minute, with a count."""
        self.note(connection, action, "refused", resource=resource, detail=detail)

    @contextmanager
    def noting(
        self,
        connection: Connection,
        action: str,
        *,
        resource: str = "",
        detail: str = "",
        request: _Request | None = None,
    ) -> Iterator[Noting]:
        """Writes what the block does, and how it ends; see `note`.

        Args:
            connection: of the client.
            action: what it wants to do.
            resource: to what.
            detail: what else there is to know.
            request: its code and correlation, if the change may end after the block; then `finish` may come in the block
                already.
        """
        noting = Noting()
        entry = self._entry(connection, action, "done", resource, detail)
        begun = _Begun(self._kind_of(connection), entry, connection.host)
        key = None if request is None else (connection, request)
        if key is not None:
            self._later.setdefault(key, []).append(begun)
        try:
            yield noting
        except QueryPending:  # the request comes again
            self._take(key, begun)
            raise
        except Exception as error:
            if self._take(key, begun):
                self._end(begun, error)
            raise
        if (key is None or not noting.ends_later) and self._take(key, begun):
            self._end(begun, None)

    def finish(self, connection: Connection, request: _Request, failure: Exception | None) -> None:
        """Writes how a change ended that was not done when its block ended.

        Requests of one code end in their order, also if a client gives them one correlation; others may not.
        """
        key = (connection, request)
        if entries := self._later.get(key):
            begun = entries[0]
            self._take(key, begun)
            self._end(begun, failure)

    def _take(self, key: tuple[Connection, _Request] | None, begun: _Begun) -> bool:
        """Takes out an entry that waits for its end; False: it has ended. One without a key does not wait."""
        if key is None:
            return True
        entries = self._later.get(key, [])
        if begun not in entries:
            return False
        entries.remove(begun)
        if not entries:
            del self._later[key]
        return True

    def _end(self, begun: _Begun, failure: Exception | None) -> None:
        entry = begun.entry
        if failure is None:
            self._write(begun.kind, entry)
            return
        reason = str(failure) if isinstance(failure, BrokerError) else "a defect; see the log"
        detail = cut(f"{reason} ({entry.detail})" if entry.detail else reason)
        if isinstance(failure, NotPermitted):
            refused = msgspec.structs.replace(entry, outcome="refused", detail=detail)
            self._write_refusal(refused, begun.host)
        else:
            failed = msgspec.structs.replace(entry, outcome="failed", detail=detail)
            self._write(begun.kind, failed)

    def hold(self, answer: Callable[[], None], fail: Callable[[Exception], None]) -> None:
        """Gives an answer once all entries so far are durable; or the disk failed, which the broker reports.

        Args:
            answer: is given then.
            fail: is given the error instead, if the broker ends before its replicas have the entries.
        """
        group = self._store.durable()

        def settle(done: asyncio.Future[None]) -> None:
            self._waiting.discard(done)
            if isinstance(done.exception(), BrokerStopping):
                fail(BrokerStopping(_UNKNOWN))
            else:
                answer()

        self._waiting.add(group)
        group.call_first(settle)

    async def drain(self) -> None:
        """Returns when no answer waits any more; what was only counted is written first."""
        self.look(ending=True)
        while self._waiting:
            await asyncio.wait(self._waiting)

    def look(self, *, ending: bool = False) -> None:
        """Writes what was counted, once its time is over, or all of it; called each second."""
        for entry in self._refusals.due(ending=ending):
            self._write(REFUSALS, entry)
        now_ms = self._clock.monotonic_ms()
        for kind, second in enumerate(self._seconds):
            if second.left_out and (ending or now_ms - second.begun_ms >= _SECOND_MS):
                self._tell_left_out(kind)

    def _kind_of(self, connection: Connection) -> int:
        return CHANGES if self._administers(connection) else CHANGES_BY_OTHERS

    def _write_refusal(self, entry: AuditEntry, host: str) -> None:
        tried = ""
        if entry.action == "login":
            kind, _, name = entry.resource.partition(":")
            tried = entry.resource if kind == "user" and self._is_user(name) else ""
        for one in self._refusals.take(entry, host, tried):
            self._write(REFUSALS, one)

    def _entry(
        self, connection: Connection, action: str, outcome: str, resource: str, detail: str
    ) -> AuditEntry:
        return AuditEntry(
            at_ms=self._clock.now_ms(),
            user=cut(connection.user or connection.principal),
            action=action,
            resource=cut(resource),
            address=connection.peer,
            outcome=outcome,
            detail=cut(detail),
        )

    def _write(self, kind: int, entry: AuditEntry) -> None:
        if kind in {CHANGES, CHANGES_BY_OTHERS}:
            self.changes += 1
        elif not self._has_room(kind):
            self._seconds[kind].left_out += entry.more or 1
            return
        self._append(kind, entry)

    def _has_room(self, kind: int) -> bool:
        second, now_ms = self._seconds[kind], self._clock.monotonic_ms()
        if now_ms - second.begun_ms >= _SECOND_MS:
            if second.left_out:
                self._tell_left_out(kind)
            second.begun_ms, second.count = now_ms, 0
        second.count += 1
        return second.count <= self._limits.per_second_max

    def _tell_left_out(self, kind: int) -> None:
        second = self._seconds[kind]
        entry = AuditEntry(
            at_ms=self._clock.now_ms(), action=KINDS[kind], outcome=LEFT_OUT, more=second.left_out
        )
        second.left_out = 0
        self._append(kind, entry)

    def _append(self, kind: int, entry: AuditEntry) -> None:
        said = msgspec.structs.asdict(entry)
        at_ms = said.pop("at_ms")
        write = _log.info if entry.outcome == "done" else _log.warning
        write("audit", **{name: value for name, value in said.items() if value})
        if self._is_closed():
            return
        key = str(self._ends[kind] % self._limits.entries_max)
        batch = encode_batch(
            QueueRef(AUDIT_TOPIC, kind),
            Columns([key], [], [], [entry.encode()], []),
            born_first_ms=at_ms,
        )
        try:
            appended = self._store.append(batch, retention=self._limits.retention)
        except BrokerError as error:
            if self._hindered != str(error):
                self._hindered = str(error)
                _log.error("the audit stands in the log alone", reason=self._hindered)
            return
        self._hindered = ""
        self._ends[kind] = appended.base_offset + 1

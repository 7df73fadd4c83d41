"""
What a leader does for its replicas: it answers FOLLOW, and commits what all of them have.

    written here ─▶ sent ─▶ synced here, held in the gate ─▶ FOLLOW with `counted` ─▶ committed: visible, acknowledged
    topics, offsets changed ─▶ the answer waits ─▶ FOLLOW with `documents` ─▶ answered

Bytes are sent before this broker's disk has them, so that both disks work at the same time. A FOLLOW that wants no answer
(one-way) only says what is on the replica's disk.

A question waits here until there is something new, or its time is over. Used by `dispatcher` and `standby`, which have
the questions, and by `replicated_broker`. The rules are `ClusterMember`'s.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from headrace_mq._net.server import Connection
from headrace_mq._runtime.clock import Clock
from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.refusals import refuse
from headrace_mq.broker.replicas.bodies import FollowAnswer, FollowRequest
from headrace_mq.broker.replicas.clean_ends import CleanEnds
from headrace_mq.broker.replicas.documents import DOCUMENTS_LOG, Documents
from headrace_mq.broker.replicas.figures import ReplicaFigures
from headrace_mq.broker.replicas.log_parts import log_part
from headrace_mq.broker.replicas.repairs.repairs import RepairFigures
from headrace_mq.broker.replicas.reports import without_removed
from headrace_mq.broker.replicas.store_logs import StoreLogs
from headrace_mq.cluster.frames import DurableEnd, Follow, StaleEpoch
from headrace_mq.cluster.leadership import Leadership
from headrace_mq.cluster.member import ClusterMember
from headrace_mq.cluster.operations import SILENT_MS
from headrace_mq.cluster.record import Identity
from headrace_mq.errors import InvalidArgument, MalformedRequest, NotLeader, ResponseCode
from headrace_mq.protocol.bodies import decode, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import Frame
from headrace_mq.store.compaction.plan import Bounds
from headrace_mq.store.log.commit_gate import CommitGate
from headrace_mq.store.log.commit_log import COMPACT
from headrace_mq.store.message_store import MessageStore

__all__ = ["FOLLOW_BYTES_MAX", "REPLICA_LAG_MS_MAX", "Followers"]

_log = get_logger(__name__)

# Of one log in one answer. Measured, an empty replica copied 1.6 times as fast as with a megabyte, and producers
# waited no longer at the 99th percentile meanwhile; larger answers only keep the leader's loop from its clients.
FOLLOW_BYTES_MAX = 4 << 20
# A question waits this long for something new, so that both sides know that the other one lives.
FOLLOW_WAIT_MS_MAX = 500
# A replica that has not caught up for this long leaves the set, so that producers do not wait for it any
# longer. RocketMQ: 15 s, Kafka: 30 s; here one lease.
REPLICA_LAG_MS_MAX = 3_000
# If none in the set has caught up for as long as two questions may wait, this broker may be the one that is cut off. The
# others stand after a lease and 0.2 s, and shall be first; else it would go on alone, where no client may reach it.
ALONE_LAG_MS_MAX = 4_500
# A leader that seems to be cut off looks again for this long: it may have stood still itself, and has to read what came.
CUT_OFF_MS_MIN = 1_000
# Commits wait this long for a replica that is about to enter the set: some round trips and syncs.
JOIN_MS_MAX = 1_000
_WHILE_HANDING_OVER = frozenset(
    {RequestCode.HELLO, RequestCode.LOGIN, RequestCode.FOLLOW, RequestCode.HAND_OVER}
)


class _Parked(NamedTuple):
    """A question that waits."""

    connection: Connection
    frame: Frame
    request: FollowRequest
    until: asyncio.TimerHandle


class Succession(NamedTuple):
    """Who shall lead next; `leaves`: this broker stops."""

    to: Identity
    leaves: bool


class Followers:
    """The replicas of a leader, for one epoch.

    Args:
        member: leads.
        logs: of the store.
        documents: of the broker.
        clock: for the time that a replica may lag behind.
        on_change: called when the member may serve clients, and when it stopped to lead.

    Attributes:
        gate: of the store that is open.
        succession: while it is set, clients are refused, so that the next leader soon has everything.
        has_said_to_lead: whether the next leader was asked to lead.
    """

    def __init__(
        self,
        member: ClusterMember,
        logs: StoreLogs,
        documents: Documents,
        clock: Clock,
        on_change: Callable[[], None],
    ) -> None:
        assert member.leadership is not None
        self.leadership: Leadership = member.leadership
        self.epoch = member.epoch
        self.documents = documents
        self.gate = CommitGate()
        self._member = member
        self._logs = logs
        self._clock = clock
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._parked: dict[Identity, _Parked] = {}
        self._held: deque[tuple[int, Callable[[], None]]] = deque()
        now_ms = clock.monotonic_ms()
        # Where all logs ended at a moment that a replica has not reached yet; and the latest one that it reached.
        self._marks: dict[Identity, tuple[Mapping[str, int], int]] = {}
        self._caught_up_ms = dict.fromkeys(self.leadership.required, now_ms)
        self._began_ms = now_ms
        self._heard_ms = dict.fromkeys(self.leadership.required, now_ms)
        self._cut_off_since_ms: int | None = None
        self._said_to_serve = False
        self.succession: Succession | None = None
        self.has_said_to_lead = False
        self._offers = False
        # Members outside the set that commits wait for, with the time until which they do.
        self._joining: dict[Identity, int] = {}
        self._clean_ends = CleanEnds(logs, member.me, clock)

    @property
    def repairs(self) -> RepairFigures:
        """What became of damage on this broker's disk."""
        return self._logs.repairs.figures

    @property
    def last_loss(self) -> int:
        """The epoch in which the group last lost messages; 0: it never did."""
        return self._member.last_loss

    @property
    def leads(self) -> bool:
        """Whether the epoch still is this member's."""
        return self._member.leadership is self.leadership

    def attach(self, store: MessageStore) -> None:
        """Takes the store that is open now; it was made with a gate of `new_gate`."""
        self._logs.opened(store)

    def new_gate(self) -> CommitGate:
        """Returns the gate of the next store."""
        self.gate = CommitGate()
        self.gate.on_written = self._wake
        self.gate.on_held = self._synced
        return self.gate

    def close(self) -> None:
        """Commits nothing more: who waits hears that the outcome is unknown."""
        self.gate.close()
        for parked in self._parked.values():
            parked.until.cancel()
        self._parked.clear()
        self._held.clear()

    # Questions.

    def follow(self, connection: Connection, frame: Frame) -> None:
        """Answers a replica, now or when there is something new.

        Raises:
            NotLeader: this member stopped to lead.
            MalformedRequest: the body is none, or names other logs.
            InvalidArgument: the replica is of another group.
        """
        request = decode(FollowRequest, frame.body)
        if self._member.group_id and request.group_id not in {"", self._member.group_id}:
            raise InvalidArgument(
                f"this broker leads the group with the id {self._member.group_id}, and the replica {request.member} is of one with"
                f" the id {request.group_id}; give both brokers the same --record, or the replica an empty folder"
            )
        if [log.log for log in request.logs] != list(self._logs.by_name):
            raise MalformedRequest(f"a replica asks for the logs {', '.join(self._logs.by_name)}")
        member = Identity(request.member, request.store_id)
        if request.epoch == self.epoch and self.leads:
            self._logs.repairs.heard(request)
        self._count(member, request)
        if not self.leads:
            self._on_change()
        if frame.is_oneway:
            if self.succession is not None:
                self._wake()
            return
        if request.epoch == self.epoch and self.leads:
            self._logs.repairs.hear(request)
        if request.wait_ms and not self._has_news(request):
            self._park(member, connection, frame, request)
        else:
            self._send(connection, frame, self._answer(request))

    def _count(self, member: Identity, request: FollowRequest) -> None:
        """Takes over what a replica's disk has."""
        for log in request.logs:
            self._clean_ends.heard(member, log)
            if log.counted >= 0:
                end = DurableEnd(request.epoch, member, log.log, log.counted)
                self._member.on_durable(end)
        self._member.on_durable(DurableEnd(request.epoch, member, DOCUMENTS_LOG, request.documents))
        if not self.leads:
            return
        now = self._logs.ends(), self._clock.monotonic_ms()
        self._heard_ms[member] = now[1]
        # It has all of now, or all of the moment that is remembered; that moment stays until it is reached.
        for ends, since_ms in (now, self._marks.setdefault(member, now)):
            if all(log.counted >= ends[log.log] for log in request.logs):
                self._caught_up_ms[member] = since_ms
                self._marks[member] = now
                break
        self.commit()

    def _has_news(self, request: FollowRequest) -> bool:
        """Whether an answer would tell a replica anything; logs that the leader confirmed before cannot part."""
        raw = self._logs.store.raw
        return (
            request.epoch != self.epoch
            or not self.leads
            or request.documents < self.documents.end
            or self._may_lead(request)
            or bool(request.wanted)
            or self._logs.repairs.wants(request)
            or any(log.counted < 0 or log.end != raw.written(log.log) for log in request.logs)
        )

    def _answer(self, request: FollowRequest) -> FollowAnswer:
        member = Identity(request.member, request.store_id)
        parts = []
        for log in request.logs:
            question = Follow(request.epoch, member, log.log, log.end, log.last)
            said = self._member.on_follow(question)
            if isinstance(said, StaleEpoch):
                return FollowAnswer(said.epoch)
            if said is None:
                raise NotLeader("this broker stopped to lead its group; ask the others")
            bytes_max = min(request.bytes_max, FOLLOW_BYTES_MAX)
            parts.append(log_part(self._logs, log, said, bytes_max))
        documents = self.documents.after(request.documents, FOLLOW_BYTES_MAX)
        lead = self._may_lead(request)
        self.has_said_to_lead |= lead
        leaves = lead and self.succession is not None and self.succession.leaves
        answer = FollowAnswer(request.epoch, parts, documents, lead, leaves)
        return self._logs.repairs.answered(request, answer)

    def _park(
        self, member: Identity, connection: Connection, frame: Frame, request: FollowRequest
    ) -> None:
        earlier = self._parked.pop(member, None)
        if earlier is not None:
            earlier.until.cancel()
        wait_s = min(request.wait_ms, FOLLOW_WAIT_MS_MAX) / 1_000
        until = self._loop.call_later(wait_s, self._expire, member)
        # The bytes of the frame are the connection's; what waits has its own request.
        kept = frame._replace(body=memoryview(b""))
        self._parked[member] = _Parked(connection, kept, request, until)

    def _expire(self, member: Identity) -> None:
        parked = self._parked.pop(member, None)
        if parked is not None:
            self._answer_parked(parked)

    def _wake(self) -> None:
        """Answers those that wait and for whom there is something new."""
        for member, parked in list(self._parked.items()):
            if self._has_news(parked.request):
                del self._parked[member]
                parked.until.cancel()
                self._answer_parked(parked)

    def _answer_parked(self, parked: _Parked) -> None:
        try:
            answer = self._answer(parked.request)
        except Exception as error:  # noqa: BLE001 - every failure becomes an answer
            refuse(parked.connection, parked.frame, error)
        else:
            self._send(parked.connection, parked.frame, answer)

    def _send(self, connection: Connection, frame: Frame, answer: FollowAnswer) -> None:
        connection.answer(ResponseCode.OK, frame.correlation, encode(answer))
        connection.flush()

    # The next leader.

    def hand_over(self, to: str) -> str:
        """Begins to hand over to a replica, or to the first one in sync where `to` is empty; returns its name.

        Where a hand-over is under way, it goes on.

        Raises:
            InvalidArgument: it is not in sync, or none is, or another one will lead.
        """
        if self.succession is not None:
            heir = self.succession.to.name
            if to in {"", heir}:
                return heir
            raise InvalidArgument(
                f"this broker hands over to {heir} already; ask again in a moment"
            )
        heirs = self._heirs()
        chosen = [one for one in heirs if to in {"", one.name}]
        if not chosen:
            named = ", ".join(one.name for one in heirs) or "none"
            raise InvalidArgument(
                f"{to or 'a replica'} cannot lead now; in sync, besides the leader, is: {named}"
            )
        self._succeed(Succession(chosen[0], leaves=False))
        return chosen[0].name

    def begin_to_leave(self) -> bool:
        """Begins to hand over because this broker stops; False: no replica is in sync."""
        heirs = self._heirs()
        if heirs:
            self._succeed(Succession(heirs[0], leaves=True))
        return bool(heirs)

    def _heirs(self) -> list[Identity]:
        return sorted(one for one in self.leadership.confirmed if one != self._member.me)

    def _succeed(self, succession: Succession) -> None:
        self.succession = succession
        self.has_said_to_lead = self._offers = False
        self._on_change()

    def offer(self) -> None:
        """Lets the next leader lead as soon as it has everything; nothing is written here any more."""
        self._offers = True
        self._wake()

    def admit(self, code: int) -> None:
        """Raises NotLeader for a client's request while this broker hands over."""
        if self.succession is not None and code not in _WHILE_HANDING_OVER:
            raise NotLeader(
                f"this broker hands over to {self.succession.to.name}; ask again in a moment"
            )

    def _may_lead(self, request: FollowRequest) -> bool:
        """Whether a replica is the next leader, and has everything."""
        if not self._offers or self.succession is None:
            return False
        if self.succession.to != (request.member, request.store_id):
            return False
        return self._member.hand_over(self.succession.to) is not None

    # What is committed.

    def _synced(self) -> None:
        self._member.on_synced()
        self.commit()
        self._wake()

    def commit(self) -> None:
        """Commits what every required member has, and answers what waited for documents."""
        if not self.leads:
            return
        documents = self.leadership.committed(DOCUMENTS_LOG)
        while self._held and self._held[0][0] <= documents:
            self._held.popleft()[1]()
        # A message may be the first of a topic: it is acknowledged after all have the topic.
        if documents >= self.documents.topics:
            for name in self._logs.by_name:
                self.gate.reached(name, self.leadership.committed(name))
        if not self._said_to_serve and self.leadership.serves:
            self._said_to_serve = True
            self._on_change()

    def on_renamed(self, path: Path) -> None:
        """Notes that a file was replaced; from any thread."""
        if threading.get_ident() == self._thread:
            self._document(path)
        else:
            self._loop.call_soon_threadsafe(self._document, path)

    def _document(self, path: Path) -> None:
        if self.documents.changed(path):
            self._synced()

    def hold(self, answer: Callable[[], None]) -> None:
        """Gives an answer once all required members have the documents as they are now."""
        self._held.append((self.documents.end, answer))
        self.commit()

    async def confirmed(self) -> None:
        """Returns when all required members have the documents as they are now; never, once this term is over."""
        done = asyncio.Event()
        self.hold(done.set)
        await done.wait()

    @property
    def logs(self) -> StoreLogs:
        """The logs of the store."""
        return self._logs

    def figures(self, names: Collection[str] | None = None) -> tuple[ReplicaFigures, ...]:
        """Returns how far each replica is that has asked, or is in the set.

        Args:
            names: of the brokers that have reported; see `without_removed`.
        """
        now_ms, ends = self._clock.monotonic_ms(), self._logs.ends()
        confirmed, durable = self.leadership.confirmed, self.leadership.durable
        known = {*self._caught_up_ms, *self._marks, *confirmed, *durable} - {self._member.me}
        heard = {one for one, at_ms in self._caught_up_ms.items() if at_ms > now_ms - SILENT_MS}
        known = without_removed(known, confirmed | heard, names)
        return tuple(
            ReplicaFigures(
                member.name,
                member in confirmed,
                sum(max(0, end - durable.get(member, {}).get(log, 0)) for log, end in ends.items()),
                now_ms - self._caught_up_ms.get(member, self._began_ms),
            )
            for member in sorted(known)
        )

    def entrants(self) -> list[Identity]:
        """Returns the members that may enter the set now: they have everything, and they are there."""
        near = self._near()
        return [member for member in self.leadership.entrants() if member in near]

    def next_to_join(self) -> Identity | None:
        """Returns a member outside the set that nearly has everything; commits wait for it, and it enters.

        It has a second for that. If it takes longer, commits wait for it no more until a lease has passed.
        """
        now_ms = self._clock.monotonic_ms()
        over = now_ms - REPLICA_LAG_MS_MAX
        self._joining = {one: until for one, until in self._joining.items() if until >= over}
        for member in sorted(self._near()):
            if self._joining.setdefault(member, now_ms + JOIN_MS_MAX) >= now_ms:
                return member
        return None

    def _near(self) -> set[Identity]:
        """The members outside the set that had everything a moment ago."""
        earliest = self._clock.monotonic_ms() - JOIN_MS_MAX
        return {
            member
            for member, caught_up_ms in self._caught_up_ms.items()
            if caught_up_ms >= earliest
            and member not in self.leadership.confirmed
            and self._clean_ends.may_enter(member)
        }

    def bounds(self, tombstone_ms: int) -> Bounds:
        """Returns how far the leader's log may be compacted now; see `CleanEnds.bounds`."""
        committed, required = self.leadership.committed(COMPACT), self.leadership.required
        return self._clean_ends.bounds(committed, required, tombstone_ms)

    def is_cut_off(self, record_heard_ms: int) -> bool:
        """Whether neither the record nor some other member of the set was heard for so long that that one may lead.

        Nothing can be acknowledged then, and clients that reach this broker would wait here instead of going to that one,
        and commit offsets that it never hears of.

        Args:
            record_heard_ms: when the record answered last.
        """
        now_ms = self._clock.monotonic_ms()
        others = self.leadership.required - {self._member.me}
        heard_ms = [self._heard_ms.get(one, self._began_ms) for one in others]
        if not others or now_ms - max(record_heard_ms, min(heard_ms)) <= ALONE_LAG_MS_MAX:
            self._cut_off_since_ms = None
            return False
        if self._cut_off_since_ms is None:
            self._cut_off_since_ms = now_ms
        if now_ms - self._cut_off_since_ms < CUT_OFF_MS_MIN:
            return False
        _log.error(
            "this leader reaches neither the group's record nor each replica: another one may lead, so it serves no"
            " longer; look at its network", epoch=self.epoch,
        )  # fmt: skip
        return True

    def lagging(self) -> list[Identity]:
        """Returns the members of the set that have not caught up for longer than they may; see `ALONE_LAG_MS_MAX`."""
        now_ms = self._clock.monotonic_ms()
        lag_ms = {
            member: now_ms - self._caught_up_ms.get(member, 0)
            for member in self.leadership.confirmed
            if member != self._member.me
        }
        alone = all(each > 2 * FOLLOW_WAIT_MS_MAX for each in lag_ms.values())
        lag_ms_max = ALONE_LAG_MS_MAX if alone else REPLICA_LAG_MS_MAX
        return sorted(member for member, each in lag_ms.items() if each > lag_ms_max)

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
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

from headrace_mq._net.server import Connection
from headrace_mq._runtime.clock import Clock
from headrace_mq.broker.refusals import refuse
from headrace_mq.broker.replicas.bodies import FollowAnswer, FollowRequest
from headrace_mq.broker.replicas.clean_ends import CleanEnds
from headrace_mq.broker.replicas.documents import DOCUMENTS_LOG, Documents
from headrace_mq.broker.replicas.figures import ReplicaFigures
from headrace_mq.broker.replicas.log_parts import log_part
from headrace_mq.broker.replicas.progress.losses import PossibleLoss, PossibleLosses
from headrace_mq.broker.replicas.progress.progress import FOLLOW_WAIT_MS_MAX, ReplicaProgress
from headrace_mq.broker.replicas.repairs.repairs import RepairFigures
from headrace_mq.broker.replicas.reports import without_removed
from headrace_mq.broker.replicas.store_logs import StoreLogs
from headrace_mq.cluster.frames import DurableEnd, Follow, HandOver, StaleEpoch
from headrace_mq.cluster.leadership import Leadership
from headrace_mq.cluster.member import ClusterMember
from headrace_mq.cluster.record import ACK_IN_SYNC, FEATURE_LEVEL, Identity
from headrace_mq.errors import InvalidArgument, MalformedRequest, NotLeader, ResponseCode
from headrace_mq.protocol.bodies import decode, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import Frame
from headrace_mq.store.compaction.plan import Bounds
from headrace_mq.store.log.commit_gate import CommitGate
from headrace_mq.store.log.commit_log import COMPACT
from headrace_mq.store.message_store import MessageStore

__all__ = ["FOLLOW_BYTES_MAX", "Followers"]

# Of one log in one answer. Measured, an empty replica copied 1.6 times as fast as with a megabyte, and producers
# waited no longer at the 99th percentile meanwhile; larger answers only keep the leader's loop from its clients.
FOLLOW_BYTES_MAX = 4 << 20
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
        names: returns those of the brokers that have reported; see `without_removed`.

    Attributes:
        gate: of the store that is open.
        succession: while it is set, clients are refused, so that the next leader soon has everything.
        has_said_to_lead: whether the next leader was asked to lead.
        progress: how far each replica is.
    """

    def __init__(
        self,
        member: ClusterMember,
        logs: StoreLogs,
        documents: Documents,
        clock: Clock,
        on_change: Callable[[], None],
        names: Callable[[], Collection[str] | None] = lambda: None,
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
        self._names = names
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._parked: dict[Identity, _Parked] = {}
        self._held: deque[tuple[int, Callable[[], None]]] = deque()
        self._said_to_serve = False
        self.succession: Succession | None = None
        self.has_said_to_lead = False
        self._offers = False
        self._clean_ends = CleanEnds(logs, member.me, clock)
        self.progress = ReplicaProgress(self.leadership, self._clean_ends.may_enter, clock)
        self._losses = PossibleLosses(self.leadership, logs.by_name, clock)

    @property
    def repairs(self) -> RepairFigures:
        """What became of damage on this broker's disk."""
        return self._logs.repairs.figures

    @property
    def last_loss(self) -> int:
        """The epoch in which the group last lost messages; 0: it never did."""
        return self._member.last_loss

    @property
    def ack(self) -> str:
        """Who must have a message on its disk before it is acknowledged, by the record."""
        return ACK_IN_SYNC if self._member.seen is None else self._member.seen.ack

    @property
    def leads(self) -> bool:
        """Whether the epoch still is this member's."""
        return self._member.leadership is self.leadership

    def attach(self, store: MessageStore) -> None:
        """Takes the store that is open now; it was made with a gate of `new_gate`."""
        self._logs.opened(store)
        self._logs.keep_back(self.leadership)

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
        is_earlier = request.level < FEATURE_LEVEL and request.epoch == self.epoch
        if is_earlier and self.leadership.ack != ACK_IN_SYNC:
            return  # of a version that notes no loss where it is elected: it leaves the set
        for log in request.logs:
            self._clean_ends.heard(member, log)
            if log.counted >= 0:
                end = DurableEnd(request.epoch, member, log.log, log.counted)
                self._member.on_durable(end)
        self._member.on_durable(DurableEnd(request.epoch, member, DOCUMENTS_LOG, request.documents))
        if not self.leads:
            return
        counted = {log.log: log.counted for log in request.logs}
        self.progress.heard(member, counted, self._logs.ends())
        self.commit()

    def _has_news(self, request: FollowRequest) -> bool:
        """Whether an answer would tell a replica anything; logs that the leader confirmed before cannot part."""
        raw = self._logs.store.raw
        return (
            request.epoch != self.epoch
            or not self.leads
            or request.documents < self.documents.end
            or self._offer_to(request) is not None
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
        offer = self._offer_to(request)
        lead = offer is not None
        self.has_said_to_lead |= lead
        leaves = lead and self.succession is not None and self.succession.leaves
        answer = FollowAnswer(
            request.epoch, parts, documents, lead, leaves,
            version=-1 if offer is None else offer.version,
        )  # fmt: skip
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

    def _offer_to(self, request: FollowRequest) -> HandOver | None:
        """Returns what asks a replica to lead: it is the next leader, and has everything; else None."""
        if not self._offers or self.succession is None:
            return None
        if self.succession.to != (request.member, request.store_id):
            return None
        return self._member.hand_over(self.succession.to)

    # What is committed.

    def _synced(self) -> None:
        self._member.on_synced()
        self.commit()
        self._wake()

    def commit(self) -> None:
        """Commits what every required member has, and answers what waited for documents."""
        if not self.leads:
            return
        self._logs.keep_back(self.leadership)
        documents = self.leadership.committed(DOCUMENTS_LOG)
        while self._held and self._held[0][0] <= documents:
            self._held.popleft()[1]()
        # A message may be the first of a topic: it is acknowledged after all have the topic.
        if documents >= self.documents.topics:
            for name in self._logs.by_name:
                self.gate.reached(name, self.leadership.committed(name))
        self._losses.look()
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

    def figures(self) -> tuple[ReplicaFigures, ...]:
        """Returns how far each replica is that has asked, or is in the set."""
        ends, confirmed = self._logs.ends(), self.leadership.confirmed
        durable = self.leadership.durable
        known = {*self.progress.known(), *confirmed, *durable} - {self._member.me}
        known = without_removed(known, confirmed | self.progress.alive(), self._names())
        return tuple(
            ReplicaFigures(
                member.name,
                member in confirmed,
                sum(max(0, end - durable.get(member, {}).get(log, 0)) for log, end in ends.items()),
                self.progress.lag_ms(member),
                *self._losses.of(member),
            )
            for member in sorted(known)
        )

    def may_lose(self) -> PossibleLoss:
        """Returns what a failover may lose now; see `PossibleLosses.worst`."""
        return self._losses.worst()

    def bounds(self, tombstone_ms: int) -> Bounds:
        """Returns how far the leader's log may be compacted now; see `CleanEnds.bounds`."""
        shared, required = self.leadership.shared(COMPACT), self.leadership.required
        return self._clean_ends.bounds(shared, required, tombstone_ms)

"""
A broker of a group: a replica until it is elected, then a `Broker`, until another one is.

    record ─▶ the leader's replica ─(lease over, or its process is gone)─▶ stands ─(record)─▶ waits until the others have
       ▲            ▲                                                                         its log ─▶ serves clients
       └────────────┴───────────────────(a later epoch)───────────────────────────────────────────────┘

A change of roles closes the store and opens it again, so the start, the most tested code, decides what the files mean.
The socket that it listens on stays open meanwhile: to others a connection that is refused means that this process is gone.

Used by `process`; the rules are `headrace_mq.cluster`'s, the record is in PostgreSQL or etcd.
"""

import asyncio
import socket
import sys
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path

from headrace_mq._net.address import BrokerAddress, ClientFiles
from headrace_mq._net.server import FrameServer, listening_socket
from headrace_mq._runtime.clock import Clock, SystemClock
from headrace_mq._runtime.files import SystemFiles
from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.assembly import certificates_of, server_limits
from headrace_mq.broker.files.epoch import above_all_epochs, last_epoch
from headrace_mq.broker.files.kept_group import (
    identity_of,
    keep_seen,
    refuse_another_group,
    seen_of,
)
from headrace_mq.broker.journal.damage import KeptPlaces, starts_of, until_sound
from headrace_mq.broker.metadata import (
    broker_file,
    group_file,
    schedule_file,
    settings_in,
    transactions_file,
    users_file,
)
from headrace_mq.broker.reads.replica_reads import ReplicaReads
from headrace_mq.broker.replicas.adoption import adopt
from headrace_mq.broker.replicas.conversation import Conversation
from headrace_mq.broker.replicas.documents import DOCUMENTS_LOG, Documents, WatchedFiles
from headrace_mq.broker.replicas.figures import GroupFigures
from headrace_mq.broker.replicas.followers import Followers
from headrace_mq.broker.replicas.progress.hand_over import drain, hand_over
from headrace_mq.broker.replicas.progress.losses import NO_LOSS
from headrace_mq.broker.replicas.record_watch import RecordWatch
from headrace_mq.broker.replicas.repairs.scrub import Scrub
from headrace_mq.broker.replicas.replica import Replica
from headrace_mq.broker.replicas.reports import Reports
from headrace_mq.broker.replicas.standby import Standby
from headrace_mq.broker.replicas.store_logs import StoreLogs
from headrace_mq.broker.server import Broker
from headrace_mq.broker.state import BrokerState
from headrace_mq.broker.storage import unnamed_archive
from headrace_mq.broker.users.open_door import group_without_users, no_administrator, open_door
from headrace_mq.broker.users.replica_door import ReplicaDoor
from headrace_mq.broker.users.user_book import UserBook
from headrace_mq.cluster.election import LEASE_MS, RENEW_MS
from headrace_mq.cluster.frames import HandOver
from headrace_mq.cluster.member import ClusterMember
from headrace_mq.cluster.record import ACK_IN_SYNC, RecordKeeper, RecordUnavailable
from headrace_mq.cluster.records.keeper import keeper_of
from headrace_mq.effective_settings import NO_SOURCES, Sources
from headrace_mq.errors import InvalidArgument, MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.protocol.scheduled import SCHEDULE_QUEUE
from headrace_mq.protocol.transactions import TRANSACTION_QUEUE
from headrace_mq.settings import BrokerSettings, GroupSettings
from headrace_mq.store.replication.epochs import EpochFile
from headrace_mq.store.replication.lost_messages import count_lost

__all__ = ["ReplicatedBroker"]

# How often a leader looks whether a replica lags behind, or may enter the set.
_LOOK_MS = 200
# How long a leader that is stopped lets its replicas confirm what producers wait for, and get what it acknowledged alone.
_DRAIN_MS = 5_000
# How long a leader accepts nothing so that a replica has everything and is elected; then it goes on, or stops all the same.
HAND_OVER_MS_MAX = 2_000
_CLOSE_GRACE_MS = 1_000

_log = get_logger(__name__)


class ReplicatedBroker:
    """One broker of a group, from `start` to `aclose`.

    Args:
        settings: with those of its group.
        record: keeps the group's record; None: where the settings say.
        clock: the time.
        sources: what gave the settings that are no defaults.

    Attributes:
        address: where it listens; empty before `start`.
        reads: what it serves readers as a replica; None before `start`.
        failure: ended with the reason where the broker cannot go on; its owner closes it then.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        record: RecordKeeper | None = None,
        clock: Clock | None = None,
        sources: Sources = NO_SOURCES,
    ) -> None:
        assert settings.group is not None
        self._settings, self._sources = settings, sources
        self._group: GroupSettings = settings.group
        self._clock = clock or SystemClock()
        self._keeper = record or keeper_of(
            self._group.record, cluster=self._group.cluster, group=self._group.name
        )
        self._directory = settings.store.directory
        self._files = WatchedFiles(self._renamed)
        self._logs = StoreLogs(EpochFile(SystemFiles(), self._directory))
        self._replica = Replica(
            settings.store, self._logs, clock=self._clock, files=SystemFiles(),
            has_archive=settings.archive is not None,
        )  # fmt: skip
        self._documents = Documents(self._directory, SystemFiles())
        self._reports = Reports(self._logs, self._keeper, self._clock)
        self._listener: socket.socket | None = None
        self._changed = asyncio.Event()
        self._term: Followers | None = None
        self._stopping = False
        users = (users_file(self._directory), self._directory)
        self._open_door = partial(open_door, *users, login=settings.login)
        self._no_administrator = partial(no_administrator, *users, login=settings.login)
        self._misfit = partial(group_without_users, users[0], login=settings.login)
        self._conversation = Conversation(
            self._replica, self._clock, self._address_of, self._until_changed, self._hindrance, self._misfit
        )  # fmt: skip
        self._broker: Broker | None = None
        self._server: FrameServer | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.address = ""
        self.reads: ReplicaReads | None = None
        self.failure: asyncio.Future[None]

    async def start(self) -> None:
        """Opens the store as a replica, and listens.

        Raises:
            DataCorrupt, FormatTooNew: a file cannot be used; the sentence says how to go on.
            MessageQueueError: the address cannot be bound, the files cannot be used, the folder has users and the login is
                off, it has an archive that is not named, or it is of a broker that ran alone and cannot found the group, or of one of another group.
        """
        self.failure = asyncio.get_running_loop().create_future()
        if why := self._hindrance():
            raise MessageQueueError(why)
        listener = self._listener = listening_socket(self._settings.host, self._settings.port)
        host, port = listener.getsockname()[:2]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        store = self._replica.open()
        kept_file = group_file(self._directory)
        me = identity_of(kept_file, self._group, self.address)
        await refuse_another_group(kept_file, self._keeper, self._group)
        seen = seen_of(kept_file.read())
        # A folder that was taken out of its group may have damaged epochs; all that it holds gets one then.
        instead = above_all_epochs(self._clock.now_ms()) if seen is None else 0
        self._logs.epochs.open(store.raw.ends(), instead=instead)
        first_epoch = last_epoch(
            broker_file(self._directory), holds_messages=any(store.raw.ends().values()),
            now_ms=self._clock.now_ms(), newest=self._logs.epochs.newest,
        )  # fmt: skip
        await adopt(
            self._logs, me, self._keeper, epoch=first_epoch, seen=seen,
            own=settings_in(self._directory), directory=self._directory,
        )  # fmt: skip
        self._member = ClusterMember(
            me, {**self._logs.by_name, DOCUMENTS_LOG: self._documents}, seen=seen,
            min_in_sync=self._group.min_in_sync, documents=[DOCUMENTS_LOG],
        )  # fmt: skip
        self._watch = RecordWatch(
            self._member, self._keeper, self._clock, first_epoch=first_epoch,
            keep=lambda newest: keep_seen(kept_file, me, newest, self._group), on_taken=self._taken,
            hindrance=self._no_administrator,
        )  # fmt: skip
        reads = self.reads = ReplicaReads(
            self._replica, self._member, self._settings, self._clock, self._sources
        )
        self._standby = Standby(self._leader, self._settings.frame_bytes_max, reads)
        await self._serve_as_standby()
        self._tasks = [
            asyncio.create_task(
                self._guarded(self._watch.run(self._reports)), name="watch the record"
            ),
            asyncio.create_task(self._guarded(self._take_turns()), name="follow or lead"),
            asyncio.create_task(self._guarded(Scrub(self._logs.repairs).run()), name="scrub"),
        ]
        _log.info("replica started", address=self.address, member=me.name, store=me.store_id)

    @property
    def state(self) -> BrokerState | None:
        """What it works on while it serves clients; None otherwise."""
        return None if self._broker is None else self._broker.state

    def figures(self) -> GroupFigures:
        """Returns what this broker knows of its group."""
        member, seen, term = self._member, self._member.seen, self._term
        names = () if seen is None else tuple(sorted(one.name for one in seen.in_sync))
        repairs = self._logs.repairs.figures
        return GroupFigures(
            self._group.cluster, self._group.name, member.me.name, self.state is not None,
            "" if seen is None else seen.leader, member.epoch, names, self._group.min_in_sync,
            self._watch.went_back, self._clock.monotonic_ms() - self._watch.heard_ms,
            () if term is None else term.figures(),
            0 if seen is None else seen.unclean, sum(self._logs.ends().values()),
            repairs.repaired, repairs.hopeless, count_lost(SystemFiles(), self._directory),
            *(NO_LOSS if term is None else term.may_lose()), ACK_IN_SYNC if seen is None else seen.ack,
        )  # fmt: skip

    def renew_certificates(self) -> None:
        """Takes new certificates from the files now."""
        if self._broker is not None:
            self._broker.renew_certificates()
        elif self._server is not None:
            self._server.renew_certificates()

    async def aclose(self) -> None:
        """Stops in order; everything is on the disk on return."""
        self._stopping = True
        self._changed.set()
        if len(self._tasks) > 1:
            await asyncio.wait([self._tasks[1]], timeout=4 * _DRAIN_MS / 1_000)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.aclose(_CLOSE_GRACE_MS)
        if self._broker is not None:
            await self._broker.aclose()
        await self._replica.aclose()
        if self._listener is not None:
            self._listener.close()
        await self._keeper.aclose()
        if not self.failure.done():
            self.failure.set_result(None)

    async def _guarded(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - the owner ends the process: a replica takes over
            is_known = isinstance(error, MessageQueueError)
            _log.error(
                "this broker of a group cannot go on", reason=str(error), exc_info=not is_known
            )
            if not self.failure.done():
                self.failure.set_exception(error)
                self.failure.exception()

    def _renamed(self, path: Path) -> None:
        if self._term is not None:
            self._term.on_renamed(path)

    def _taken(self) -> None:
        """Acts on a record that was taken over."""
        if self._term is not None:
            self._term.commit()
        self._changed.set()

    def _leader(self) -> str:
        seen = self._member.seen
        return "" if seen is None or seen.leader == self._member.me.name else seen.leader

    # Turns.

    async def _take_turns(self) -> None:
        while not self._stopping:
            seen = self._member.seen
            if seen is None:
                await self._until_changed(RENEW_MS)
            elif self._watch.won_epoch == self._member.epoch and self._watch.won_epoch > 0:
                await self._lead()
            elif self._leader() and not self._watch.patience.is_over(self._clock.monotonic_ms()):
                await self._follow(self._leader())
            else:
                await self._stand()

    async def _stand(self) -> None:
        epoch = self._member.epoch
        refused = False
        proposal = None if self._watch.is_barred(self._misfit) else self._member.stand()
        if proposal is not None:
            _log.warning("this broker stands for the next epoch", epoch=proposal.epoch)
            refused = await self._watch.propose(proposal)
        if refused and self._member.epoch == epoch:
            return  # the set changed, and not the leader: it stands again, by the record as it is now
        if self._watch.won_epoch != self._member.epoch:
            # Another one won, or this one may not: follow that one, or try again soon.
            self._watch.renew_patience()
            if self._member.epoch == epoch:
                await self._until_changed(_LOOK_MS)

    async def _until_changed(self, wait_ms: int) -> None:
        self._changed.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), wait_ms / 1_000)

    async def _follow(self, leader: str) -> None:
        """Follows a leader until its connection ends, there is another one, or it asks this broker to lead."""
        offer = await self._conversation.follow(
            leader, self._member, self._watch.patience,
            lambda: not self._stopping and self._leader() == leader,
        )  # fmt: skip
        if offer is not None:
            await self._accept(offer)

    async def _accept(self, offer: HandOver) -> None:
        """Stands because the leader hands over; by the record as it is now, which may have changed a moment ago."""
        with suppress(RecordUnavailable):
            await self._watch.refresh()
        proposal = self._member.on_hand_over(offer)
        if proposal is not None:
            _log.warning("the leader hands over to this broker", epoch=proposal.epoch)
            await self._watch.propose(proposal)
        if self._watch.won_epoch != self._member.epoch:
            await self._until_changed(_LOOK_MS)

    def _address_of(self, leader: str) -> BrokerAddress:
        address = BrokerAddress.parse(leader).as_user(self._group.user, self._group.password_file)
        if self._settings.tls_certificate is None:
            return address
        own = (self._settings.tls_certificate, self._settings.tls_key)
        return address.secured(ClientFiles(self._group.ca, *own))

    # A term.

    async def _lead(self) -> None:
        """Leads from an election that was won to a later epoch."""
        for name, end in self._logs.ends().items():
            # An epoch that was noted for bytes that the disk never took wrote nothing.
            self._logs.epochs.cut(name, end)
            self._logs.epochs.begin(name, self._member.epoch, end)
        self._documents.begin()
        self._logs.repairs.renew()
        self._member.lead()
        term = self._term = Followers(
            self._member, self._logs, self._documents, self._clock, self._changed.set,
            lambda: self._reports.names,
        )  # fmt: skip
        _log.warning("this broker leads its group", epoch=term.epoch, ack=term.ack)
        if term.last_loss == term.epoch:
            _log.error(
                "messages may be lost: the leader before acknowledged alone, so this one may lack some; brokers that come back cut"
                " what this one lacks, and keep it in files that `headrace store lost` shows", epoch=term.epoch,
            )  # fmt: skip
        duties = asyncio.create_task(self._guarded(self._keep_set(term)), name="keep the set")
        try:
            door = self._standby.door = self._door()
            self._standby.followers = term
            term.commit()
            await self._until_it_serves(term)
            self._standby.followers = self._standby.door = None
            if door is not None:
                door.close()
            if term.leads and not self._stopping:
                await self._serve_clients(term)
        finally:
            self._standby.followers = self._standby.door = None
            duties.cancel()
            term.close()
            self._term = None
            self._watch.won_epoch = 0
        _log.warning("this broker leads no longer", epoch=term.epoch)

    async def _until_it_serves(self, term: Followers) -> None:
        """Waits until the others in sync have the whole log; says once what it waits for, if that takes long."""
        late_ms, repairs = self._clock.monotonic_ms() + LEASE_MS, self._logs.repairs
        while (
            term.leads
            and (not term.leadership.serves or repairs.may_come)  # a start reads what was repaired
            and not self._stopping
        ):
            await self._until_changed(_LOOK_MS)
            if self._clock.monotonic_ms() > late_ms and (why := term.leadership.hindrance):
                late_ms = sys.maxsize
                _log.error("this broker leads its group, and does not serve yet", reason=why)
        # Now the replicas have what is damaged here.
        journals: dict[QueueRef, KeptPlaces] = {
            SCHEDULE_QUEUE: schedule_file(self._directory),
            TRANSACTION_QUEUE: transactions_file(self._directory),
        }
        await until_sound(
            self._replica.store, starts_of(journals), lambda: term.leads and not self._stopping
        )

    def _hindrance(self) -> str:
        """Returns why this broker must neither start nor follow; see `open_door` and `unnamed_archive`."""
        return self._open_door() or unnamed_archive(self._settings)

    def _door(self) -> ReplicaDoor | None:
        """Returns who lets replicas in until clients are served; None: there is no login."""
        if not self._settings.login:
            return None
        book = UserBook(users_file(self._directory))
        book.load()
        return ReplicaDoor(
            book,
            self._clock,
            self._settings.audit_per_second_max,
            self._settings.audit_refusals_per_minute_max,
        )

    async def _serve_clients(self, term: Followers) -> None:
        await self._end_standby()
        await self._replica.aclose()
        self._broker = Broker(
            self._settings, clock=self._clock, files=self._files, followers=term,
            listener=self._listener, sources=self._sources,
        )  # fmt: skip
        await self._broker.start()
        keep_offsets = self._broker.keep_offsets
        while term.leads and not self._stopping:
            await self._until_changed(_LOOK_MS)
            if self._broker.read_only:
                raise MessageQueueError(f"{self._broker.read_only}; a replica takes over")
            if term.succession is None and self._logs.repairs.asks_for_another_start():
                with suppress(InvalidArgument):  # none is in sync
                    term.hand_over("")
            if term.succession is not None:
                await hand_over(term, self._watch, keep_offsets, HAND_OVER_MS_MAX)
            if term.progress.is_cut_off(self._watch.heard_ms):
                self._member.resign()
        if term.leads and term.begin_to_leave():
            await hand_over(term, self._watch, keep_offsets, HAND_OVER_MS_MAX)
        if term.leads:
            await drain(term, keep_offsets, _DRAIN_MS)
            asyncio.get_running_loop().call_later(_DRAIN_MS / 1_000, term.gate.close)
        else:
            term.close()
        broker, self._broker = self._broker, None
        await broker.aclose()
        if not self._stopping:
            self._replica.open()
            await self._serve_as_standby()

    async def _keep_set(self, term: Followers) -> None:
        """Takes replicas that lag behind out of the set, and those that caught up into it; says where it has too few."""
        short = ""
        while term.leads and not self._stopping:
            await asyncio.sleep(_LOOK_MS / 1_000)
            if term.leadership.serves and short != (short := term.leadership.shortage) and short:
                _log.error("this broker acknowledges nothing", reason=short)
            proposals = [self._member.shrink(one) for one in term.progress.lagging()]
            proposals += [self._member.grow(one) for one in term.progress.entrants()]
            proposals += [] if term.succession else [self._member.settle()]
            term.leadership.joining = term.progress.next_to_join()
            pending = term.leadership.pending
            if pending is not None and pending not in proposals:
                proposals.append(pending)
            for proposal in proposals:
                if proposal is not None and term.leads:
                    await self._watch.propose(proposal)

    # Listening without a broker.

    async def _serve_as_standby(self) -> None:
        self._standby.begin(self.address)
        self._server = FrameServer(server_limits(self._settings), self._standby, self._clock)
        await self._server.listen(
            self._settings.host, 0, certificates_of(self._settings), self._listener
        )

    async def _end_standby(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.aclose(_CLOSE_GRACE_MS)

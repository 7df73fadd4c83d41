"""
What a replica does: it holds a store that no client sees, and takes over what its leader sends.

    question ─▶ FollowAnswer ─▶ cut where the logs part │ append │ replace documents │ delete what the leader deleted
    synced ─▶ a question that wants no answer: what is on the disk

The next question leaves before the disk has what the last answer brought, so the network does not wait for the disk.

Used by `replicated_broker`, which has the connection to the leader; uses `ClusterMember` for every decision, and the
store's raw side.
"""

import asyncio
from collections.abc import Callable, Collection

import msgspec

from headrace_mq._runtime.clock import Clock
from headrace_mq._runtime.files import Files
from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.replicas.bodies import (
    DamagedRange,
    Document,
    FollowAnswer,
    FollowRequest,
    LogPart,
)
from headrace_mq.broker.replicas.compacted_copy import CompactedCopy
from headrace_mq.broker.replicas.documents import ARCHIVE_DOCUMENT, remove_shortcuts, store_document
from headrace_mq.broker.replicas.followers import FOLLOW_BYTES_MAX
from headrace_mq.broker.replicas.progress.progress import FOLLOW_WAIT_MS_MAX
from headrace_mq.broker.replicas.repairs.repairs import RANGES_MAX
from headrace_mq.broker.replicas.store_logs import StoreLogs
from headrace_mq.cluster.frames import Parted, Send, StaleEpoch
from headrace_mq.cluster.member import ClusterMember
from headrace_mq.cluster.record import FEATURE_LEVEL
from headrace_mq.errors import DataCorrupt, MessageQueueError, NotLeader, StoreFull, StoreReadOnly
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import encode
from headrace_mq.protocol.frame import FRAME_HEADER_BYTES
from headrace_mq.settings import StoreSettings
from headrace_mq.store.compaction.plan import Bounds
from headrace_mq.store.log.clean_end import QueueEnd
from headrace_mq.store.log.commit_gate import CommitGate
from headrace_mq.store.log.commit_log import COMPACT
from headrace_mq.store.message_store import MessageStore
from headrace_mq.store.replication.cut import cut_log
from headrace_mq.store.replication.lost_messages import LOST_FOLDER
from headrace_mq.store.replication.raw_log import RawRange
from headrace_mq.store.replication.restart import FirstSegment, restart_log

__all__ = ["Replica"]

# A range that a leader wants, besides its bytes: the name of a log, a position, and lengths.
_SOUND_RANGE_BYTES = 64
# A disk that needs longer for a flush of some megabytes has failed, or as good as.
_SYNC_MS_MAX = 30_000

_log = get_logger(__name__)


class Replica:
    """The store of a broker that does not lead.

    Args:
        settings: of the store.
        logs: gets the store when it is open.
        clock: the time.
        files: the file system.
        has_archive: whether this broker could lead a group that has an archive.

    Attributes:
        on_synced: called when more is on the disk.
        on_visible: called when readers may see more.
        on_document: called with the name of a document that was replaced.
        heard_ms: when the last question was asked that the leader answered; None: it never was.
    """

    def __init__(
        self,
        settings: StoreSettings,
        logs: StoreLogs,
        *,
        clock: Clock,
        files: Files,
        has_archive: bool = True,
    ) -> None:
        self._settings = settings
        self._logs = logs
        self._clock = clock
        self._files = files
        self._has_archive = has_archive
        self._gate = CommitGate()
        self._store: MessageStore | None = None
        self._synced = asyncio.Event()
        self.on_synced: Callable[[], None] | None = None
        self.on_visible: Callable[[], None] | None = None
        self.on_document: Callable[[str], None] | None = None
        self.heard_ms: int | None = None
        # Below these positions readers see each log: what was there when it was opened, and what was committed since.
        self._shown: dict[str, int] = {}
        # The changes of documents that were taken over, and the epoch that counts them.
        self._documents = (0, 0)
        self._copy = CompactedCopy(settings, logs, files, clock)
        self._compacting: asyncio.Task[bool] | None = None
        self._compact_at_ms = 0
        # What the leader wants of this broker, and what came damaged from it.
        self._wanted: list[DamagedRange] = []
        self._refused: list[DamagedRange] = []
        # Of which epoch the leader has compacted what is damaged here: this broker leaves the set, and copies that log again.
        self._leaves_epoch = 0
        # Logs parted where they may not, unless the record of the epoch says so, which was not read yet.
        self._awaits_record = False

    @property
    def is_open(self) -> bool:
        """Whether the store is open here."""
        return self._store is not None

    @property
    def store(self) -> MessageStore:
        """The store, for those who read. Raises NotLeader: it is closed for a moment."""
        if self._store is None:
            raise NotLeader("this replica opens its log again; ask another broker of its group")
        return self._store

    @property
    def is_held_off(self) -> bool:
        """Whether this replica waits before it asks for more.

        A segment of the leader came damaged, the record is not read yet, or this replica waits to be out of the set.
        """
        return self._copy.is_held_off or self._awaits_record or self._leaves_epoch > 0

    def shows_committed(self, member: ClusterMember) -> bool:
        """Whether all that readers of the store see is committed, as far as this member knows."""
        return all(member.readable(log) >= end for log, end in self._shown.items())

    def open(self, gate: CommitGate | None = None) -> MessageStore:
        """Opens the store, which recovers what it holds.

        Args:
            gate: of a leader that waits for its replicas; None: the replica's own.

        Raises:
            MessageQueueError: the store cannot be opened.
        """
        remove_shortcuts(self._files, self._settings.directory)
        self._logs.repairs.closed()
        if gate is None:
            gate = CommitGate()
            gate.on_held = self._note_synced
        self._gate = gate
        store = MessageStore(self._settings, clock=self._clock, files=self._files, gate=self._gate)
        store.open()
        store.on_visible = self._grew
        self._shown = {log: store.raw.tail(log) for log in self._logs.by_name}
        self._store = store
        self._logs.opened(store)
        return store

    async def aclose(self) -> None:
        """Closes the store; its logs are durable then."""
        store, self._store = self._store, None
        if store is not None:
            self._gate.close()
            await store.aclose()
            if self._compacting is not None:
                await asyncio.wait([self._compacting])
            self._logs.closed_at(store.raw.ends())

    def question(
        self, member: ClusterMember, frame_bytes_max: int = FOLLOW_BYTES_MAX
    ) -> FollowRequest:
        """Returns what to ask the leader; what it wants of this broker comes with it.

        Args:
            member: of this broker.
            frame_bytes_max: the largest frame that the leader takes.
        """
        request, repairs = self.report(member), self._logs.repairs
        ends = {log.log: log.counted for log in request.logs}
        wanted = repairs.wanted(_leader_of(member.epoch), ends)
        if not (wanted or self._wanted or self._refused):
            return request
        request = msgspec.structs.replace(request, wanted=wanted, refused=self._refused)
        taken = FRAME_HEADER_BYTES + len(encode(request)) + RANGES_MAX * _SOUND_RANGE_BYTES
        found = repairs.supply(self._wanted, frame_bytes_max - taken)
        self._wanted, self._refused = [], []
        return msgspec.structs.replace(request, found=found)

    def report(self, member: ClusterMember) -> FollowRequest:
        """Returns what this broker has, for a frame that wants no answer."""
        counted = {frame.log: frame.end for frame in member.report()}
        if self._leaves_epoch == member.epoch:
            # So the leader takes it out of the set, as one that lags behind.
            counted.pop(COMPACT, None)
        logs = []
        for name in self._logs.by_name:
            frame = member.follow(name)
            logs.append(self._copy.log_end(frame, counted.get(name, -1)))
        epoch, version = self._documents
        known = version if epoch == member.epoch else 0
        wait_ms = FOLLOW_WAIT_MS_MAX if len(counted) == len(logs) else 0
        return FollowRequest(
            member.me.name,
            member.me.store_id,
            member.epoch,
            logs,
            known,
            wait_ms,
            FOLLOW_BYTES_MAX,
            member.group_id,
            level=FEATURE_LEVEL,
        )

    async def take(self, member: ClusterMember, answer: FollowAnswer) -> None:
        """Takes over an answer; its documents are on the disk on return, its bytes soon.

        Raises:
            DataCorrupt: the bytes are damaged, or contradict this log.
            StoreReadOnly: the disk failed.
            MessageQueueError: the log cannot be cut; or the group has an archive and this broker none, then the store is closed.
        """
        if answer.epoch != member.epoch:
            member.on_stale(StaleEpoch(answer.epoch))
            return
        self._awaits_record = False
        for part in answer.logs:
            if part.rewound:
                await self._rewind(member, part, answer.epoch)
            elif part.piece:
                await self._install(member, part, answer.epoch)
            elif part.covers:
                continue  # of a segment that came damaged: nothing for now
            elif part.restarted:
                await self._restart(member, part, answer.epoch)
            elif part.parted:
                await self._cut(member, part, answer.epoch)
            else:
                self._append(member, part, answer.epoch)
        self._wanted = answer.wanted
        self._logs.repairs.take(answer.found, _leader_of(answer.epoch))
        if self._logs.repairs.is_stale:
            # The start reads the repaired segments again, and takes in what it left out.
            await self.aclose()
            self.open()
        for document in answer.documents:
            # It may be in sync: while it lives, it could be elected.
            if document.name == ARCHIVE_DOCUMENT and not self._has_archive:
                await self.aclose()
                raise MessageQueueError(
                    "this group has an archive, without which this broker could not lead; start it again with --archive"
                )
            await asyncio.to_thread(self._store_document, document)
            if self.on_document is not None:
                self.on_document(document.name)
            self._documents = (answer.epoch, document.version)
        await self._copy_damaged(member, answer.epoch)
        self._compact(member)

    async def _copy_damaged(self, member: ClusterMember, epoch: int) -> None:
        """Drops the log of compacted topics where it is damaged and the leader has the messages in compacted segments alone.

        As long as it is in the set, it drops nothing, and no longer says that it has that log.
        """
        if not self._logs.repairs.must_copy(_leader_of(epoch)):
            self._leaves_epoch = 0
            return
        if self._leaves_epoch != epoch:
            self._leaves_epoch = epoch
            _log.warning(
                "the log of compacted topics is damaged here, and the leader has compacted that part: this broker leaves the"
                " in-sync set, and copies that log again", end=self._logs.ends()[COMPACT],
            )  # fmt: skip
        if member.on_rewind(epoch, COMPACT):
            await self._shorten(COMPACT, 0)
            self._leaves_epoch = 0

    def _store_document(self, document: Document) -> None:
        store_document(self._files, self._settings.directory, document)

    def _append(self, member: ClusterMember, part: LogPart, epoch: int) -> None:
        store, log = self._logs.store, part.log
        send = Send(epoch, log, part.position, part.committed, part.shared)
        if not member.on_send(send, len(part.data)):
            return
        if log == COMPACT:
            self._logs.tombstones = part.tombstones
        if part.data:
            self._copy.forget()
            starts = [(one.epoch, one.position) for one in part.starts]
            self._logs.epochs.take_over(log, part.position, starts)
            raw = RawRange(log, part.position, part.base, part.file_bytes, part.data)
            try:
                store.raw.append(raw)
            except DataCorrupt:
                self._refused = [DamagedRange(log, part.position, len(part.data))]
                raise
        self._gate.reached(log, member.readable(log))
        self._shown[log] = max(self._shown[log], member.readable(log))
        if part.first:
            store.delete_segments(log, min(part.first, member.readable(log)))

    def _grew(self, _queues: Collection[QueueRef]) -> None:
        if self.on_visible is not None:
            self.on_visible()

    def _note_synced(self) -> None:
        self._synced.set()
        if self.on_synced is not None:
            self.on_synced()

    async def until_synced(self, ahead_bytes: int = 0) -> None:
        """Returns when no log has more bytes than that which are not on the disk.

        Raises:
            StoreFull: the disk had no room, so the bytes were taken back.
            StoreReadOnly: the disk failed.
            TimeoutError: the disk took no bytes in time.
        """
        store = self._logs.store
        async with asyncio.timeout(_SYNC_MS_MAX / 1_000):
            while _ahead(store) > ahead_bytes:
                if store.read_only is not None:
                    raise StoreReadOnly(store.read_only)
                self._synced.clear()
                # A flush that fails wakes no one; so look again now and then.
                try:
                    await asyncio.wait_for(self._synced.wait(), 1)
                except TimeoutError:
                    continue
        if store.raw.is_full:
            raise StoreFull("the disk of this replica is full; make room on it")

    async def _restart(self, member: ClusterMember, part: LogPart, epoch: int) -> None:
        """Drops what the leader deleted, and goes on where its log begins."""
        if not member.on_restart(epoch, part.log, part.position):
            return
        _log.warning(
            "a log begins again where its leader's begins, which has deleted what comes before",
            log=part.log, end=self._logs.ends()[part.log], position=part.position,
        )  # fmt: skip
        await self.aclose()
        # First the epochs: the log would end in an earlier one than the leader's at that position. Until it does, a
        # start forgets those that begin behind its end.
        self._logs.epochs.take_over(part.log, 0, [(one.epoch, one.position) for one in part.starts])
        restart_log(
            self._files, self._settings,
            FirstSegment(part.log, part.position, part.file_bytes, epoch),
            [QueueEnd(one.topic, one.queue_id, part.log, one.offset) for one in part.queues],
            self._clock,
        )  # fmt: skip
        self.open()

    async def _cut(self, member: ClusterMember, part: LogPart, epoch: int) -> None:
        asked = (part.log, part.position, part.last)
        parted = Parted(epoch, *asked, part.found, part.found_end, part.lossy)
        cut = member.on_parted(parted)
        if cut is None:
            self._awaits_record = member.seen is not None and member.seen.epoch < epoch
            return
        if not cut.loses:
            _log.warning(
                "the end of a log is cut: its leader was never confirmed",
                log=cut.log, position=cut.position, end=self._logs.ends()[cut.log],
            )  # fmt: skip
        # What an operator accepted to lose may be compacted here: then all of the log is copied again.
        is_compacted = self._logs.store.raw.compacted(cut.log).end > cut.position
        keep_from = cut.position if cut.loses else None
        await self._shorten(cut.log, 0 if is_compacted else cut.position, keep_from)

    async def _rewind(self, member: ClusterMember, part: LogPart, epoch: int) -> None:
        """Drops a log that ends in what the leader compacted, to copy it whole."""
        if not member.on_rewind(epoch, part.log):
            raise MessageQueueError(
                "this broker counts as one in sync, but lacks messages that its leader compacted; it asks again"
            )
        _log.warning(
            "a log is copied again: its leader has compacted what comes next",
            log=part.log, end=self._logs.ends()[part.log],
        )  # fmt: skip
        await self._shorten(part.log, 0)

    async def _shorten(self, log: str, position: int, keep_from: int | None = None) -> None:
        self._copy.forget()
        end = self._logs.ends()[log]
        await self.aclose()  # what is staged is on the disk then
        if keep_from is None:
            cut_log(self._files, self._settings, log, position)
        else:
            await self._keep_and_cut(log, position, keep_from, end)
        self._logs.epochs.cut(log, position)
        self.open()

    async def _keep_and_cut(self, log: str, position: int, keep_from: int, end: int) -> None:
        # What is kept is read and written as a whole, and may be gibibytes; others use the loop meanwhile.
        kept = await asyncio.to_thread(
            cut_log, self._files, self._settings, log, position, keep_from=keep_from
        )
        if kept is not None:
            _log.error(
                "messages were lost: the leader began without the end of this log, so it is cut; they are kept in a file, see"
                " `headrace store lost`", log=log, position=keep_from, end=end, messages=kept.messages, bytes=end - keep_from,
                file=str(self._settings.directory / LOST_FOLDER / kept.name),
            )  # fmt: skip

    async def _install(self, member: ClusterMember, part: LogPart, epoch: int) -> None:
        """Takes a piece of a compacted segment, and puts the segment in place once it is whole."""
        if not member.on_copy(epoch, part.log, part.position):
            return
        try:
            whole = await asyncio.to_thread(self._copy.take, part, epoch)
        except DataCorrupt:
            self._refused = [DamagedRange(part.log, part.base, part.covers - part.base)]
            raise
        if whole is None:
            return
        await self.aclose()
        starts = [(one.epoch, one.position) for one in part.starts]
        self._logs.epochs.take_over(part.log, part.position, starts)
        whole.install()
        self.open()

    def _compact(self, member: ClusterMember) -> None:
        """Compacts the own log now and then, as far as all in sync have it."""
        now_ms = self._clock.monotonic_ms()
        is_running = self._compacting is not None and not self._compacting.done()
        if now_ms < self._compact_at_ms or is_running:
            return
        self._compact_at_ms = now_ms + self._settings.compact_interval_ms
        bounds = Bounds(member.shared(COMPACT), self._logs.tombstones)
        # What belongs to deleted topics stays, until this broker leads.
        compaction = self._logs.store.compaction.run({}, bounds=bounds)
        self._compacting = asyncio.create_task(compaction, name="compact")


def _leader_of(epoch: int) -> str:
    """Returns what repairs call a leader."""
    return f"the leader of epoch {epoch}"


def _ahead(store: MessageStore) -> int:
    """Returns how many bytes of a log are not on the disk, of the log that has most of them."""
    raw = store.raw
    return max(raw.tail(log) - end for log, end in raw.ends().items())

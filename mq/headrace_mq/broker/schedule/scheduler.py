"""
Delivers scheduled messages when they are due, each once; why a crash changes neither.

A scheduled message is a record of the journal, queue 0 of `%SCHEDULE%` in the transient log, and is
acknowledged like any other: after the sync. A delivery is

    1  append `deliver`: which messages, and as which batches with which sequences
    2  append these batches, under a producer id of the schedule's own
    3  wait until all of it is durable; only then begin with the next delivery

Where a batch goes to the other log, 1 is durable before 2 begins; within one log a crash keeps what
stands first, so a batch is never there without its `deliver`. A start reads the journal. All but the
last `deliver` are done, because of 3. The last one is appended again, batch by batch, with the same
sequences: the store drops what it has, and takes what it has not. What no `deliver` names is pending.
So each message is delivered, and once. `delivered` closes the last one when nothing follows, so that
the store need not remember the sequences for longer than a moment.

The schedule itself is memory, kept in `schedule.json` now and then so that a start reads only the
journal behind it. What is due at a date waits for the wall clock, what is due after a delay for the
steady one. Before a message that comes after the clock was set the journal says `clock`, so that
whoever reads it knows from which clock a delay was counted.

Before a segment of the journal is deleted, what is pending in it is appended again (`spare`).

Sits between: `handlers`, `topics.deletion` and `server`, and the store. One task works; all belongs to the
event loop's thread.
"""

import asyncio
from collections.abc import Callable, Sequence

from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.files.metadata_file import MetadataFile
from headrace_mq.broker.schedule.delivery import Deliveries, NotYet, Prepared, SchedulingStore
from headrace_mq.broker.schedule.entries import KeptSchedule, Schedule
from headrace_mq.broker.schedule.journal import (
    Cancelled,
    ClockSet,
    Delayed,
    Delivered,
    Delivery,
    Moved,
    Part,
    check_scheduled,
    moved_headers,
    own_record,
    read_event,
)
from headrace_mq.broker.schedule.wheel import Entry
from headrace_mq.broker.steady_clock import SteadyClock
from headrace_mq.broker.topics.topics import Topics
from headrace_mq.errors import (
    BrokerError,
    CorruptBatch,
    DataCorrupt,
    FormatTooNew,
    InvalidArgument,
    ScheduleFull,
    StoreFull,
    StoreReadOnly,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import (
    BatchHeader,
    Columns,
    decode_columns,
    encode_batch,
    read_header,
)
from headrace_mq.protocol.scheduled import SCHEDULE_QUEUE, SCHEDULE_TOPIC, ScheduleDescription
from headrace_mq.store.retention.retention import SegmentFacts

__all__ = ["Scheduler"]

_log = get_logger(__name__)

_LOG = "transient"
# Messages of one delivery: about 10 ms of the loop, and one sync.
DELIVERED_MAX = 256
# Entries that are poured ahead, or messages appended again, between two deliveries.
ADVANCED_MAX = 5_000
MOVED_MAX = 512
# Journal records behind the kept state: what a start after a crash reads, one or two seconds.
KEEP_EVERY = 100_000
READ_BYTES = 1 << 20
# A clock that was set is noticed within this time.
LOOK_MS_MAX = 1_000
# Messages that come from the disk are announced; this is for an announcement that was missed.
DISK_MS_MAX = 100
# Pause before a disk that was full is tried again.
PAUSE_MS = 1_000


class Scheduler:
    """The schedule of one broker.

    Args:
        store: holds the journal and takes the deliveries.
        topics: where they go.
        clock: says what is due, whatever was done to the machine's.
        file: keeps the state.
        epoch: of the broker.
        pending_max: messages that may wait at a time.
        check_room: raises StoreFull while the disk is too full for new messages.
    """

    def __init__(
        self,
        store: SchedulingStore,
        topics: Topics,
        *,
        clock: SteadyClock,
        file: MetadataFile[KeptSchedule],
        epoch: int,
        pending_max: int,
        check_room: Callable[[], None],
    ) -> None:
        self._store = store
        self._topics = topics
        self._clock = clock
        self._file = file
        self._pending_max = pending_max
        self._check_room = check_room
        self._deliveries = Deliveries(store, topics, epoch=epoch)
        self._schedule = Schedule()
        # How far the clock is ahead for what follows in the journal; None where that is unknown.
        self._noted_ms: int | None = None
        self._kept_to = 0
        self._keep_now = False
        self._move_below = 0
        # Whether what is due next comes from the disk.
        self._on_its_way = False
        # The delivery to be finished before there is another, and the note that the last one is.
        self._current: Delivery | None = None
        self._closing: asyncio.Future[None] | None = None
        self._news = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def load(self) -> None:
        """Reads the kept state and the journal behind it; blocks until that is done.

        Raises:
            FormatTooNew: a newer version wrote the file.
        """
        first, end = self._store.range(SCHEDULE_QUEUE)
        try:
            kept = self._file.read()
            if kept is not None and first <= kept.read_to <= end:
                self._schedule = Schedule.restored(kept)
                self._kept_to = kept.read_to
        except (DataCorrupt, ValueError) as error:
            _log.warning("the kept schedule is read from its journal instead", reason=str(error))
        if first and not self._kept_to:
            # What the journal said of the clock at first is deleted: most likely this.
            self._schedule.ahead_ms = self._clock.ahead_ms
        self._follow()
        self._noted_ms = self._schedule.ahead_ms
        self._clock.assume(self._noted_ms)
        self._current = self._schedule.unfinished
        _log.info("the schedule is read", pending=len(self._schedule), journal=end)

    def start(self) -> None:
        """Begins to deliver, first of all what a crash interrupted."""
        self._task = asyncio.create_task(self._run(), name="schedule")

    async def aclose(self) -> None:
        """Finishes the delivery under way and keeps the state."""
        self._stopping = True
        self._news.set()
        if self._task is not None:
            await self._task
            await self._keep()

    def check(self, header: BatchHeader, batch: memoryview) -> None:
        """Raises unless a client may append this batch to the journal.

        Raises:
            InvalidArgument: a message cannot be scheduled; the sentence says why.
            ScheduleFull: as many wait as may.
            CorruptBatch: the batch cannot be read.
            StoreFull, StoreReadOnly: what is to stand before it cannot be written.
        """
        if header.queue != SCHEDULE_QUEUE:
            raise InvalidArgument(f"{SCHEDULE_TOPIC} has one queue, with number 0")
        try:
            columns = decode_columns(batch, header)
        except DataCorrupt as error:
            raise CorruptBatch(f"the messages to schedule cannot be read: {error}") from error
        check_scheduled(columns.headers, header.count, now_ms=self._clock.now_ms())
        if len(self._schedule) + header.count > self._pending_max:
            raise ScheduleFull(
                f"{len(self._schedule)} scheduled messages wait, and at most {self._pending_max}"
                " may; try again later, or raise scheduled_max"
            )
        self._note_clock()

    def journal_grew(self) -> None:
        """Takes over the new records of the journal, or looks again at what came from the disk.

        The store calls it when either can be read.
        """
        self._follow()
        self._news.set()

    def look(self) -> None:
        """Looks now at what is due, for whoever knows that the clock was set."""
        self._news.set()

    def cancel(self, number: int) -> asyncio.Future[None] | None:
        """Takes a pending message back; None where it is not pending (any more).

        The future ends when that is durable; if it fails the message is pending again.

        Raises:
            StoreFull, StoreReadOnly: nothing was changed.
        """
        found, due_ms = self._due_ms_of(number)
        entry = self._schedule.cancel(number, due_ms) if found else None
        if entry is None:
            return None
        try:
            self._append(own_record(Cancelled(entry.number, entry.due_ms)))
        except BrokerError:
            self._schedule.give_back([entry])
            raise
        durable = self._store.durable()

        def settled(outcome: asyncio.Future[None]) -> None:
            # Where the record did become visible the entry is no longer held, and stays gone.
            if outcome.exception() is not None:
                self._schedule.give_back([entry])

        durable.add_done_callback(settled)
        return durable

    def describe(self) -> ScheduleDescription:
        """How many wait, and when the next one is due."""
        now_ms = self._clock.look().wall_ms
        next_due_ms = self._schedule.next_due_ms(self._clock.timeline.ahead_ms)
        if next_due_ms is None:
            return ScheduleDescription(0, -1, 0)
        late_ms = max(0, now_ms - next_due_ms)
        return ScheduleDescription(len(self._schedule), next_due_ms, late_ms)

    def spare(self, segments: Sequence[SegmentFacts], before: int) -> int:
        """Lowers the log position before which segments go to what the schedule still needs.

        What is pending there is appended again soon, so that the next pass can delete more.
        """
        ends = [(segment, segment.next_offsets.get(SCHEDULE_QUEUE, 0)) for segment in segments]
        wanted = max((end for segment, end in ends if segment.end <= before), default=0)
        if not wanted:
            return before
        lowest = self._schedule.lowest_place()
        needed = self._kept_to if lowest is None else min(lowest, self._kept_to)
        if wanted <= needed:
            return before
        self._move_below = wanted
        self._keep_now = True
        self._news.set()
        return next(segment.base for segment, end in ends if end > needed)

    async def _run(self) -> None:
        while not self._stopping:
            try:
                await self._turn()
            except StoreReadOnly as error:
                _log.error("nothing scheduled is delivered until a restart", reason=str(error))
                return
            except StoreFull as error:
                _log.warning("the schedule waits for room on the disk", reason=str(error))
                await self._pause()
            except Exception:  # noqa: BLE001 - the next turn may succeed; the broker serves on
                _log.exception("the schedule failed and goes on in a moment")
                await self._pause()

    async def _turn(self) -> None:
        """Delivers once, does a bounded share of everything else, and waits if that was all."""
        if self._current is not None:
            await self._finish(self._current)
        self._news.clear()
        delivered = await self._deliver()
        if self._move_below:
            await self._move()
        if self._keep_now or self._schedule.read_to - self._kept_to >= KEEP_EVERY:
            await self._keep()
        now_ms, ahead_ms = self._clock.look().wall_ms, self._clock.timeline.ahead_ms
        if self._schedule.advance(now_ms, now_ms - ahead_ms, ADVANCED_MAX) or delivered:
            await asyncio.sleep(0)
            return
        wake_ms = self._schedule.wake_ms(ahead_ms)
        wait_ms = LOOK_MS_MAX if wake_ms is None else min(LOOK_MS_MAX, wake_ms - now_ms)
        if wait_ms > 0:
            self._close()
        elif self._on_its_way:
            wait_ms = DISK_MS_MAX
        await self._wait(max(0, wait_ms))

    async def _deliver(self) -> int:
        """Delivers what is due, as much as goes at a time; returns how many messages."""
        self._on_its_way = False
        now_ms = self._clock.look().wall_ms
        due = self._schedule.take(now_ms, now_ms - self._clock.timeline.ahead_ms, DELIVERED_MAX)
        if not due:
            return 0
        try:
            self._check_room()
            prepared: Prepared = self._deliveries.prepare(due)
        except BaseException:
            self._schedule.give_back(due)
            raise
        self._schedule.give_back(prepared.left)
        self._on_its_way = not prepared.delivery.entries()
        if self._on_its_way:
            return 0
        self._current = prepared.delivery
        await self._finish(prepared.delivery)
        return len(due) - len(prepared.left)

    async def _finish(self, delivery: Delivery) -> None:
        """Appends a delivery until all of it is durable.

        Raises:
            StoreReadOnly: the disk failed; the next start finishes it.
        """
        while True:
            try:
                await self._attempt(delivery)
            except StoreFull as error:
                _log.warning("a delivery waits for room on the disk", reason=str(error))
                if self._stopping:
                    raise
                await self._pause()
            else:
                self._current = self._closing = None
                return

    async def _attempt(self, delivery: Delivery) -> None:
        if self._schedule.unfinished != delivery:
            self._append(own_record(delivery))
            if any(self._retention(part) != _LOG for part in delivery.parts):
                await self._store.durable()
        for part in delivery.parts:
            self._append_part(delivery, part)
        await self._store.durable()

    def _append_part(self, delivery: Delivery, part: Part) -> None:
        queue = QueueRef(part.topic, part.queue_id)
        batch = self._deliveries.batch_of(delivery, part)
        if batch is None:
            return
        try:
            # Also where it is frozen by now: the message was accepted before.
            self._topics.check(queue)
            self._store.append(batch, retention=self._retention(part))
        except (StoreFull, StoreReadOnly):
            raise
        except BrokerError as error:
            _log.error("a queue refuses scheduled messages", queue=queue, reason=str(error))
            dead = self._deliveries.dead_batch_of(part)
            if dead is not None:
                self._store.append(dead, retention=_LOG)

    def _retention(self, part: Part) -> str:
        found = self._topics.find(part.topic)
        return found.retention if found is not None else _LOG

    def _close(self) -> None:
        """Notes that the last delivery is done; whether that becomes durable matters little."""
        if self._schedule.unfinished is None or self._closing is not None:
            return
        self._append(own_record(Delivered()))
        self._closing = self._store.durable()
        self._closing.add_done_callback(self._closed)

    def _closed(self, outcome: asyncio.Future[None]) -> None:
        if outcome.exception() is not None and self._closing is outcome:
            self._closing = None

    async def _move(self) -> None:
        """Appends again what stands in segments that are to go, a bounded number at a time."""
        entries = self._schedule.placed_below(self._move_below, MOVED_MAX)
        if not entries:
            self._move_below = 0
            return
        self._note_clock()
        moved = [entry for entry in entries if self._move_one(entry)]
        if not moved:
            # They come from the disk, which wakes this task.
            return
        await self._store.durable()

    def _move_one(self, moved: Moved) -> bool:
        entry = moved.entry
        # Nothing may happen to the entry between the search and the append: hence no waiting.
        try:
            letter = self._deliveries.letter(entry.place, wait=False)
        except NotYet:
            return False
        if letter is None:
            self._append(own_record(Cancelled(entry.number, entry.due_ms)))
            return True
        if moved.is_delay:
            assert self._noted_ms is not None
            entry = entry._replace(due_ms=entry.due_ms + self._noted_ms)
        headers = moved_headers(letter.headers, entry, is_delay=moved.is_delay)
        columns = Columns([letter.key], [letter.tag], [headers], [letter.body], [])
        self._append(columns, born_ms=letter.born_at_ms)
        return True

    def _note_clock(self) -> None:
        """Says in the journal how far the clock is ahead, before what is counted from it."""
        ahead_ms = self._clock.ahead_ms
        if ahead_ms == self._noted_ms:
            return
        self._append(own_record(ClockSet(ahead_ms)))
        self._noted_ms = ahead_ms

        def settled(outcome: asyncio.Future[None]) -> None:
            if outcome.exception() is not None:
                self._noted_ms = None

        self._store.durable().add_done_callback(settled)

    async def _keep(self) -> None:
        """Writes the state, so that a start reads the journal from here on."""
        self._keep_now = False
        if self._schedule.read_to == self._kept_to:
            return
        kept = self._schedule.kept()
        try:
            await asyncio.to_thread(self._file.write, kept)
        except OSError as error:
            _log.warning("the schedule could not be kept; a start reads more", reason=str(error))
            return
        self._kept_to = kept.read_to

    def _append(self, columns: Columns, *, born_ms: int | None = None) -> None:
        born_ms = self._clock.now_ms() if born_ms is None else born_ms
        batch = encode_batch(SCHEDULE_QUEUE, columns, born_first_ms=born_ms)
        self._store.append(batch, retention=_LOG)

    def _follow(self) -> None:
        schedule = self._schedule
        while True:
            first, end = self._store.range(SCHEDULE_QUEUE)
            schedule.read_to = max(schedule.read_to, first)
            if schedule.read_to >= end:
                return
            batches = self._store.read(SCHEDULE_QUEUE, schedule.read_to, READ_BYTES)
            for batch in batches:
                self._apply(batch)
            if not batches:
                schedule.read_to = end

    def _apply(self, batch: bytes | memoryview) -> None:
        header = read_header(batch)
        try:
            columns = decode_columns(batch, header)
            for offset in range(
                max(header.base_offset, self._schedule.read_to), header.next_offset
            ):
                self._schedule.apply(read_event(header, columns, offset - header.base_offset))
        except (DataCorrupt, FormatTooNew) as error:
            _log.error("a record of the schedule is left out", reason=str(error))
        self._schedule.read_to = header.next_offset

    def _due_ms_of(self, number: int) -> tuple[bool, int | None]:
        """Whether a number may be pending, and its due time where its first record still stands."""
        first, end = self._store.range(SCHEDULE_QUEUE)
        if not 0 <= number < end:
            return False, None
        event = self._deliveries.event(number) if number >= first else None
        if event is None:
            return True, None
        if isinstance(event, Delayed):
            event = event.entry
        return (True, event.due_ms) if isinstance(event, Entry) else (False, None)

    async def _pause(self) -> None:
        """Waits a moment, or for news; what was news before the failure is none."""
        if self._stopping:
            return
        self._news.clear()
        await self._wait(PAUSE_MS)

    async def _wait(self, wait_ms: int) -> None:
        try:
            async with asyncio.timeout(wait_ms / 1_000):
                await self._news.wait()
        except TimeoutError:
            pass

"""
Delivers scheduled messages when they are due, each once; why a crash changes neither.

A scheduled message is a record of the journal, queue 0 of `%SCHEDULE%` in the transient log, and is
acknowledged like any other: after the sync. A delivery is an order of that journal: `deliver` says which
messages go as which batches, and what no `deliver` names is pending. `broker.journal.worker` argues why
each one is carried out once.

The schedule itself is memory, kept in `schedule.json` now and then so that a start reads only the
journal behind it. What is due at a date waits for the wall clock, what is due after a delay for the
steady one. Before a message that comes after the clock was set the journal says `clock`, so that
its reader knows from which clock a delay was counted.

Before a segment of the journal is deleted, what is pending in it is appended again (`spare`).

Used by `handlers`, `topics.deletion` and `server`; uses the journal's worker.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial

from headrace_mq.broker.files.metadata_file import MetadataFile
from headrace_mq.broker.journal.batches import JournalStore, NotYet, sent_columns
from headrace_mq.broker.journal.log import LOG, JournalFormat, JournalLog
from headrace_mq.broker.journal.worker import (
    DISK_MS_MAX,
    LOOK_MS_MAX,
    JournalWorker,
    OrderBatch,
)
from headrace_mq.broker.schedule.delivery import Deliveries, PreparedDelivery
from headrace_mq.broker.schedule.entries import KeptSchedule, Schedule
from headrace_mq.broker.schedule.journal import (
    Cancelled,
    ClockSet,
    Delayed,
    Delivered,
    Delivery,
    Moved,
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
    ScheduleFull,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import (
    BatchHeader,
    Columns,
)
from headrace_mq.protocol.scheduled import SCHEDULE_QUEUE, TOPIC_HEADER, ScheduleDescription

__all__ = ["Scheduler"]

# Messages of one delivery: about 10 ms of the loop, and one sync.
DELIVERED_MAX = 256
# Entries that are poured ahead, or messages appended again, between two deliveries.
ADVANCED_MAX = 5_000
MOVED_MAX = 512
# Journal records behind the kept state: what a start after a crash reads, one or two seconds.
KEEP_EVERY = 100_000


class Scheduler(JournalWorker[Delivery]):
    """The schedule of one broker.

    Args:
        store: holds the journal and takes the deliveries.
        topics: where they go.
        clock: says what is due, even where the machine's clock was set.
        file: keeps the state.
        epoch: of the broker.
        pending_max: messages that may wait at a time.
        check_room: raises StoreFull while the disk is too full for new messages.
    """

    _done = Delivered()
    _dead_retention = LOG

    def __init__(
        self,
        store: JournalStore,
        topics: Topics,
        *,
        clock: SteadyClock,
        file: MetadataFile[KeptSchedule],
        epoch: int,
        pending_max: int,
        check_room: Callable[[], None],
    ) -> None:
        self._schedule = Schedule()
        form = JournalFormat(
            "schedule", SCHEDULE_QUEUE, read_event, own_record, keep_records=KEEP_EVERY
        )
        log = JournalLog(store, file, clock=clock, state=self._schedule, form=form)
        super().__init__(store, topics, log=log, state=self._schedule)
        self._clock = clock
        self._pending_max = pending_max
        self._check_room = check_room
        self._deliveries = Deliveries(store, topics, epoch=epoch)
        # How far the clock is ahead for what follows in the journal; None where that is unknown.
        self._noted_ms: int | None = None
        self._move_below = 0
        # Whether what is due next comes from the disk.
        self._on_its_way = False

    def load(self) -> None:
        """Reads the kept state and the journal behind it; blocks until that is done.

        Raises:
            FormatTooNew: a newer version wrote the file.
        """
        super().load()
        self._noted_ms = self._schedule.ahead_ms
        self._clock.assume(self._noted_ms)

    def check(self, header: BatchHeader, batch: memoryview) -> set[str]:
        """Returns the topics of a batch that clients append to the journal.

        Raises:
            InvalidArgument: a message cannot be scheduled; the sentence says why.
            ScheduleFull: as many wait as may.
            CorruptBatch: the batch cannot be read.
            StoreFull, StoreReadOnly: what is to stand before it cannot be written.
        """
        columns = sent_columns(header, batch, SCHEDULE_QUEUE)
        check_scheduled(columns.headers, header.count, now_ms=self._clock.now_ms())
        if len(self._schedule) + header.count > self._pending_max:
            raise ScheduleFull(
                f"{len(self._schedule)} scheduled messages wait, and at most {self._pending_max}"
                " may; try again later, or raise scheduled_max"
            )
        self._note_clock()
        return {headers[TOPIC_HEADER] for headers in columns.headers}

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
            self._log.append(Cancelled(entry.number, entry.due_ms))
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

    def _follow(self) -> None:
        if not self._schedule.read_to and self._store.range(SCHEDULE_QUEUE)[0]:
            # What the journal said of the clock at first is deleted: most likely this.
            self._schedule.ahead_ms = self._clock.ahead_ms
        super()._follow()

    def _free_below(self, offset: int) -> None:
        self._move_below = offset

    async def _turn(self) -> None:
        """Delivers once, does a bounded share of everything else, and waits if that was all."""
        self._news.clear()
        delivered = await self._deliver()
        if self._move_below:
            await self._move()
        await self._log.keep()
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
        await self._news_within(max(0, wait_ms))

    async def _deliver(self) -> int:
        """Delivers what is due, as much as goes at a time; returns how many messages."""
        self._on_its_way = False
        now_ms = self._clock.look().wall_ms
        due = self._schedule.take(now_ms, now_ms - self._clock.timeline.ahead_ms, DELIVERED_MAX)
        if not due:
            return 0
        try:
            self._check_room()
            prepared: PreparedDelivery = self._deliveries.prepare(due)
        except BaseException:
            self._schedule.give_back(due)
            raise
        self._schedule.give_back(prepared.left)
        self._on_its_way = not prepared.delivery.entries()
        if self._on_its_way:
            return 0
        await self._finish(prepared.delivery)
        return len(due) - len(prepared.left)

    def _batches(self, order: Delivery) -> Iterator[OrderBatch]:
        for part in order.parts:
            batch = self._deliveries.batch_of(order, part)
            dead = partial(self._deliveries.dead_batch_of, part)
            yield OrderBatch(QueueRef(part.topic, part.queue_id), batch, dead)

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
            self._log.append(Cancelled(entry.number, entry.due_ms))
            return True
        if moved.is_delay:
            assert self._noted_ms is not None
            entry = entry._replace(due_ms=entry.due_ms + self._noted_ms)
        headers = moved_headers(letter.headers, entry, is_delay=moved.is_delay)
        columns = Columns([letter.key], [letter.tag], [headers], [letter.body], [])
        self._log.append_columns(columns, born_ms=letter.born_at_ms)
        return True

    def _note_clock(self) -> None:
        """Says in the journal how far the clock is ahead, before what is counted from it."""
        ahead_ms = self._clock.ahead_ms
        if ahead_ms == self._noted_ms:
            return
        self._log.append(ClockSet(ahead_ms))
        self._noted_ms = ahead_ms

        def settled(outcome: asyncio.Future[None]) -> None:
            if outcome.exception() is not None:
                self._noted_ms = None

        self._store.durable().add_done_callback(settled)

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

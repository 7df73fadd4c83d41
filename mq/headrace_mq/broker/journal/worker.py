"""
Carries out what a journal says, each of its orders once; why a crash changes nothing.

An order is what a journal says is to be appended: a delivery of the schedule, or the decisions on
transactions. One is under way at a time, and is carried out in three steps:

    1  append the order: which batches go where, with which sequences
    2  append these batches, under a producer id of the journal's own
    3  wait until all of it is durable, on each broker in sync; only then begin with the next order

Where a batch goes to the other log, 1 is durable before 2 begins; within one log a crash keeps what
stands first, so a batch is never there without its order. Each log reaches a replica by itself, so both waits
are for all in sync, also where the leader of a group acknowledges alone. A start reads the journal. All but the last
order are carried out, because of 3. The last one is appended again, batch by batch, with the same
sequences: the store drops what it has, and takes what it has not. A record that says `done` closes the
last one when nothing follows, so that the store need not remember the sequences for longer than a moment.

Before a segment of the journal is deleted, what is still needed of it is moved out of the way (`spare`).

Used by `schedule.scheduler` and `transactions.coordinator`, which say what the orders are; uses the store
and the topics. One task works; all belongs to the event loop's thread.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.journal.batches import JournalStore
from headrace_mq.broker.journal.log import LOG, JournalLog, JournalState
from headrace_mq.broker.topics.topics import Topics
from headrace_mq.errors import BrokerError, StoreFull, StoreReadOnly
from headrace_mq.message import QueueRef
from headrace_mq.store.retention.retention import SegmentFacts

__all__ = ["JournalWorker", "Order", "OrderBatch"]

_log = get_logger(__name__)

# A clock that was set, and a client that fell silent, are noticed within this time.
LOOK_MS_MAX = 1_000
# What comes from the disk is announced; this is for an announcement that was missed.
DISK_MS_MAX = 100
# Pause before a disk that was full is tried again.
PAUSE_MS = 1_000


class Order(Protocol):
    """A record of the journal: batches that are to be appended."""

    @property
    def parts(self) -> Sequence[Any]:
        """The batches, each with the `topic` that it goes to."""
        ...


T = TypeVar("T", bound=Order)


class OrderBatch(NamedTuple):
    """One batch of an order.

    Attributes:
        queue: where it goes.
        batch: the same one each time; None where nothing of it can be read any more.
        dead: makes the batch that keeps its messages where that queue refuses them.
    """

    queue: QueueRef
    batch: bytearray | None
    dead: Callable[[], bytearray | None]


class JournalWorker(ABC, Generic[T]):
    """Follows one journal and carries out its orders.

    Args:
        store: holds the journal and takes the batches.
        topics: where they go.
        log: the journal.
        state: what it tells.
    """

    # The record that closes the last order, and how long messages that a queue refuses are kept.
    _done: ClassVar[Any]
    _dead_retention: ClassVar[str]

    def __init__(
        self,
        store: JournalStore,
        topics: Topics,
        *,
        log: JournalLog,
        state: JournalState,
    ) -> None:
        self._store = store
        self._topics = topics
        self._log = log
        self._orders = state
        # The order to be carried out before there are others, and the note that the last one is.
        self._current: T | None = None
        self._closing: asyncio.Future[None] | None = None
        # Below which offset no broker in sync needs the journal; and where the log ended when this one was found to need it
        # from a later offset on, and that offset.
        self._unneeded = 0
        self._found: tuple[int, int] | None = None
        self._news = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def _turn(self) -> None:
        """Works once, and waits if there was nothing to do; no order is under way then."""

    @abstractmethod
    def _batches(self, order: T) -> Iterable[OrderBatch]:
        """Makes the batches of an order, one after the other."""

    @abstractmethod
    def _free_below(self, offset: int) -> None:
        """Has what is needed below a journal offset moved out of the way."""

    def load(self) -> None:
        """Reads the kept state and the journal behind it; blocks until that is done.

        Raises:
            FormatTooNew: a newer version wrote the file.
        """
        self._log.restore()
        self._follow()
        self._current = self._orders.unfinished
        _log.info("a journal is read", journal=self._log.name, read_to=self._orders.read_to)

    def start(self) -> None:
        """Begins to work, first of all on what a crash interrupted."""
        self._task = asyncio.create_task(self._run(), name=self._log.name)

    async def aclose(self) -> None:
        """Finishes the order under way and keeps the state."""
        self._stopping = True
        self._news.set()
        if self._task is not None:
            await self._task
            await self._log.keep(always=True)

    def journal_grew(self) -> None:
        """Takes over the new records of the journal, or looks again at what came from the disk.

        The store calls it when either can be read.
        """
        self._follow()
        self._news.set()

    def look(self) -> None:
        """Looks now at what is due; call it when the clock was set."""
        self._news.set()

    def spare(self, segments: Sequence[SegmentFacts], before: int) -> int:
        """Lowers the log position before which segments go to what is still needed of the journal.

        What is needed there is moved out of the way soon, so that the next pass can delete more. Replicas delete the same
        segments, and may get the end of the log later. So a segment goes once all in sync have the log as it ended when the
        segment was no longer needed.
        """
        ends = [(segment, segment.next_offsets.get(self._log.queue, 0)) for segment in segments]
        wanted = max((end for segment, end in ends if segment.end <= before), default=0)
        if not wanted:
            return before
        lowest = self._orders.lowest_offset()
        needed = self._log.kept_to if lowest is None else min(lowest, self._log.kept_to)
        if wanted > needed:
            self._free_below(wanted)
            self._log.keep_now = True
            self._news.set()
        needed = self._needed_by_all(needed)
        if wanted <= needed:
            return before
        return next(segment.base for segment, end in ends if end > needed)

    def _needed_by_all(self, needed: int) -> int:
        """Returns the offset below which no broker in sync needs the journal, where this one needs it from an offset on."""
        end, kept_from = self._store.raw.end(LOG), self._store.raw.kept_from(LOG)
        if end <= kept_from:
            self._found, self._unneeded = None, needed
        elif self._found is None:
            self._found = end, needed
        elif self._found[0] <= kept_from:
            self._unneeded = self._found[1]
            self._found = end, needed
        return self._unneeded

    def _follow(self) -> None:
        self._log.follow()

    async def _run(self) -> None:
        journal = self._log.name
        while not self._stopping:
            try:
                if self._current is not None:
                    await self._finish(self._current)
                await self._turn()
            except StoreReadOnly as error:
                _log.error(
                    "a journal stopped; the disk failed, so restart the broker when the disk works",
                    journal=journal,
                    reason=str(error),
                )
                return
            except StoreFull as error:
                self._say_full(error)
                await self._pause()
            except Exception:  # noqa: BLE001 - the next turn may succeed; the broker serves on
                _log.exception(
                    "a journal failed; the broker tries again in a moment", journal=journal
                )
                await self._pause()

    async def _finish(self, order: T) -> None:
        """Carries out an order, until all of it is durable.

        Raises:
            StoreReadOnly: the disk failed; the next start finishes it.
        """
        self._current = order
        while True:
            try:
                await self._attempt(order)
            except StoreFull as error:
                self._say_full(error)
                if self._stopping:
                    raise
                await self._pause()
            else:
                self._current = self._closing = None
                return

    async def _attempt(self, order: T) -> None:
        if self._orders.unfinished != order:
            self._log.append(order)
            if self._goes_elsewhere(order):
                await self._store.durable()
        if self._goes_elsewhere(order):
            await self._store.raw.shared()
        for made in self._batches(order):
            if made.batch is not None:
                self._append(made, made.batch)
        await self._store.durable()
        await self._store.raw.shared()

    def _goes_elsewhere(self, order: T) -> bool:
        """Whether a batch goes to another log than the journal's."""
        return any(self._retention(part.topic) != LOG for part in order.parts)

    def _append(self, made: OrderBatch, batch: bytearray) -> None:
        try:
            # Also where it is frozen by now: the message was accepted before.
            self._topics.check(made.queue)
            self._store.append(batch, retention=self._retention(made.queue.topic))
        except (StoreFull, StoreReadOnly):
            raise
        except BrokerError as error:
            _log.error(
                "a queue refused messages of a journal",
                journal=self._log.name, queue=made.queue, reason=str(error),
            )  # fmt: skip
            dead = made.dead()
            if dead is not None:
                self._store.append(dead, retention=self._dead_retention)

    def _retention(self, topic: str) -> str:
        found = self._topics.find(topic)
        return found.retention if found is not None else LOG

    def _close(self) -> None:
        """Notes that the last order is carried out; whether that becomes durable matters little."""
        if self._orders.unfinished is None or self._closing is not None:
            return
        self._log.append(self._done)
        self._closing = self._store.durable()
        self._closing.add_done_callback(self._closed)

    def _closed(self, outcome: asyncio.Future[None]) -> None:
        if outcome.exception() is not None and self._closing is outcome:
            self._closing = None

    def _say_full(self, error: StoreFull) -> None:
        _log.warning(
            "a journal waits for room on the disk; free some space",
            journal=self._log.name,
            reason=str(error),
        )

    async def _pause(self) -> None:
        """Waits a moment, or for news; what was news before the failure is none."""
        if self._stopping:
            return
        self._news.clear()
        await self._news_within(PAUSE_MS)

    async def _news_within(self, wait_ms: int) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1_000):
                return await self._news.wait()
        return False

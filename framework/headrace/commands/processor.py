"""
The command service: takes commands from the queue and sees each one through to its answer.

Reads the command topics; uses one worker per aggregate that has commands. It decides nothing about
a command itself.

A message is acknowledged when its stream is stored and published, or its command is parked or
changed nothing. A crash at any moment leaves it unacknowledged: it comes again, the event store
recognises it, and its stored stream is published (again) and answered.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace

from headrace._runtime.backoff import Backoff
from headrace._runtime.clock import Clock, SystemClock
from headrace._runtime.log import get_logger
from headrace._runtime.tasks import TaskSet
from headrace._runtime.tracebacks import traceback_of
from headrace._runtime.work import CommandWork, Durations
from headrace.access.principal import PRINCIPAL, principal_in
from headrace.aggregates.cache import AggregateCache
from headrace.aggregates.known_commands import KnownCommands
from headrace.aggregates.repository import Repository
from headrace.aggregates.snapshots import Snapshots
from headrace.commands.aggregate_worker import AggregateWorker, WorkerParts
from headrace.commands.answer import Answering
from headrace.commands.command_handlers import HandlerTable
from headrace.commands.decision import CommandDecider, DecisionFailed
from headrace.commands.parked import Parking
from headrace.commands.submission import CommandDelivery, Submission
from headrace.domain.topics import CommandTopics, command_topic
from headrace.errors import DefinitionError
from headrace.events.committer import Committer
from headrace.events.publisher import Publisher, event_topic, message_topic
from headrace.letters import RESUME
from headrace.serialization import Serializer
from headrace.settings import Settings
from headrace.stores.base import CommandLetterStore, EventStore
from headrace.transports.base import Incoming, QueueId, Subscription, Transport

__all__ = ["CommandProcessor"]

log = get_logger(__name__)

# How long a stopping processor works on commands that it has accepted; the others are delivered to
# another processor.
STOP_MS_MAX = 10_000


class CommandProcessor:
    """Handles the commands of one application, side by side with others of the same name.

    Args:
        name: the application's name; part of the topics' and the consumer group's names.
        handlers: which function handles which command.
        store: the event store, opened.
        letters: where commands are kept that cannot be handled, opened.
        transport: the queue, started.
        serializer: knows the application's commands and events.
        settings: of the application.
        clock: tells the time.

    Raises:
        DefinitionError: `command_topics` of the settings names what there is not, or not all of
            them while commands are to be held.

    Attributes:
        work: what it has done.
        cache: the aggregates in memory.
        in_flight: commands that were accepted and are not finished.
    """

    def __init__(  # noqa: PLR0913 - the parts of a service, each by its name
        self,
        *,
        name: str,
        handlers: HandlerTable,
        store: EventStore,
        letters: CommandLetterStore,
        transport: Transport,
        serializer: Serializer,
        settings: Settings,
        clock: Clock | None = None,
    ) -> None:
        clock = SystemClock() if clock is None else clock
        self._name = name
        self._topics = CommandTopics(name, handlers.by_type.keys())
        self._subscribed = _subscribed(self._topics, settings)
        self._transport = transport
        self._serializer = serializer
        self._settings = settings
        self._tasks = TaskSet(f"{name} commands")
        self._backoff = Backoff(ms_min=settings.retry_ms_min, ms_max=settings.retry_ms_max)
        self.work = CommandWork()
        self._committer = _committer(settings, store, self._backoff)
        self._snapshots = _snapshots(settings, store)
        self.cache = _cache(settings, clock)
        self._workers: dict[str, AggregateWorker] = {}
        repository = Repository(
            store=store,
            snapshots=self._snapshots,
            backoff=self._backoff,
        )
        self._known = KnownCommands(clock, remembered_max=settings.commands_remembered_max)
        self._answering = self._answers()
        self._parking = self._parking_of(letters, clock)
        self._parts = WorkerParts(
            decider=self._decider(handlers, clock),
            known=self._known,
            holds=self._parking.holds,
            cache=self.cache,
            repository=repository,
            snapshots=self._snapshots,
            committer=self._committer,
            publisher=self._publisher(serializer),
            answering=self._answering,
            parking=self._parking,
            serializer=serializer,
            tasks=self._tasks,
            backoff=self._backoff,
            settings=settings,
            workers=self._workers,
            work=self.work,
            shared=len(self._topics.names) > 1,
        )
        self._subscription: Subscription | None = None
        self._failures = 0  # of subscriptions, in a row
        self._next_offsets: dict[QueueId, int] = {}
        self._room = asyncio.Semaphore(settings.commands_in_flight_max)
        self.in_flight = 0
        self._nothing_in_flight = asyncio.Event()
        self._nothing_in_flight.set()

    def _answers(self) -> Answering:
        return Answering(
            transport=self._transport, tasks=self._tasks, finished=self.leave, work=self.work
        )

    def _decider(self, handlers: HandlerTable, clock: Clock) -> CommandDecider:
        return CommandDecider(
            handlers=handlers, serializer=self._serializer, clock=clock, work=self.work
        )

    def _parking_of(self, letters: CommandLetterStore, clock: Clock) -> Parking:
        return Parking(
            letters=letters,
            answering=self._answering,
            desk=self,
            tasks=self._tasks,
            backoff=self._backoff,
            clock=clock,
            settings=self._settings,
        )

    def _publisher(self, serializer: Serializer) -> Publisher:
        return Publisher(
            name=self._name,
            transport=self._transport,
            serializer=serializer,
            tasks=self._tasks,
            backoff=self._backoff,
        )

    def measure(self, new: Callable[[], Durations]) -> None:
        """Measures how long handlers and appends take from now on, in what `new` returns."""
        self.work.measure(new)
        self._committer.times = self.work.commits

    async def run(self) -> None:
        """Works until cancelled; to be called once.

        On cancellation it takes nothing new, finishes what it has accepted (for 10 seconds at
        most; a second cancellation ends that at once), leaves the group and raises CancelledError.

        Raises:
            Exception: a defect in the command side itself; nothing unfinished is acknowledged.
        """
        await self._ensure_topics()
        self._tasks.start("committer", self._committer.run())
        self._tasks.start("snapshots", self._snapshots.run())
        try:
            await self._tasks.watch(self._take())
        except asyncio.CancelledError:
            await self._finish()
            raise
        finally:
            await self._tasks.aclose()
            await self._unsubscribe()

    async def _ensure_topics(self) -> None:
        ensure = self._transport.ensure_topic
        settings = self._settings
        for topic in self._topics.chosen():
            await ensure(topic, queues=settings.command_queues, forever=False)
        await ensure(event_topic(self._name), queues=settings.event_queues, forever=True)
        await ensure(message_topic(self._name), queues=settings.event_queues, forever=False)

    async def _take(self) -> None:
        """Polls for ever; a subscription that fails is replaced."""
        while True:
            try:
                self._subscription = await self._subscribe()
                await self._take_from(self._subscription)
            except Exception as error:  # noqa: BLE001 - adapters may raise anything; logged, repeated
                self._failures += 1
                log.warning("will subscribe again", attempt=self._failures, error=repr(error))
            await self._unsubscribe()
            await self._backoff.pause(self._failures)

    async def _take_from(self, subscription: Subscription) -> None:
        while True:
            for message in await subscription.poll():
                await self.admit(message.body)
                if self._note_offset(message):
                    await self._parking.load()
                    await self._read_keys(message.body)
                self.take(CommandDelivery(message=message, subscription=subscription))
            self._failures = 0

    async def _subscribe(self) -> Subscription:
        return await self._transport.subscribe(command_topic(self._name), self._subscribed)

    async def _unsubscribe(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is None:
            return
        try:
            await subscription.aclose()
        except Exception as error:  # noqa: BLE001 - it is of no use any more; unacknowledged comes again
            log.warning("subscription did not close", error=repr(error))

    async def admit(self, body: bytes) -> None:
        """Waits for room for one more delivery and takes it; waits for the keys of its message, too."""
        await self._room.acquire()
        try:
            # Those that came with the message may be outdated: the room is scarce where the database is away.
            await self._read_keys(body)
        except BaseException:
            self._room.release()
            raise

    async def _read_keys(self, body: bytes) -> None:
        cipher = self._serializer.cipher
        if cipher is not None:
            await self._backoff.persist(
                lambda: cipher.find_ahead((body,)), what="read the keys of a command"
            )

    def take(self, delivery: CommandDelivery) -> None:
        """Takes a delivery in that has its room: hands it to its aggregate's worker."""
        self.in_flight += 1
        self._nothing_in_flight.clear()
        message = delivery.message
        try:
            envelope = self._serializer.decode_command(message.body)
            if PRINCIPAL in message.headers:
                envelope = replace(envelope, principal=principal_in(message.headers))
        except Exception as error:  # noqa: BLE001 - a user's validator may raise anything; parked
            if RESUME in message.headers:
                self._parking.resume(delivery)
                return
            self._parking.park(
                [delivery],
                DecisionFailed(
                    error=type(error).__name__, sentence=str(error), trace=traceback_of(error)
                ),
                aggregate_id=message.key,
                command_id="",
            )
            return
        aggregate_id = envelope.aggregate_id
        worker = self._workers.get(aggregate_id)
        if worker is None:
            worker = self._workers[aggregate_id] = AggregateWorker(aggregate_id, self._parts)
        worker.offer(Submission(envelope, delivery))

    def _note_offset(self, message: Incoming) -> bool:
        """Returns whether a queue is new here, or was assigned to another process for a while.

        That process may have handled commands that come again, and may have changed aggregates that are
        in memory here. An event decided on such a stale aggregate would meet a conflict, but a rejection
        would stand.
        """
        expected = self._next_offsets.get(message.queue)
        self._next_offsets[message.queue] = message.offset + 1
        if message.offset == expected:
            return False
        self._known.begin_again()
        if expected is not None:
            log.info("queue was away", queue=message.queue, expected=expected, got=message.offset)
            self.cache.clear()
            for worker in self._workers.values():
                worker.distrust()
        return True

    def leave(self) -> None:
        """Gives the room of one delivery back."""
        self._room.release()
        self.in_flight -= 1
        if not self.in_flight:
            self._nothing_in_flight.set()

    async def _finish(self) -> None:
        with contextlib.suppress(Exception):  # a failed task is in the log; cancellation goes on
            await self._tasks.watch(_bounded(self._nothing_in_flight.wait, STOP_MS_MAX))
        if self.in_flight:
            log.warning("stopped with commands unfinished", commands=self.in_flight)


def _subscribed(topics: CommandTopics, settings: Settings) -> list[str]:
    chosen = topics.chosen(settings.command_topics)
    if settings.after_parked == "hold" and len(chosen) < len(topics.names):
        raise DefinitionError(
            "after_parked 'hold' and command_topics exclude each other: only a process that handles all"
            " commands of an aggregate knows what is held; handle all topics, or choose 'go on'"
        )
    return chosen


def _snapshots(settings: Settings, store: EventStore) -> Snapshots:
    return Snapshots(
        store=store, events=settings.snapshot_events, waiting_max=settings.snapshots_waiting_max
    )


def _committer(settings: Settings, store: EventStore, backoff: Backoff) -> Committer:
    return Committer(
        store=store,
        streams_max=settings.commit_streams_max,
        refusals_max=settings.error_retries_max,
        backoff=backoff,
    )


def _cache(settings: Settings, clock: Clock) -> AggregateCache:
    return AggregateCache(
        aggregates_max=settings.aggregates_cached_max,
        idle_ms=settings.aggregate_idle_ms,
        clock=clock,
    )


async def _bounded(wait: Callable[[], Awaitable[object]], ms_max: int) -> None:
    async with asyncio.timeout(ms_max / 1_000):
        await wait()

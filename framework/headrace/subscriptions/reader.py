"""
The one loop of all who read a topic, and what its readers have in common.

    subscribe ─▶ begin ─▶ poll ─▶ react, acknowledge ─▶ … it breaks ─▶ end ─▶ close ─▶ a pause ─▶ …

A projection, event handlers, a process manager are a reaction: what happens with messages. This loop
gets the messages, subscribes again after whatever breaks, stops, retries, waits for room where a message
must be parked, and knows how the reader is doing.

    run_by_batch   a reaction takes what one poll has brought, and acknowledges it
    run_by_key     a reaction takes messages one by one: in order within a key, many keys at once

Sits between: reactions, and the transport's port. Must never know what is in a message, nor a database.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from headrace._runtime.backoff import Backoff
from headrace._runtime.clock import Clock, SystemClock
from headrace._runtime.log import get_logger
from headrace._runtime.turns import Turns
from headrace.settings import Settings
from headrace.subscriptions.status import ReaderState, ReaderStatus
from headrace.transports.base import Incoming, OffsetLoader, QueueId, Subscription, Transport

__all__ = ["BatchReaction", "KeyReaction", "Reader", "say_parked"]

T = TypeVar("T")

log = get_logger(__name__)


class BatchReaction:
    """What happens with the messages of a poll."""

    async def begin(self) -> None:
        """Begins with a new subscription; what came from the one before comes again."""

    async def react(self, messages: list[Incoming]) -> None:
        """Does its own with messages and acknowledges them; none: `idle` has ended the waiting."""
        raise NotImplementedError

    async def idle(self) -> bool:
        """Is called while nothing comes; True ends the waiting."""
        return False


class KeyReaction:
    """What happens with one message; those of one key come one after another."""

    async def begin(self) -> None:
        """Begins with a new subscription; what came from the one before comes again."""

    async def select(self, messages: list[Incoming]) -> list[Incoming]:
        """Returns which messages of a poll to react to, in order; the others it acknowledges."""
        return messages

    async def react(self, message: Incoming) -> None:
        """Does its own with a message and acknowledges it, at once or later."""
        raise NotImplementedError

    async def alongside(self) -> None:
        """Works as long as the subscription lasts."""

    async def end(self) -> None:
        """Ends what was begun; nothing is under way any more."""


class Reader:
    """One member of a consumer group that reads one topic.

    Args:
        transport: brings the messages.
        group: whose member it is.
        topic: what it reads.
        settings: attempts and pauses, and how many aggregates may be parked.
        about: says in the log whose messages these are.
        clock: tells since when a state holds.
        offsets: of a group that keeps its own; see `Transport.subscribe`.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        group: str,
        topic: str,
        settings: Settings,
        about: Mapping[str, str],
        clock: Clock | None = None,
        offsets: OffsetLoader | None = None,
    ) -> None:
        self._transport = transport
        self._group = group
        self._topic = topic
        self._settings = settings
        self._about = about
        self._clock = clock or SystemClock()
        self._offsets = offsets
        self._backoff = Backoff(ms_min=settings.retry_ms_min, ms_max=settings.retry_ms_max)
        self._subscription: Subscription | None = None
        # Subscriptions that broke in a row.
        self._lapses = 0
        self._turns: Turns[Incoming] | None = None
        # What is being tried again.
        self._troubles: set[object] = set()
        self._status = ReaderStatus(state=ReaderState.STARTING, since=self._clock.now())

    @property
    def status(self) -> ReaderStatus:
        """How it is doing."""
        return self._status

    def report(self, state: ReaderState, error: str | None = None) -> None:
        """Says how it is doing."""
        if state is not self._status.state or error != self._status.error:
            self._status = ReaderStatus(state=state, since=self._clock.now(), error=error)

    async def run_by_batch(
        self,
        reaction: BatchReaction,
        *,
        idle_ms: int,
        unless: tuple[type[Exception], ...] = (),
    ) -> None:
        """Reads until cancelled.

        Args:
            reaction: takes the messages.
            idle_ms: how often it is called while nothing comes.
            unless: errors that another subscription cannot cure; raised at once.
        """

        async def follow(subscription: Subscription) -> None:
            await reaction.begin()
            while True:
                messages = await _poll_or_idle(subscription, reaction.idle, idle_ms / 1_000)
                self._lapses = 0
                await reaction.react(messages)

        await self._run(follow, unless)

    async def run_by_key(self, reaction: KeyReaction, *, in_flight_max: int) -> None:
        """Reads until cancelled.

        Args:
            reaction: takes the messages.
            in_flight_max: messages that are being reacted to or wait for their turn.
        """

        async def follow(subscription: Subscription) -> None:
            await reaction.begin()
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(reaction.alongside(), name=f"{self._group}: alongside")
                    await self._take_turns(reaction, subscription, in_flight_max)
            finally:
                await reaction.end()

        await self._run(follow, ())

    async def _take_turns(
        self, reaction: KeyReaction, subscription: Subscription, in_flight_max: int
    ) -> None:
        turns = Turns(reaction.react, in_flight_max=in_flight_max, name=self._group)
        self._turns = turns
        async with turns:
            while True:
                messages = await subscription.poll()
                self._lapses = 0
                for message in await reaction.select(messages):
                    await turns.put(message.key, message)

    async def _run(
        self,
        follow: Callable[[Subscription], Awaitable[None]],
        unless: tuple[type[Exception], ...],
    ) -> None:
        while True:
            try:
                subscription = await self._transport.subscribe(
                    self._group, [self._topic], offsets=self._offsets
                )
                self._subscription = subscription
                self.report(ReaderState.RUNNING)
                try:
                    await follow(subscription)
                finally:
                    await subscription.aclose()
            except unless:
                raise
            except Exception as error:  # noqa: BLE001 - adapters raise what they like; logged, repeated
                self._lapses += 1
                log.warning(
                    "will subscribe again",
                    group=self._group,
                    attempt=self._lapses,
                    error=repr(error),
                )
                self.report(ReaderState.RETRYING, str(error))
            await self._backoff.pause(max(1, self._lapses))

    def is_under_way(self, key: str) -> bool:
        """Whether a message of the key is being reacted to, of a reader by key."""
        return self._turns is not None and key in self._turns

    def ack(self, message: Incoming) -> None:
        """Says that a message is done."""
        assert self._subscription is not None, "it came from a subscription"
        self._subscription.ack(message)

    def seek(self, queue: QueueId, offset: int) -> None:
        """Makes the next poll continue at an offset; ignored for a queue of another member."""
        assert self._subscription is not None, "its queues came from a subscription"
        self._subscription.seek(queue, offset)

    async def persist(self, action: Callable[[], Awaitable[T]], what: str) -> T:
        """Makes attempts until one succeeds, and says each that fails in the log."""
        return await self.attempt(action, what, final=None, sparse=False)

    async def attempt(
        self,
        action: Callable[[], Awaitable[T]],
        what: str,
        *,
        final: Callable[[Exception], bool] | None,
        sparse: bool = True,
    ) -> T:
        """Makes attempts until one succeeds, or raises what one of them raised.

        Args:
            action: makes one attempt.
            what: names the action in the log.
            final: judges an error; True: it is raised, and there is no further attempt. None: none is.
            sparse: log attempts 1, 2, 4, 8, … alone: hundreds of messages try again side by side.
        """
        trouble = object()

        def failed(attempt: int, error: Exception) -> None:
            self._troubles.add(trouble)
            self.report(ReaderState.RETRYING, str(error))
            if not sparse or attempt & (attempt - 1) == 0:
                log.warning(
                    "will try again", **self._about, what=what, attempt=attempt, error=repr(error)
                )

        try:
            result = await self._backoff.persist(
                action, what=what, unless=(), final=final, failed=failed
            )
        finally:
            self._troubles.discard(trouble)
        if not self._troubles and self._status.state is ReaderState.RETRYING:
            self.report(ReaderState.RUNNING)
        return result

    def faults(
        self, passes: Callable[[Exception], bool] | None = None
    ) -> Callable[[Exception], bool]:
        """Returns a judge for `attempt` that allows `error_retries_max` faults.

        Args:
            passes: tells which errors pass by themselves, and are no faults; None: none do.
        """
        faults = 0

        def final(error: Exception) -> bool:
            nonlocal faults
            faults += passes is None or not passes(error)
            return faults > self._settings.error_retries_max

        return final

    async def park(
        self, message: Incoming, error: Exception, store: Callable[[], Awaitable[bool]]
    ) -> None:
        """Parks the aggregate of a message; waits while as many as may be are parked.

        Args:
            message: what could not be handled.
            error: why.
            store: parks it, and waits outages out; False: there is no room.
        """
        attempt = 0
        while not await store():
            attempt += 1
            log.error(
                "as many aggregates as may be are parked; messages wait for room",
                **self._about,
                aggregate_id=message.key,
                letters_max=self._settings.projection_letters_max,
            )
            await self._backoff.pause(attempt)
        self.say_parked(message, error)

    def say_parked(self, message: Incoming, error: Exception) -> None:
        """Says in the log that an aggregate was parked."""
        say_parked(message, error, self._about)


def say_parked(message: Incoming, error: Exception, about: Mapping[str, str]) -> None:
    """Says in the log that a message could not be handled, and whose aggregate was parked.

    Args:
        message: what could not be handled.
        error: why.
        about: says who reads it.
    """
    log.error(
        "an event cannot be handled; its aggregate waits until it is retried or skipped",
        **about,
        aggregate_id=message.key,
        queue=message.queue,
        offset=message.offset,
        error=str(error),
        exc_info=error,
    )


async def _poll_or_idle(
    subscription: Subscription, idle: Callable[[], Awaitable[bool]], every_s: float
) -> list[Incoming]:
    poll = asyncio.ensure_future(subscription.poll())
    try:
        while not (await asyncio.wait({poll}, timeout=every_s))[0]:
            # What has come meanwhile must not be lost with the poll that brought it.
            if await idle() and not poll.done():
                return []
        return poll.result()
    finally:
        if not poll.done():
            poll.cancel()
            await asyncio.gather(poll, return_exceptions=True)

"""
The loop that reads a topic, shared by all readers.

    subscribe ─▶ begin ─▶ poll ─▶ react, acknowledge ─▶ … an error ─▶ end ─▶ close ─▶ pause ─▶ …

Projections, event handlers and process managers are reactions: they say what happens with a message.
The loop gets the messages, subscribes again after an error, retries, stops, and reports its status. When
a message must be parked and too much is parked already, it waits.

    run_by_batch   the reaction takes all messages of a poll, and acknowledges them
    run_by_key     the reaction takes one message at a time: in order within a key, many keys at once

Used by the runners of projections, handlers and processes. It does not know what is in a message, and
no database.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, TypeVar

from headrace._runtime.backoff import Backoff
from headrace._runtime.clock import Clock, SystemClock
from headrace._runtime.log import get_logger
from headrace._runtime.turns import Turns
from headrace._runtime.work import Durations
from headrace.errors import SubjectKeysAway
from headrace.settings import Settings
from headrace.subscriptions.status import ReaderState, ReaderStatus
from headrace.transports.base import Incoming, OffsetLoader, QueueId, Subscription, Transport

__all__ = ["BatchReaction", "KeyReaction", "Reader", "say_parked"]

T = TypeVar("T")

log = get_logger(__name__)


class BatchReaction:
    """What a reader does with the messages of a poll."""

    async def begin(self) -> None:
        """Prepares for a new subscription; messages without an acknowledgement come again."""

    async def react(self, messages: list[Incoming]) -> None:
        """Handles messages and acknowledges them; the list is empty when `idle` has returned True."""
        raise NotImplementedError

    async def idle(self) -> bool:
        """Is called at intervals while no message comes; True stops the wait."""
        return False


class KeyReaction:
    """What a reader does with one message; messages of one key come one after another."""

    async def begin(self) -> None:
        """Prepares for a new subscription; messages without an acknowledgement come again."""

    async def select(self, messages: list[Incoming]) -> list[Incoming]:
        """Returns the messages of a poll to react to, in order; acknowledges the others."""
        return messages

    async def react(self, message: Incoming) -> None:
        """Handles a message and acknowledges it, now or later."""
        raise NotImplementedError

    async def alongside(self) -> None:
        """Runs in the background as long as the subscription lasts."""

    async def end(self) -> None:
        """Cleans up after a subscription; no `react` runs at this time."""


class Reader:
    """One member of a consumer group that reads one topic.

    Args:
        transport: delivers the messages.
        group: the consumer group.
        topic: the topic that it reads.
        settings: attempts and pauses, and how many aggregates may be parked.
        about: fields for the log that name the reader.
        clock: gives the time at which the status changed.
        offsets: for a group that stores its own offsets; see `Transport.subscribe`.

    Attributes:
        handled: messages that the reaction was done with since the start.
        failures: attempts and subscriptions that failed since then.
        times: is given how long each reaction takes; None: `measure` was not called.
        ages: is given how old a message is when its reaction ends, of a batch the oldest one; None likewise.
        handlers: are given how long each call of a handler takes, by its name.
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
        # Subscriptions that failed in a row.
        self._failures = 0
        self._turns: Turns[Incoming] | None = None
        # One for each action that has failed and is retried.
        self._troubles: set[object] = set()
        self.handled = self.failures = 0
        self._rested_s = 0.0
        self.times: Durations | None = None
        self.ages: Durations | None = None
        self.handlers: dict[str, Durations] = {}
        self._new: Callable[[], Durations] | None = None
        self._status = ReaderStatus(state=ReaderState.STARTING, since=self._clock.now())

    @property
    def status(self) -> ReaderStatus:
        """The reader's state, and its last error."""
        return self._status

    def report(self, state: ReaderState, error: str | None = None) -> None:
        """Changes the status."""
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
            idle_ms: how often its `idle` is called while no message comes.
            unless: errors that a new subscription cannot cure; raised at once.
        """

        async def follow(subscription: Subscription) -> None:
            await reaction.begin()
            while True:
                messages = await _poll_or_idle(subscription, reaction.idle, idle_ms / 1_000)
                self._failures = 0
                await self._timed(reaction.react(messages), messages)

        await self._run(follow, unless)

    async def run_by_key(self, reaction: KeyReaction, *, in_flight_max: int) -> None:
        """Reads until cancelled.

        Args:
            reaction: takes the messages.
            in_flight_max: how many messages may be with `react`, or wait for their turn.
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
        async def react(message: Incoming) -> None:
            await self._timed(reaction.react(message), (message,))

        turns = Turns(react, in_flight_max=in_flight_max, name=self._group)
        self._turns = turns
        async with turns:
            while True:
                messages = await subscription.poll()
                self._failures = 0
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
                self._failures += 1
                self.failures += 1
                log.warning(
                    "will subscribe again",
                    group=self._group,
                    attempt=self._failures,
                    error=repr(error),
                    **_place_of(error, self._failures),
                )
                self.report(ReaderState.RETRYING, str(error))
            await self._backoff.pause(max(1, self._failures))

    def measure(self, new: Callable[[], Durations]) -> None:
        """Measures durations from now on, in what `new` returns."""
        self._new = new
        self.times, self.ages = new(), new()

    def measured(
        self, name: str, call: Callable[[], Awaitable[None]]
    ) -> Callable[[], Awaitable[None]]:
        """Returns a call of a handler that is measured under the handler's name, if anything is."""
        if self._new is None:
            return call
        durations = self.handlers.get(name)
        if durations is None:
            durations = self.handlers[name] = self._new()

        async def timed() -> None:
            since_s = perf_counter()
            try:
                await call()
            finally:
                durations.add(perf_counter() - since_s)

        return timed

    async def _timed(self, reaction: Awaitable[None], messages: Sequence[Incoming]) -> None:
        """Awaits a reaction; counts its messages, how long it took, and how old they are then."""
        if self.times is None or self.ages is None or not messages:
            await reaction
        else:
            self._rested_s, since_s = 0.0, perf_counter()
            await reaction
            self.times.add(perf_counter() - since_s - self._rested_s)
            stored_ms = min(one.stored_at_ms for one in messages)
            if stored_ms:
                # Clocks of two machines may differ.
                age_s = self._clock.now().timestamp() - self._rested_s - stored_ms / 1_000
                self.ages.add(max(0.0, age_s))
        self.handled += len(messages)

    async def rest(self, seconds: float) -> None:
        """Sleeps at the end of a batch's reaction; this does not count as a part of it."""
        self._rested_s = seconds
        await asyncio.sleep(seconds)

    def is_under_way(self, key: str) -> bool:
        """Whether `react` runs, or is due, for a message of the key; for `run_by_key` only."""
        return self._turns is not None and key in self._turns

    def ack(self, message: Incoming) -> None:
        """Acknowledges a message: it is done."""
        assert self._subscription is not None, "it came from a subscription"
        self._subscription.ack(message)

    def seek(self, queue: QueueId, offset: int) -> None:
        """Makes the next poll of a queue begin at an offset; ignored if another member has the queue."""
        assert self._subscription is not None, "its queues came from a subscription"
        self._subscription.seek(queue, offset)

    async def persist(self, action: Callable[[], Awaitable[T]], what: str) -> T:
        """Retries an action until it succeeds, and logs each failed attempt."""
        return await self.attempt(action, what, final=None, sparse=False)

    async def attempt(
        self,
        action: Callable[[], Awaitable[T]],
        what: str,
        *,
        final: Callable[[Exception], bool] | None,
        sparse: bool = True,
    ) -> T:
        """Retries an action until it succeeds, or until `final` says to stop.

        Args:
            action: makes one attempt.
            what: the action's name in the log.
            final: takes an error; if it returns True, the error is raised. None: retry after any error.
            sparse: log attempts 1, 2, 4, 8, … only: hundreds of messages may be retried at once.
        """
        trouble = object()

        def failed(attempt: int, error: Exception) -> None:
            self.failures += 1
            self._troubles.add(trouble)
            self.report(ReaderState.RETRYING, str(error))
            if not sparse or attempt & (attempt - 1) == 0:
                log.warning(
                    "will try again",
                    **self._about,
                    what=what,
                    attempt=attempt,
                    error=repr(error),
                    **_place_of(error, attempt),
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
        """Returns a `final` for `attempt` that stops after `error_retries_max` retries.

        Args:
            passes: says which errors do not count, because they pass; None: every error counts, but for
                `SubjectKeysAway`: what needs keys waits for them.
        """
        faults = 0

        def final(error: Exception) -> bool:
            nonlocal faults
            faults += not isinstance(error, SubjectKeysAway) and (
                passes is None or not passes(error)
            )
            return faults > self._settings.error_retries_max

        return final

    async def park(
        self, message: Incoming, error: Exception, store: Callable[[], Awaitable[bool]]
    ) -> None:
        """Parks the aggregate of a message; waits while too many aggregates are parked.

        Args:
            message: the message that could not be handled.
            error: why.
            store: parks the aggregate, and waits during outages; returns False if too many are parked.
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
        """Logs that an aggregate was parked."""
        say_parked(message, error, self._about)


def say_parked(message: Incoming, error: Exception, about: Mapping[str, str]) -> None:
    """Logs that a message could not be handled, and that its aggregate was parked.

    Args:
        message: the message that could not be handled.
        error: why.
        about: fields for the log that name the reader.
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


def _place_of(error: Exception, attempt: int) -> dict[str, Any]:
    """Returns a field of the log with where an error came from; once, and not of an outage."""
    from headrace.subscriptions.outages import is_outage  # loads a database driver

    return {"exc_info": error} if attempt == 1 and not is_outage(error) else {}


async def _poll_or_idle(
    subscription: Subscription, idle: Callable[[], Awaitable[bool]], every_s: float
) -> list[Incoming]:
    poll = asyncio.ensure_future(subscription.poll())
    try:
        while not (await asyncio.wait({poll}, timeout=every_s))[0]:
            # A poll that is done has messages: cancelling it would lose them.
            if await idle() and not poll.done():
                return []
        return poll.result()
    finally:
        if not poll.done():
            poll.cancel()
            await asyncio.gather(poll, return_exceptions=True)

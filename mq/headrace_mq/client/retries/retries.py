"""
Policies for records that fail: retry them later through the broker, at last park them as dead letters.

    handler fails ──▶ Retrying ──▶ %RETRY%group, after a delay ──▶ any member of the group
                          └─ too often ──▶ %DLQ%group
    handler fails ──▶ Parking  ──▶ again in place, its key waits
                          └─ too often ──▶ %DLQ%group, its key goes on

A record is acknowledged only when its next copy is durable: after a crash in between it is handled
once more, but never lost. If a record is so large, or has so many headers, that no copy fits, it is
tried again in place, and its letter only says where the record is.

Used by `RetryingConsumer`; sends with a `Producer`.
"""

from collections.abc import Callable

from headrace_mq._runtime.log import get_logger
from headrace_mq.client.group.rules import CurrentGroupRules
from headrace_mq.client.handlers.failures import Failure, InPlace, Settled, Verdict
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.retry_headers import (
    dead_letter_topic,
    forwarded,
    origin_of,
    referring,
    retry_topic,
)
from headrace_mq.errors import TopicExists
from headrace_mq.message import Message
from headrace_mq.protocol.scheduled import delay_of_level
from headrace_mq.settings import ConsumerSettings, RetrySettings

__all__ = ["DeadLetterSender", "GiveUp", "Parking", "RetryAfter", "Retrying"]

_log = get_logger(__name__)


class RetryAfter(Exception):
    """Raised by a handler: the record shall be handled again after a delay of its choice.

    Args:
        delay_ms: the delay.
        reason: for the log and the dead letters.
    """

    def __init__(self, delay_ms: int, reason: str = "") -> None:
        super().__init__(reason)
        self.delay_ms = delay_ms


class GiveUp(Exception):
    """Raised by a handler: the record goes to the dead letters at once."""


class DeadLetterSender:
    """Sends records to a group's dead letters.

    Args:
        producer: sends; started and closed by its owner.
        group: whose records fail.
        settings: how long dead letters are kept.
    """

    def __init__(self, producer: Producer, group: str, settings: RetrySettings) -> None:
        self._producer = producer
        self._topic = dead_letter_topic(group)
        self._retention = settings.dead_letters
        self._is_there = False

    async def bury(self, failure: Failure, *, attempts: int, back_to: str) -> Settled:
        """Puts a failed record among the dead letters; durable on return. Raises as `send`."""
        await self._make_topic()

        def letter(carry: Callable[..., Message]) -> Message:
            return carry(
                failure.record, self._topic, error=failure.error, attempts=attempts, back_to=back_to
            )

        try:
            sent = await self._producer.send(letter(forwarded))
        except ValueError:
            sent = await self._producer.send(letter(referring))
        return Settled(f"{self._topic} at {sent.offset}")

    async def _make_topic(self) -> None:
        if self._is_there:
            return
        try:
            await self._producer.create_topic(self._topic, 1, self._retention)
        except TopicExists as error:
            # Kept otherwise than wished is better than a key that stands still.
            _log.warning("dead letters are kept otherwise than set", reason=str(error))
        self._is_there = True


class Retrying:
    """Sends failed records to the group's retry topic, with a longer delay after each attempt.

    What waits behind a failed record goes on, so the order within its key is given up. Handlers
    change that by raising `RetryAfter` or `GiveUp`.

    Args:
        producer: sends; started and closed by its owner.
        group: of the consumer, which has to read `retry_topic(group)` too.
        settings: delays, and how often.
        rules: what an operator said of the group; a number of retries there counts instead.
    """

    def __init__(
        self,
        producer: Producer,
        group: str,
        settings: RetrySettings | None = None,
        rules: CurrentGroupRules | None = None,
    ) -> None:
        self._producer = producer
        self._topic = retry_topic(group)
        self._settings = settings or RetrySettings()
        self._rules = rules or CurrentGroupRules(group)
        self._dead = DeadLetterSender(producer, group, self._settings)
        in_place = ConsumerSettings()
        self._in_place = InPlace(in_place.retry_ms_min, in_place.retry_ms_max)

    @property
    def _retries_max(self) -> int:
        told = self._rules.retries
        return self._settings.retries_max if told is None else told

    async def decide(self, failure: Failure) -> Verdict:
        """Puts the record where it is handled again or kept. Raises as `Producer.schedule`."""
        record, error = failure.record, failure.error
        origin = origin_of(record)
        # A dead letter that was sent again counts from the start: resending has set the number back.
        failed = 1 if origin is None else origin.attempt + 1
        if isinstance(error, GiveUp) or failed > self._retries_max:
            return await self._dead.bury(failure, attempts=1, back_to=self._topic)
        if isinstance(error, RetryAfter):
            delay_ms = error.delay_ms
        else:
            levels = self._settings.levels
            delay_ms = delay_of_level(levels[min(failed, len(levels)) - 1])
        again = forwarded(record, self._topic, error=error, attempts=1, back_to=self._topic)
        try:
            await self._producer.schedule(again, delay_ms=delay_ms)
        except ValueError:
            # No copy fits.
            if failure.attempt <= self._retries_max:
                return await self._in_place.decide(failure)
            return await self._dead.bury(failure, attempts=failure.attempt, back_to=self._topic)
        return Settled(f"{self._topic} in {delay_ms} ms")


class Parking:
    """Handles a failed record again in place, so that its key waits; parks it after a while.

    For handlers that need the order within a key and would rather leave one record out than stand
    still. A parked record is among the group's dead letters; resent, it comes behind what its
    topic holds by then.

    Args:
        producer: sends; started and closed by its owner.
        group: of the consumer.
        consumer: its settings, for the pauses between attempts.
        settings: after how many attempts.
    """

    def __init__(
        self,
        producer: Producer,
        group: str,
        consumer: ConsumerSettings | None = None,
        settings: RetrySettings | None = None,
    ) -> None:
        consumer = consumer or ConsumerSettings()
        self._settings = settings or RetrySettings()
        self._in_place = InPlace(consumer.retry_ms_min, consumer.retry_ms_max)
        self._dead = DeadLetterSender(producer, group, self._settings)

    async def decide(self, failure: Failure) -> Verdict:
        """Again, or among the dead letters. Raises as `Producer.send`."""
        attempts, given_up = failure.attempt, isinstance(failure.error, GiveUp)
        if not given_up and attempts <= self._settings.retries_max:
            return await self._in_place.decide(failure)
        origin = origin_of(failure.record)
        back_to = failure.record.queue.topic if origin is None else origin.topic
        return await self._dead.bury(failure, attempts=attempts, back_to=back_to)

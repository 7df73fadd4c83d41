"""
Policies for records whose handler failed: retry them, and after too many attempts make them dead letters.

    handler fails ──▶ RetryPolicy        ──▶ %RETRY%group, after a delay ──▶ any member of the group
                           └─ too often  ──▶ %DLQ%group
    handler fails ──▶ InPlaceRetryPolicy ──▶ again in place; its key waits
                           └─ too often  ──▶ %DLQ%group; its key goes on

A record is acknowledged only when its next copy is durable: after a crash in between it is handled once more,
but never lost. If a record is so large, or has so many headers, that no copy fits, it is retried in place, and
its dead letter only refers to the record.

Used by `RetryingConsumer`; sends with a `Producer`.
"""

from collections.abc import Callable

from headrace_mq._runtime.log import get_logger
from headrace_mq.client.group.rules import CurrentGroupRules
from headrace_mq.client.handlers.failures import EndlessRetryPolicy, Failure, Settled, Verdict
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

__all__ = ["DeadLetterSender", "GiveUp", "InPlaceRetryPolicy", "RetryAfter", "RetryPolicy"]

_log = get_logger(__name__)


class RetryAfter(Exception):
    """Raise it in a handler to have the record handled again after a delay.

    Args:
        delay_ms: the delay.
        reason: for the log and the dead letters.
    """

    def __init__(self, delay_ms: int, reason: str = "") -> None:
        super().__init__(reason)
        self.delay_ms = delay_ms


class GiveUp(Exception):
    """Raise it in a handler to make the record a dead letter at once."""


class DeadLetterSender:
    """Sends records to a group's dead letters.

    Args:
        producer: sends; you start and close it.
        group: of the consumer.
        settings: with the retention of dead letters.
    """

    def __init__(self, producer: Producer, group: str, settings: RetrySettings) -> None:
        self._producer = producer
        self._topic = dead_letter_topic(group)
        self._retention = settings.dead_letters
        self._is_there = False

    async def send(self, failure: Failure, *, attempts: int, back_to: str) -> Settled:
        """Sends a failed record to the dead letters, durably. Raises as `Producer.send`."""
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
            # Another retention is better than a key that waits forever.
            _log.warning(
                "the dead letters keep the retention of their topic, not the one of the settings",
                reason=str(error),
            )
        self._is_there = True


class RetryPolicy:
    """Sends failed records to the group's retry topic, with a longer delay after each attempt.

    Later records of the key do not wait, so the order within the key is lost. A handler can raise
    `RetryAfter` or `GiveUp` to choose the delay or to stop retries.

    Args:
        producer: sends; you start and close it.
        group: of the consumer, which must also read `retry_topic(group)`.
        settings: the delays, and the number of retries.
        rules: the operator's settings of the group; their number of retries takes precedence.
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
        self._in_place = EndlessRetryPolicy(in_place.retry_ms_min, in_place.retry_ms_max)

    @property
    def _retries_max(self) -> int:
        told = self._rules.retries
        return self._settings.retries_max if told is None else told

    async def decide(self, failure: Failure) -> Verdict:
        """Schedules the next attempt, or makes the record a dead letter. Raises as `Producer.schedule`."""
        record, error = failure.record, failure.error
        origin = origin_of(record)
        # A resent dead letter counts from the start, because resending reset its number.
        failed = 1 if origin is None else origin.attempt + 1
        if isinstance(error, GiveUp) or failed > self._retries_max:
            return await self._dead.send(failure, attempts=1, back_to=self._topic)
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
            return await self._dead.send(failure, attempts=failure.attempt, back_to=self._topic)
        return Settled(f"{self._topic} in {delay_ms} ms")


class InPlaceRetryPolicy:
    """Retries a failed record in place, so that its key waits; then makes it a dead letter.

    For handlers that need the order within a key, but should skip a record that keeps failing. If you resend
    the dead letter, it comes after all messages of its topic.

    Args:
        producer: sends; you start and close it.
        group: of the consumer.
        consumer: settings with the pauses between attempts.
        settings: with the number of retries.
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
        self._in_place = EndlessRetryPolicy(consumer.retry_ms_min, consumer.retry_ms_max)
        self._dead = DeadLetterSender(producer, group, self._settings)

    async def decide(self, failure: Failure) -> Verdict:
        """Retries in place, or makes the record a dead letter. Raises as `Producer.send`."""
        attempts, given_up = failure.attempt, isinstance(failure.error, GiveUp)
        if not given_up and attempts <= self._settings.retries_max:
            return await self._in_place.decide(failure)
        origin = origin_of(failure.record)
        back_to = failure.record.queue.topic if origin is None else origin.topic
        return await self._dead.send(failure, attempts=attempts, back_to=back_to)

"""
A consumer's deliveries, acknowledgements and failures, told to a tracer.

Sits between: `consumer.consumer`, which puts these in the place of what they wrap, and `tracer`.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from headrace_mq.client.fetch.delivery import Delivering
from headrace_mq.client.fetch.record_columns import RecordColumns
from headrace_mq.client.handlers.failures import Failure, FailurePolicy, InPlace, Verdict
from headrace_mq.client.trace.tracer import Tracer
from headrace_mq.message import QueueRef, Record
from headrace_mq.settings import ConsumerSettings

__all__ = ["TracedDelivering", "TracedPolicy", "delivering_for", "policy_for"]


class TracedDelivering(Delivering):
    """Delivers as `Delivering` does.

    Args:
        tracer: told of every step.
        parts: those of `Delivering`.
        named: those of `Delivering`.
    """

    def __init__(self, tracer: Tracer, *parts: Any, **named: Any) -> None:
        super().__init__(*parts, **named)
        self._tracer = tracer

    async def poll(self, records_max: int | None = None) -> list[Record]:
        """As `Delivering.poll`."""
        records = await super().poll(records_max)
        for record in records:
            self._tracer.delivered(record)
        return records

    async def poll_columns(self) -> list[RecordColumns]:
        """As `Delivering.poll_columns`."""
        runs = await super().poll_columns()
        for run in runs:
            for record in run.records():
                self._tracer.delivered(record)
        return runs

    def ack(self, queue: QueueRef, offset: int) -> None:
        """As `Delivering.ack`."""
        self._done(queue, (offset,))
        super().ack(queue, offset)

    def ack_all(self, records: Iterable[Record]) -> None:
        """As `Delivering.ack_all`."""
        records = list(records)
        for record in records:
            self._done(record.queue, (record.offset,))
        super().ack_all(records)

    def ack_columns(self, columns: RecordColumns) -> None:
        """As `Delivering.ack_columns`."""
        self._done(columns.queue, columns.offsets)
        super().ack_columns(columns)

    async def begin(self, record: Record) -> bool:
        """As `Delivering.begin`."""
        has_begun = await super().begin(record)
        if has_begun:
            self._tracer.begun(record)
        return has_begun

    def end(self, record: Record, *, done: bool) -> None:
        """As `Delivering.end`."""
        if done:
            self._tracer.acknowledged(record.queue, record.offset)
        super().end(record, done=done)

    def _done(self, queue: QueueRef, offsets: Iterable[int]) -> None:
        for offset in offsets:
            # That of a revoked queue is ignored, so it is none.
            if self._shares.holds(queue, offset):
                self._tracer.acknowledged(queue, offset)


class TracedPolicy:
    """Decides as another policy does.

    Args:
        policy: the other one.
        tracer: told of what it decides.
    """

    def __init__(self, policy: FailurePolicy, tracer: Tracer) -> None:
        self._policy = policy
        self._tracer = tracer

    async def decide(self, failure: Failure) -> Verdict:
        """As the other policy."""
        verdict = await self._policy.decide(failure)
        self._tracer.decided(failure, verdict)
        return verdict


def delivering_for(tracer: Tracer | None) -> Callable[..., Delivering]:
    """Makes what delivers the records of a consumer, traced or not."""
    return Delivering if tracer is None else partial(TracedDelivering, tracer)


def policy_for(
    tracer: Tracer | None, policy: FailurePolicy | None, settings: ConsumerSettings
) -> FailurePolicy | None:
    """A consumer's policy for failed records, traced or not; None for that of `handling`."""
    if tracer is None:
        return policy
    return TracedPolicy(policy or InPlace(settings.retry_ms_min, settings.retry_ms_max), tracer)

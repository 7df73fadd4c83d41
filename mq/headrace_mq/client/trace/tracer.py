"""
Collects what one consumer does with its messages, and sends it to the trace topic.

Tracing never holds up the consumer: a step that cannot be sent is lost, and counted. A traced consumer
delivers through `TracedDelivery` and decides on failures through `TracedPolicy`; both do what they
wrap, and report it to the tracer, which has a producer of its own.

Used by `Consumer`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from headrace_mq._runtime.clock import Clock
from headrace_mq._runtime.log import get_logger
from headrace_mq.client.fetch.delivery import RecordDelivery
from headrace_mq.client.fetch.record_columns import RecordColumns
from headrace_mq.client.handlers.failures import (
    Again,
    EndlessRetryPolicy,
    Failure,
    FailurePolicy,
    Verdict,
)
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.trace.trace_events import (
    TRACE_TOPIC,
    Kind,
    Traced,
    TraceStep,
    encode_step,
    is_traced,
    settled_kind,
    traced,
)
from headrace_mq.errors import MessageQueueError
from headrace_mq.message import QueueRef, Record
from headrace_mq.settings import ConsumerSettings

__all__ = [
    "TracedDelivery",
    "TracedPolicy",
    "Tracer",
    "delivering_for",
    "policy_for",
    "tracer_of",
]

# Steps that wait to be sent: some seconds of a busy consumer, about 20 MB.
STEPS_MAX = 100_000
# Records whose end is still to be told: as many as a consumer may hold by any sensible setting.
UNDER_WAY_MAX = 100_000
# Steps that go together, and how long the first of them waits for others.
SENT_TOGETHER_MAX = 1_000
INTERVAL_MS = 200

_log = get_logger(__name__)


class Tracer:
    """Tells what one consumer did with the messages it got.

    Args:
        producer: sends; the tracer starts and closes it.
        group: of the consumer.
        client_id: of the consumer.
        share: of all messages, 0 to 1; which they are is the same for every consumer.
        clock: the time.
    """

    def __init__(
        self, producer: Producer, *, group: str, client_id: str, share: float, clock: Clock
    ) -> None:
        self._producer = producer
        self._group = group
        self._client_id = client_id
        self._share = share
        self._clock = clock
        # What was delivered and not acknowledged, with the number of its attempts here.
        self._under_way: dict[tuple[QueueRef, int], tuple[Traced, int]] = {}
        self._waiting: deque[tuple[str, TraceStep]] = deque()
        self._news = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None
        self._departing: asyncio.Task[None] | None = None
        self.lost = 0

    async def start(self) -> None:
        """Connects. Raises as `Producer.start`."""
        await self._producer.start()
        await self._producer.create_topic(TRACE_TOPIC)
        self._sending = asyncio.create_task(self._keep_sending(), name="message trace")

    async def aclose(self) -> None:
        """Sends what waits, and closes."""
        if self._sending is not None:
            self._sending.cancel()
            with suppress(asyncio.CancelledError):
                await self._sending
            if self._departing is not None:
                await self._departing
            await self._send_all()
        await self._producer.aclose()

    def delivered(self, record: Record) -> None:
        """A record was given to the application."""
        name = traced(record)
        if is_traced(name.message_id, self._share):
            if len(self._under_way) >= UNDER_WAY_MAX:
                del self._under_way[next(iter(self._under_way))]
            self._under_way[record.queue, record.offset] = (name, 0)
            self._tell("delivered", name, attempt=1)

    def begun(self, record: Record) -> None:
        """An attempt to handle it begins."""
        found = self._under_way.get((record.queue, record.offset))
        if found is not None:
            name, attempts = found
            self._under_way[record.queue, record.offset] = (name, attempts + 1)
            self._tell("begun", name, attempt=attempts + 1)

    def acknowledged(self, queue: QueueRef, offset: int) -> None:
        """It is done."""
        found = self._under_way.pop((queue, offset), None)
        if found is not None:
            self._tell("acknowledged", found[0], attempt=max(1, found[1]))

    def decided(self, failure: Failure, verdict: Verdict) -> None:
        """An attempt failed, and it was decided what becomes of the record."""
        place = (failure.record.queue, failure.record.offset)
        found = self._under_way.get(place)
        if found is None:
            return
        reason = f"{type(failure.error).__name__}: {failure.error}"
        name, attempts = found
        if isinstance(verdict, Again):
            detail = f"again in {verdict.pause_ms} ms: {reason}"
            self._tell("failed", name, attempt=attempts, detail=detail)
        else:
            # The acknowledgement that follows is not one for readers of the trace.
            del self._under_way[place]
            kind = settled_kind(verdict.where)
            self._tell(kind, name, attempt=attempts, detail=f"{verdict.where}: {reason}")

    def _tell(self, kind: Kind, name: Traced, *, attempt: int, detail: str = "") -> None:
        if len(self._waiting) >= STEPS_MAX:
            self.lost += 1
            return
        step = TraceStep(
            kind=kind,
            at_ms=self._clock.now_ms(),
            group=self._group,
            client_id=self._client_id,
            attempt=name.failed + attempt,
            detail=detail,
        )
        self._waiting.append((name.message_id, step))
        self._news.set()

    async def _keep_sending(self) -> None:
        while True:
            await self._news.wait()
            await asyncio.sleep(INTERVAL_MS / 1_000)
            self._news.clear()
            # What is on its way is neither lost nor sent twice by an end in the middle of it.
            self._departing = asyncio.create_task(self._send_all(), name="message trace steps")
            await asyncio.shield(self._departing)

    async def _send_all(self) -> None:
        while self._waiting:
            count = min(len(self._waiting), SENT_TOGETHER_MAX)
            together = [self._waiting.popleft() for _ in range(count)]
            try:
                await self._producer.send_columns(
                    TRACE_TOPIC,
                    [encode_step(step) for _, step in together],
                    keys=[message_id for message_id, _ in together],
                )
            except MessageQueueError as error:
                self.lost += count
                _log.warning(
                    "steps of the message trace were lost", lost=self.lost, error=str(error)
                )


class TracedDelivery(RecordDelivery):
    """Delivers as `RecordDelivery` does.

    Args:
        tracer: takes every step.
        parts: those of `RecordDelivery`.
        named: those of `RecordDelivery`.
    """

    def __init__(self, tracer: Tracer, *parts: Any, **named: Any) -> None:
        super().__init__(*parts, **named)
        self._tracer = tracer

    async def poll(self, records_max: int | None = None) -> list[Record]:
        """As `RecordDelivery.poll`."""
        records = await super().poll(records_max)
        for record in records:
            self._tracer.delivered(record)
        return records

    async def poll_columns(self) -> list[RecordColumns]:
        """As `RecordDelivery.poll_columns`."""
        runs = await super().poll_columns()
        for run in runs:
            for record in run.records():
                self._tracer.delivered(record)
        return runs

    def ack(self, queue: QueueRef, offset: int) -> None:
        """As `RecordDelivery.ack`."""
        self._done(queue, (offset,))
        super().ack(queue, offset)

    def ack_all(self, records: Iterable[Record]) -> None:
        """As `RecordDelivery.ack_all`."""
        records = list(records)
        for record in records:
            self._done(record.queue, (record.offset,))
        super().ack_all(records)

    def ack_columns(self, columns: RecordColumns) -> None:
        """As `RecordDelivery.ack_columns`."""
        self._done(columns.queue, columns.offsets)
        super().ack_columns(columns)

    async def begin(self, record: Record) -> bool:
        """As `RecordDelivery.begin`."""
        has_begun = await super().begin(record)
        if has_begun:
            self._tracer.begun(record)
        return has_begun

    def end(self, record: Record, *, done: bool) -> None:
        """As `RecordDelivery.end`."""
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
        tracer: takes every decision.
    """

    def __init__(self, policy: FailurePolicy, tracer: Tracer) -> None:
        self._policy = policy
        self._tracer = tracer

    async def decide(self, failure: Failure) -> Verdict:
        """As the other policy."""
        verdict = await self._policy.decide(failure)
        self._tracer.decided(failure, verdict)
        return verdict


def tracer_of(
    address: str, settings: ConsumerSettings, *, group: str, client_id: str, clock: Clock
) -> Tracer | None:
    """The tracer of a consumer; None where its settings ask for no trace."""
    if not settings.trace_share:
        return None
    return Tracer(
        Producer(address, clock=clock),
        group=group,
        client_id=client_id,
        share=settings.trace_share,
        clock=clock,
    )


def delivering_for(tracer: Tracer | None) -> Callable[..., RecordDelivery]:
    """Makes what delivers the records of a consumer, traced or not."""
    return RecordDelivery if tracer is None else partial(TracedDelivery, tracer)


def policy_for(
    tracer: Tracer | None, policy: FailurePolicy | None, settings: ConsumerSettings
) -> FailurePolicy | None:
    """A consumer's policy for failed records, traced or not; None for that of `handling`."""
    if tracer is None:
        return policy
    return TracedPolicy(
        policy or EndlessRetryPolicy(settings.retry_ms_min, settings.retry_ms_max), tracer
    )

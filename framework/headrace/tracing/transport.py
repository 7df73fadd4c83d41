"""
A transport whose subscriptions make a span for what they deliver, until it is done.

    a projection                    one span for each delivery, with a link to every message: one
                                    transaction folds them all. Where all are of one trace, in that
    process managers, handlers      one for each message, in its trace, until it is acknowledged
    the command service             none: each run of a handler has its own

Used by the readers of events; wraps the transport.
"""

from collections.abc import Sequence
from typing import Any

from opentelemetry.trace import Span, SpanKind

from headrace.tracing.spans import Spans, context_in, span_context_in
from headrace.transports.base import (
    Incoming,
    OffsetLoader,
    QueueId,
    Subscription,
    Transport,
)

__all__ = ["TracedSubscription", "TracedTransport"]

# Deliveries that are traced at a time; further ones are not. Readers have fewer.
OPEN_MAX = 10_000
_BATCHED = ".projection."


class TracedTransport:
    """A transport that makes spans; all else is the transport's own.

    Args:
        transport: what it stands for.
        spans: makes the spans.
        untraced: groups of which deliveries are not traced.
    """

    def __init__(self, transport: Transport, spans: Spans, untraced: Sequence[str] = ()) -> None:
        self._transport = transport
        self._spans = spans
        self._untraced = frozenset(untraced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    async def subscribe(
        self, group: str, topics: Sequence[str], *, offsets: OffsetLoader | None = None
    ) -> Subscription:
        """As `Transport.subscribe`."""
        subscription = await self._transport.subscribe(group, topics, offsets=offsets)
        if group in self._untraced:
            return subscription
        return TracedSubscription(subscription, self._spans, group)


class TracedSubscription:
    """A subscription that makes spans."""

    def __init__(self, subscription: Subscription, spans: Spans, group: str) -> None:
        self._subscription = subscription
        self._spans = spans
        self._group = group
        self._batched = _BATCHED in group
        self._batch: Span | None = None
        self._open: dict[tuple[QueueId, int], Span] = {}

    async def poll(self) -> list[Incoming]:
        """As `Subscription.poll`; a reader that folds in batches has finished the last one by now."""
        self._end_batch()
        messages = await self._subscription.poll()
        if self._batched:
            self._begin_batch(messages)
        else:
            for message in messages:
                self._begin(message)
        return messages

    def ack(self, message: Incoming) -> None:
        """As `Subscription.ack`."""
        self._subscription.ack(message)
        span = self._open.pop((message.queue, message.offset), None)
        if span is not None:
            span.end()

    def seek(self, queue: QueueId, offset: int) -> None:
        """As `Subscription.seek`."""
        self._subscription.seek(queue, offset)

    async def aclose(self) -> None:
        """As `Subscription.aclose`; what is not acknowledged will be delivered again."""
        try:
            await self._subscription.aclose()
        finally:
            self._end_batch()
            for span in self._open.values():
                span.end()
            self._open.clear()

    def _begin(self, message: Incoming) -> None:
        parent = context_in(message.headers)
        place = (message.queue, message.offset)
        if parent is None or len(self._open) >= OPEN_MAX:
            return
        earlier = self._open.pop(place, None)
        if earlier is not None:
            earlier.end()
        attributes = self._attributes(message) | {"headrace.aggregate.id": message.key}
        self._open[place] = self._spans.start(
            f"process {message.queue[0]}", SpanKind.CONSUMER, attributes, parent=parent
        )

    def _begin_batch(self, messages: Sequence[Incoming]) -> None:
        found = [message for message in messages if context_in(message.headers) is not None]
        if not found:
            return
        spans = [context for each in found if (context := span_context_in(each.headers))]
        together = len({span.trace_id for span in spans}) == 1
        self._batch = self._spans.start(
            f"process {found[0].queue[0]}",
            SpanKind.CONSUMER,
            self._attributes(found[0]) | {"messaging.batch.message_count": len(messages)},
            parent=context_in(found[0].headers) if together else None,
            links=spans,
        )

    def _end_batch(self) -> None:
        if self._batch is not None:
            self._batch.end()
            self._batch = None

    def _attributes(self, message: Incoming) -> dict[str, Any]:
        return {
            "messaging.destination.name": message.queue[0],
            "messaging.destination.partition.id": str(message.queue[1]),
            "messaging.consumer.group.name": self._group,
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
        }

"""
An event store that makes a span for each stream that it stores.

Used by the command service; wraps the event store.
"""

from collections.abc import Sequence
from typing import Any

from opentelemetry.trace import Span, SpanKind

from headrace.domain.stream import EventStream
from headrace.stores.base import AppendOutcome, EventStore
from headrace.tracing.spans import Spans, context_in, fail

__all__ = ["TracedStore"]


class TracedStore:
    """An event store that makes spans; all else is the store's own.

    Args:
        store: what it stands for.
        spans: makes the spans.
    """

    def __init__(self, store: EventStore, spans: Spans) -> None:
        self._store = store
        self._spans = spans

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(self, streams: Sequence[EventStream]) -> list[AppendOutcome]:
        """As `EventStore.append`; streams of many traces are stored in one transaction."""
        begun = [self._begin(stream, len(streams)) for stream in streams]
        try:
            outcomes = await self._store.append(streams)
            for span, outcome in zip(begun, outcomes, strict=True):
                if span is not None:
                    span.set_attribute("headrace.append.outcome", outcome.name.lower())
        except Exception as error:
            for span in begun:
                if span is not None:
                    fail(span, error)
            raise
        finally:
            for span in begun:
                if span is not None:
                    span.end()
        return outcomes

    def _begin(self, stream: EventStream, together: int) -> Span | None:
        parent = context_in(stream.items)
        if parent is None:
            return None
        return self._spans.start(
            f"append {stream.aggregate_type}",
            SpanKind.CLIENT,
            {
                "db.operation.name": "append",
                "db.operation.batch.size": together,
                "headrace.aggregate.id": stream.aggregate_id,
                "headrace.stream.version": stream.version or 0,
                "headrace.stream.events": len(stream.events),
            },
            parent=parent,
        )

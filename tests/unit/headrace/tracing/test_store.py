"""Spans of what is stored."""

from datetime import UTC, datetime
from typing import Any

import pytest
from opentelemetry.trace import StatusCode

from headrace import DomainEvent, EventStream
from headrace.stores.base import AppendOutcome
from headrace.stores.memory.store import MemoryEventStore
from headrace.tracing.spans import Spans
from headrace.tracing.store import TracedStore

TRACE = {"traceparent": f"00-{7:032x}-{1:016x}-01"}


class Added(DomainEvent):
    amount: int


def stream(aggregate_id: str, items: dict[str, str], version: int = 1) -> EventStream:
    return EventStream(
        aggregate_type="Cart",
        aggregate_id=aggregate_id,
        version=version,
        command_id=f"c-{version}",
        correlation_id="c",
        recorded_at=datetime(2026, 1, 1, tzinfo=UTC),
        events=(Added(amount=1),),
        items=items,
    )


async def test_each_stream_of_a_trace_is_a_span_with_its_outcome(spans: Spans, ended: Any) -> None:
    plain = MemoryEventStore()
    store = TracedStore(plain, spans)
    outcomes = await store.append([stream("a", TRACE), stream("b", {}), stream("c", TRACE, 5)])
    assert outcomes == [
        AppendOutcome.APPENDED, AppendOutcome.APPENDED, AppendOutcome.VERSION_CONFLICT,
    ]  # fmt: skip
    first, second = ended("append Cart")
    assert (first.context.trace_id, first.parent.span_id) == (7, 1)
    assert first.attributes["headrace.append.outcome"] == "appended"
    assert first.attributes["db.operation.batch.size"] == 3
    assert second.attributes["headrace.append.outcome"] == "version_conflict"
    assert await store.last_position() == 2
    assert await store.identity() == await plain.identity()


async def test_a_store_that_is_away_marks_the_spans(spans: Spans, ended: Any) -> None:
    class Away(MemoryEventStore):
        async def append(self, streams: Any) -> Any:
            raise OSError("away")

    with pytest.raises(OSError, match="away"):
        await TracedStore(Away(), spans).append([stream("a", TRACE), stream("b", {})])
    (span,) = ended("append Cart")
    assert span.status.status_code is StatusCode.ERROR

"""
A command bus that makes a span for each command, and hands its context on with it.

Used by callers; wraps the command bus.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind

from headrace.bus import CommandBus
from headrace.domain.topics import command_topic
from headrace.results import CommandResult
from headrace.serialization import CommandEnvelope
from headrace.tracing.spans import Spans, context_in

__all__ = ["TracedBus"]


class TracedBus(CommandBus):
    """A command bus with a span around each command that is sent or executed.

    It belongs to the current span, or where there is none to the one that the items name: so the
    commands of a process manager continue the trace of the event.

    Args:
        spans: makes the spans.
        parts: as for `CommandBus`.
    """

    def __init__(self, spans: Spans, **parts: Any) -> None:
        super().__init__(**parts)
        self._spans = spans

    async def send_envelope(self, envelope: CommandEnvelope) -> None:
        """As `CommandBus.send_envelope`; the span ends when the queue has the command."""
        with self._sending(envelope, "send") as (traced, _):
            await super().send_envelope(traced)

    async def _result(self, envelope: CommandEnvelope, wait_ms: int) -> CommandResult:
        with self._sending(envelope, "execute") as (traced, span):
            result = await super()._result(traced, wait_ms)
            span.set_attribute("headrace.command.status", result.status)
            return result

    @contextmanager
    def _sending(
        self, envelope: CommandEnvelope, operation: str
    ) -> Iterator[tuple[CommandEnvelope, Span]]:
        topic = command_topic(self._name, envelope.command.message_topic)
        is_inside = trace.get_current_span().get_span_context().is_valid
        span = self._spans.start(
            f"{operation} {topic}",
            SpanKind.PRODUCER,
            {
                "messaging.destination.name": topic,
                "messaging.operation.name": operation,
                "messaging.operation.type": "send",
                "messaging.message.id": envelope.command_id,
                "headrace.command": envelope.command.message_name,
                "headrace.aggregate.id": envelope.aggregate_id,
            },
            parent=contexts.get_current() if is_inside else context_in(envelope.items),
        )
        with self._spans.current(span) as carrier:
            yield replace(envelope, items={**envelope.items, **carrier}), span

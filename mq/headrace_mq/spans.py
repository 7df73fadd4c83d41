"""
The trace context of OpenTelemetry in the headers of messages, for applications with spans of their own.

    Message(…) ──carrying──▶ headers traceparent, tracestate ──traced(handler)──▶ span of the handler

Needs the OpenTelemetry API (`pip install 'headrace[tracing]'`), which nothing else here loads.

Used by applications.
"""

from collections.abc import Awaitable, Callable

import msgspec
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from headrace_mq.message import Message, Record

__all__ = ["carrying", "context_of", "traced"]

_propagator = TraceContextTextMapPropagator()


def carrying(message: Message) -> Message:
    """Returns a message that belongs to the current span; the same where there is none."""
    headers: dict[str, str] = {}
    _propagator.inject(headers)
    if not headers:
        return message
    return msgspec.structs.replace(message, headers={**message.headers, **headers})


def context_of(record: Record) -> Context:
    """The context that a record belongs to; an empty one where its sender had none."""
    return _propagator.extract(record.headers, context=Context())


def traced(
    handler: Callable[[Record], Awaitable[None]],
    *,
    group: str = "",
    provider: TracerProvider | None = None,
) -> Callable[[Record], Awaitable[None]]:
    """Puts a span around a handler, in the trace of each record; `Consumer.run` takes the result.

    Every attempt is a span of its own. What the handler raises marks its span as failed.

    Args:
        handler: of records.
        group: the consumer's group.
        provider: of tracers; that of the process by default.
    """
    tracer = trace.get_tracer("headrace_mq", tracer_provider=provider)

    async def handle(record: Record) -> None:
        attributes: dict[str, str | int] = {
            "messaging.system": "headrace",
            "messaging.destination.name": record.queue.topic,
            "messaging.destination.partition.id": str(record.queue.queue_id),
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.message.body.size": len(record.body),
        }
        if group:
            attributes["messaging.consumer.group.name"] = group
        with tracer.start_as_current_span(
            f"process {record.queue.topic}",
            context=context_of(record),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
        ):
            await handler(record)

    return handle

"""
The traced parts of one application, put in place of the parts themselves.

Used by `App`, which puts an application together; makes the traced parts.
"""

from typing import Any, cast

from opentelemetry.trace import SpanKind, TracerProvider

from headrace.commands.command_handlers import CommandContext
from headrace.commands.middleware import Middleware, Next
from headrace.domain.topics import command_topic
from headrace.errors import DomainError
from headrace.stores.base import EventStore
from headrace.tracing.bus import TracedBus
from headrace.tracing.spans import Spans, context_in
from headrace.tracing.store import TracedStore
from headrace.tracing.transport import TracedTransport
from headrace.transports.base import Transport

__all__ = ["Tracing"]


class Tracing:
    """OpenTelemetry for an application: `app.trace_with(Tracing())`.

    Args:
        provider: of tracers; by default that of the process (`opentelemetry.trace`), which may also
            be set later. As long as there is none, no spans are made.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._spans = Spans(provider)

    def bus(self, **parts: Any) -> TracedBus:
        """A command bus that makes spans; takes what `CommandBus` takes."""
        return TracedBus(self._spans, **parts)

    def transport(self, transport: Transport, app_name: str) -> Transport:
        """A transport whose deliveries make spans."""
        commands = f"{app_name}.commands"
        return cast("Transport", TracedTransport(transport, self._spans, untraced=[commands]))

    def store(self, store: EventStore) -> EventStore:
        """An event store that makes spans."""
        return cast("EventStore", TracedStore(store, self._spans))

    def around_handlers(self, app_name: str) -> Middleware:
        """Middleware: each run of a handler is a span in its command's trace, and the current one."""

        async def traced(context: CommandContext, call_next: Next) -> None:
            command = context.command
            topic = command_topic(app_name, command.message_topic)
            span = self._spans.start(
                f"process {topic}",
                SpanKind.CONSUMER,
                {
                    "messaging.destination.name": topic,
                    "messaging.operation.name": "process",
                    "messaging.operation.type": "process",
                    "messaging.message.id": context.command_id,
                    "headrace.command": command.message_name,
                    "headrace.aggregate.id": command.aggregate_id,
                },
                parent=context_in(context.items),
            )
            # A rejection is an answer: nothing has failed.
            with self._spans.current(span, expected=(DomainError,), of=(command,)):
                await call_next()

        return traced

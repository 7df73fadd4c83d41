"""The streams that the suites store: their events, and the serializer that knows these events."""

from datetime import UTC, datetime
from typing import Final

from headrace.domain.message import ApplicationMessage, Command, DomainEvent
from headrace.domain.registry import Registry
from headrace.domain.stream import EventStream, Rejection
from headrace.serialization import JsonSerializer, Serializer

__all__ = [
    "MOMENT",
    "Noted",
    "Recounted",
    "Told",
    "conformance_serializer",
    "rejected",
    "stream",
]

# When every stream was recorded, to the microsecond.
MOMENT: Final = datetime(2026, 1, 31, 12, 0, 0, 123_456, tzinfo=UTC)


class Noted(DomainEvent, name="Noted"):
    """An event of the suite's own."""

    text: str


class Recounted(DomainEvent, name="Recounted", version=2):
    """Another event of the suite's own, with a version that is not the first."""

    count: int


class Told(ApplicationMessage, name="Told"):
    """An application message of the suite's own."""

    text: str


def conformance_serializer() -> Serializer:
    """Returns a serializer that knows the suite's events."""
    events: Registry[DomainEvent] = Registry("event")
    events.add(Noted)
    events.add(Recounted)
    messages: Registry[ApplicationMessage] = Registry("application message")
    messages.add(Told)
    return JsonSerializer(Registry[Command]("command"), events, messages)


def stream(
    aggregate_id: str, version: int, command_id: str | None = None, text: str = "x"
) -> EventStream:
    """Returns a stream of one `Noted`; its command id is made of the version by default."""
    return EventStream(
        aggregate_type="Notebook",
        aggregate_id=aggregate_id,
        version=version,
        command_id=command_id or f"command-{version}",
        correlation_id="correlation",
        recorded_at=MOMENT,
        events=(Noted(text=text),),
    )


def rejected(aggregate_id: str, command_id: str) -> EventStream:
    """Returns the stream of a rejected command."""
    return EventStream(
        aggregate_type="Notebook",
        aggregate_id=aggregate_id,
        version=None,
        command_id=command_id,
        correlation_id="correlation",
        recorded_at=MOMENT,
        rejection=Rejection(
            error="NotebookFull",
            sentence="the notebook is full",
            command_name="Note",
            command_version=1,
            command_data={"text": "x", "pages": [1, 2]},
        ),
    )

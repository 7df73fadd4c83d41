"""Streams of a small domain."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from headrace._domain.message import DomainEvent
from headrace._domain.registry import Registry
from headrace._domain.stream import EventStream, Rejection
from headrace.serialization import JsonSerializer


class Happened(DomainEvent):
    number: int


@pytest.fixture
def stream() -> Callable[..., EventStream]:
    """Makes a stream of one event, or a rejection when the version is None."""

    def make(aggregate_id: str, version: int | None, command_id: str | None = None) -> EventStream:
        rejection = Rejection(
            error="no", sentence="no", command_name="Do", command_version=1, command_data={}
        )
        return EventStream(
            aggregate_type="Thing",
            aggregate_id=aggregate_id,
            version=version,
            command_id=command_id or f"{aggregate_id}-{version}",
            correlation_id="chain",
            recorded_at=datetime(2026, 1, 31, tzinfo=UTC),
            events=() if version is None else (Happened(number=version),),
            rejection=rejection if version is None else None,
        )

    return make


@pytest.fixture
def serializer() -> JsonSerializer:
    """Knows the event of the streams."""
    events: Registry[DomainEvent] = Registry("event")
    events.add(Happened)
    return JsonSerializer(Registry("command"), events)

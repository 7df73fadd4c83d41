"""Streams of a small domain."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from headrace.domain.message import ApplicationMessage, DomainEvent
from headrace.domain.registry import Registry
from headrace.domain.stream import EventStream, Rejection
from headrace.serialization import JsonSerializer


class Happened(DomainEvent):
    number: int


class Told(ApplicationMessage):
    text: str


@pytest.fixture
def told() -> Callable[..., EventStream]:
    """Gives a stream application messages; a rejection is no rejection any more then."""

    def make(stream: EventStream, *texts: str) -> EventStream:
        messages = tuple(Told(text=text) for text in texts)
        return replace(stream, messages=messages, rejection=None)

    return make


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
    messages: Registry[ApplicationMessage] = Registry("application message")
    messages.add(Told)
    return JsonSerializer(Registry("command"), events, messages)

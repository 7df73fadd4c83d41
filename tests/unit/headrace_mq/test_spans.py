"""Trace contexts in the headers of messages."""

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, get_current_span

from headrace_mq.message import Message, QueueRef, Record
from headrace_mq.spans import carrying, context_of, traced


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> TracerProvider:
    made = TracerProvider(shutdown_on_exit=False)
    made.add_span_processor(SimpleSpanProcessor(exporter))
    return made


def delivered(message: Message) -> Record:
    queue = QueueRef(message.topic, 2)
    return Record(queue, 7, message.key, message.tag, message.headers, message.body, 1, 2)


def test_a_message_outside_of_spans_stays_as_it_is() -> None:
    message = Message(topic="t", body=b"x", headers={"a": "b"})
    assert carrying(message) is message
    assert not get_current_span(context_of(delivered(message))).get_span_context().is_valid


async def test_a_handler_goes_on_with_the_trace_of_the_sender(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    with provider.get_tracer("test").start_as_current_span("buy") as buying:
        message = carrying(Message(topic="t", body=b"x", headers={"a": "b"}))
    assert message.headers.keys() == {"a", "traceparent"}
    inside: list[int] = []

    async def handler(record: Record) -> None:
        inside.append(get_current_span().get_span_context().trace_id)

    await traced(handler, group="g", provider=provider)(delivered(message))
    span = exporter.get_finished_spans()[-1]
    assert inside == [buying.get_span_context().trace_id]
    assert span.parent is not None
    assert span.parent.span_id == buying.get_span_context().span_id
    assert (span.name, span.kind.name) == ("process t", "CONSUMER")
    assert span.attributes is not None
    assert dict(span.attributes) == {
        "messaging.system": "headrace",
        "messaging.destination.name": "t",
        "messaging.destination.partition.id": "2",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.message.body.size": 1,
        "messaging.consumer.group.name": "g",
    }


async def test_an_attempt_that_fails_marks_its_span(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    async def handler(record: Record) -> None:
        raise ValueError("no")

    handle = traced(handler, provider=provider)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            await handle(delivered(Message(topic="t", body=b"x")))
    spans = exporter.get_finished_spans()
    assert [span.status.status_code for span in spans] == [StatusCode.ERROR] * 2
    assert [span.parent for span in spans] == [None, None]

"""Spans of commands that are sent."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import StatusCode

from headrace import AggregateId, App, Command, CommandBus, CommandContext
from headrace.errors import CommandTimeout
from headrace.tracing.traced_parts import Tracing

app = App("post")


class Write(Command):
    letter_id: AggregateId


@app.handles
async def write(command: Write, context: CommandContext) -> None:
    context.set_result(dict(context.items))


@pytest.fixture
async def bus(
    provider: TracerProvider, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[CommandBus]:
    monkeypatch.setattr(app, "_middleware", [])
    app.trace_with(Tracing(provider))
    async with app.run_local() as running:
        yield running.bus
    monkeypatch.setattr(app, "_tracing", None)


async def test_a_command_carries_the_context_of_its_span_beside_its_own_items(
    bus: CommandBus, ended: Any
) -> None:
    result = await bus.execute(Write(letter_id="l-1"), items={"user": "ann"})
    (span,) = ended("execute post.commands")
    assert result.value["user"] == "ann"
    assert result.value["traceparent"].split("-")[2] == format(span.context.span_id, "016x")
    assert (span.kind.name, span.parent) == ("PRODUCER", None)
    assert span.attributes["messaging.destination.name"] == "post.commands"
    assert span.attributes["messaging.message.id"] == result.command_id
    assert span.attributes["headrace.command.status"] == result.status


async def test_a_span_around_the_call_is_the_parent(
    bus: CommandBus, provider: TracerProvider, ended: Any
) -> None:
    with provider.get_tracer("test").start_as_current_span("request") as request:
        await bus.send(Write(letter_id="l-1"))
    (span,) = ended("send post.commands")
    assert span.parent == request.get_span_context()


async def test_without_one_the_trace_that_the_items_name_goes_on(
    bus: CommandBus, ended: Any
) -> None:
    carried = {"traceparent": f"00-{7:032x}-{5:016x}-01"}
    await bus.send(Write(letter_id="l-1"), items=carried)
    (span,) = ended("send post.commands")
    assert (span.context.trace_id, span.parent.span_id) == (7, 5)


async def test_a_command_without_an_answer_in_time_marks_its_span(
    bus: CommandBus, ended: Any
) -> None:
    with pytest.raises(CommandTimeout):
        await bus.execute(Write(letter_id="l-1"), timeout_ms=0)
    (span,) = ended("execute post.commands")
    assert span.status.status_code is StatusCode.ERROR

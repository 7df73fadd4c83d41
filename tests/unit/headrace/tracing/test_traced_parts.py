"""One trace from a command to what it causes, through retries and over a real queue."""

import asyncio
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from pydantic import BaseModel

from headrace import (
    Aggregate,
    AggregateId,
    App,
    Command,
    CommandContext,
    DomainError,
    DomainEvent,
    EventContext,
    ProcessManager,
    Projection,
    Settings,
    applies,
)
from headrace.tracing.traced_parts import Tracing
from headrace_mq.testing import broker


class Order(Command):
    order_id: AggregateId


class Ship(Command):
    parcel_id: AggregateId


class Refuse(Command):
    order_id: AggregateId


class Ordered(DomainEvent):
    pass


class Shipped(DomainEvent):
    pass


class Purchase(Aggregate):
    def initial_state(self) -> None:
        self.is_open = False

    @applies
    def _ordered(self, event: Ordered) -> None:
        self.is_open = True


class Parcel(Aggregate):
    def initial_state(self) -> None:
        self.is_sent = False

    @applies
    def _shipped(self, event: Shipped) -> None:
        self.is_sent = True


class Seen(BaseModel):
    order_id: str


class NotNow(DomainError):
    """No."""


def application(*failures: Exception) -> tuple[App, Projection[Seen]]:
    app, failing = App("shop"), iter(failures)
    seen = Projection("seen", row=Seen, key="order_id")

    @seen.fold
    def ordered(row: Seen | None, event: Ordered, context: EventContext) -> Seen:
        return Seen(order_id=context.aggregate_id)

    shipping = ProcessManager("shipping")

    @shipping.on
    def ship(event: Ordered, context: EventContext) -> list[Command]:
        return [Ship(parcel_id=f"p-{context.aggregate_id}")]

    @app.handles
    async def order(command: Order, context: CommandContext) -> None:
        for failure in failing:
            raise failure
        purchase = Purchase(command.order_id)
        purchase.record(Ordered())
        context.add(purchase)

    @app.handles
    async def send(command: Ship, context: CommandContext) -> None:
        parcel = Parcel(command.parcel_id)
        parcel.record(Shipped())
        context.add(parcel)

    @app.handles
    async def refuse(command: Refuse, context: CommandContext) -> None:
        raise NotNow("later")

    @app.on_event
    async def note(event: Shipped, context: EventContext) -> None: ...

    app.add(Purchase, Parcel, seen, shipping)
    return app, seen


def of(spans: Any, name: str, **attributes: Any) -> list[ReadableSpan]:
    wanted = {f"messaging.{key.replace('_', '.')}": value for key, value in attributes.items()}
    return [
        span
        for span in spans
        if span.name == name and wanted.items() <= dict(span.attributes or {}).items()
    ]


async def test_a_command_and_all_that_it_causes_over_a_broker_are_one_trace(
    provider: TracerProvider, exporter: InMemorySpanExporter, tmp_path: Path
) -> None:
    app, seen = application()
    app.trace_with(Tracing(provider))
    async with broker() as address:
        settings = Settings(
            broker=address,
            event_store="memory://",
            read_models=f"sqlite:///{tmp_path / 'read.db'}",
        )
        async with app.run(settings) as running:
            await running.bus.execute(Order(order_id="o-1"), wait_for=[seen])
            result = await running.bus.execute(Order(order_id="o-2"), wait_for="handled")
            await running.bus.execute(Ship(parcel_id="p-o-2"), command_id="again")
    spans = exporter.get_finished_spans()
    (command,) = [
        span
        for span in of(spans, "execute shop.commands")
        if (span.attributes or {})["messaging.message.id"] == result.command_id
    ]
    trace = [span for span in spans if span.context.trace_id == command.context.trace_id]
    sent = of(trace, "send shop.commands")
    assert [(span.attributes or {})["headrace.command"] for span in sent] == ["Ship"]
    handled = of(trace, "process shop.commands")
    commands = {(span.attributes or {})["headrace.command"] for span in handled}
    assert commands == {"Order", "Ship"}
    assert {span.name for span in trace} >= {"append Purchase", "append Parcel"}
    for group in ("shop.projection.seen", "shop.process.shipping"):
        assert of(trace, "process shop.events", consumer_group_name=group), group
    by_id = {span.context.span_id for span in trace}
    assert all(span.parent is None or span.parent.span_id in by_id for span in trace)


async def test_every_run_of_a_handler_is_a_span_and_those_that_fail_say_so(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    app, _ = application(OSError("away"), OSError("still away"))
    app.trace_with(Tracing(provider))
    async with app.run_local() as running:
        await running.bus.execute(Order(order_id="o-1"))
    spans = exporter.get_finished_spans()
    (command,) = of(spans, "execute shop.commands")
    runs = [
        span
        for span in of(spans, "process shop.commands")
        if (span.attributes or {})["headrace.command"] == "Order"
    ]
    assert [span.status.status_code for span in runs] == [
        StatusCode.ERROR, StatusCode.ERROR, StatusCode.UNSET,
    ]  # fmt: skip
    assert {span.context.trace_id for span in runs} == {command.context.trace_id}


async def test_a_rejection_is_no_failure(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    app, _ = application()
    app.trace_with(Tracing(provider))
    async with app.run_local() as running:
        result = await running.bus.execute(Refuse(order_id="o-1"))
    (run,) = of(exporter.get_finished_spans(), "process shop.commands")
    assert result.status == "rejected"
    assert (run.status.status_code, (run.attributes or {})["error.type"]) == (
        StatusCode.UNSET,
        "NotNow",
    )


async def test_a_duplicate_is_answered_in_the_trace_of_whoever_asked_first(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    app, _ = application()
    app.trace_with(Tracing(provider))
    async with app.run_local() as running:
        orders = (running.bus.execute(Order(order_id="o-1"), command_id="c-1") for _ in range(2))
        first, second = await asyncio.gather(*orders)
    assert first == second
    appended = of(exporter.get_finished_spans(), "append Purchase")
    assert len(appended) == 1


async def test_without_a_provider_nothing_is_made_and_nothing_is_carried() -> None:
    app, _ = application()
    app.trace_with(Tracing())
    async with app.run_local() as running:
        result = await running.bus.execute(Order(order_id="o-1"))
        (stream,) = await running.store.read_stream("o-1")
    assert (result.status, dict(stream.items)) == ("executed", {})

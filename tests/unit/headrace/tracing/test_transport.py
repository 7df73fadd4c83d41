"""Spans of what subscriptions deliver."""

from typing import Any

import pytest

from headrace.tracing.spans import Spans
from headrace.tracing.transport import TracedTransport
from headrace.transports.base import Incoming

QUEUE = ("shop.events", 1)


def header(trace: int, span: int = 1) -> dict[str, str]:
    return {"traceparent": f"00-{trace:032x}-{span:016x}-01"}


def message(offset: int, headers: dict[str, str]) -> Incoming:
    return Incoming(QUEUE, offset, f"a-{offset}", "", headers, b"")


class Delivering:
    """A transport and its one subscription, which delivers what it is told to."""

    def __init__(self, *deliveries: list[Incoming]) -> None:
        self.deliveries = list(deliveries)
        self.done: list[Any] = []
        self.reply_address = "here"

    async def subscribe(self, group: str, topics: Any, *, offsets: Any = None) -> Any:
        return self

    async def poll(self) -> list[Incoming]:
        return self.deliveries.pop(0)

    def ack(self, message: Incoming) -> None:
        self.done.append(message.offset)

    def seek(self, queue: Any, offset: int) -> None:
        self.done.append((queue, offset))

    async def aclose(self) -> None:
        self.done.append("closed")


async def subscribed(transport: Delivering, spans: Spans, group: str) -> Any:
    return await TracedTransport(transport, spans, ["shop.commands"]).subscribe(group, ["t"])  # type: ignore[arg-type]  # as much of one as is used


async def test_a_message_is_a_span_of_its_trace_until_it_is_done(spans: Spans, ended: Any) -> None:
    transport = Delivering([message(3, header(7)), message(4, {}), message(5, header(8))])
    subscription = await subscribed(transport, spans, "shop.process.ship")
    first, plain, last = await subscription.poll()
    assert ended("process shop.events") == []
    subscription.ack(first)
    subscription.ack(plain)
    (span,) = ended("process shop.events")
    assert (span.context.trace_id, span.parent.span_id) == (7, 1)
    assert span.attributes["messaging.consumer.group.name"] == "shop.process.ship"
    assert span.attributes["messaging.destination.partition.id"] == "1"
    assert span.attributes["headrace.aggregate.id"] == "a-3"
    subscription.seek(QUEUE, 9)
    await subscription.aclose()
    assert [one.context.trace_id for one in ended("process shop.events")] == [7, 8]
    assert transport.done == [3, 4, (QUEUE, 9), "closed"]
    assert last.offset == 5


async def test_a_message_that_comes_again_is_another_span(spans: Spans, ended: Any) -> None:
    transport = Delivering([message(3, header(7))], [message(3, header(7))])
    subscription = await subscribed(transport, spans, "shop.events.mails")
    await subscription.poll()
    (again,) = await subscription.poll()
    subscription.ack(again)
    assert [one.context.trace_id for one in ended("process shop.events")] == [7, 7]


async def test_a_batch_is_one_span_until_the_next_one_is_asked_for(
    spans: Spans, ended: Any
) -> None:
    transport = Delivering(
        [message(1, header(7, 1)), message(2, header(7, 2))],
        [message(3, header(7)), message(4, {}), message(5, header(8))],
        [message(6, {})],
        [],
    )
    subscription = await subscribed(transport, spans, "shop.projection.sums")
    await subscription.poll()
    assert ended("process shop.events") == []
    await subscription.poll()
    await subscription.poll()
    one_trace, two_traces = ended("process shop.events")
    assert (one_trace.context.trace_id, one_trace.parent.span_id) == (7, 1)
    assert [link.context.span_id for link in one_trace.links] == [1, 2]
    assert two_traces.parent is None
    assert [link.context.trace_id for link in two_traces.links] == [7, 8]
    assert two_traces.attributes["messaging.batch.message_count"] == 3
    await subscription.poll()
    await subscription.aclose()
    assert len(ended("process shop.events")) == 2


async def test_the_command_service_is_left_alone_and_all_else_is_the_transports_own(
    spans: Spans,
) -> None:
    transport = Delivering()
    assert await subscribed(transport, spans, "shop.commands") is transport
    traced = TracedTransport(transport, spans)  # type: ignore[arg-type]  # as much of one as is used
    assert traced.reply_address == "here"
    with pytest.raises(AttributeError):
        _ = traced.nothing

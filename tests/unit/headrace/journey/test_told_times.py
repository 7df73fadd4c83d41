"""Consumers of an application that trace tell when they got a message and were done; the journey shows it."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from headrace.journey.command_trace import trace_application
from headrace.journey.hop import Hop, Journey
from headrace.journey.told_times import ToldTimes, add_delivered, told_times
from headrace.journey.trace import TraceTarget
from headrace.settings import Settings
from headrace.stores.database.schema import upgrade
from headrace_mq import AdminClient
from headrace_mq.client.trace.trace_events import TraceStep
from headrace_mq.errors import NotPermitted, RequestTimeout
from headrace_mq.message import QueueRef, Record
from headrace_mq.testing.embedded import broker
from tests.unit.headrace.journey.shop import Order, shop

RECORD = Record(QueueRef("shop.events", 0), 7, "ann", "", {}, b"", 0, 0)


class Told:
    """Stands in for a broker that keeps these steps, or does not say."""

    def __init__(self, *steps: tuple[str, str, int], error: Exception | None = None) -> None:
        self._steps = [TraceStep(kind=kind, group=group, at_ms=at_ms, client_id="c") for group, kind, at_ms in steps]  # type: ignore[arg-type]  # fmt: skip
        self._error = error

    async def steps(self, message_id: str) -> list[TraceStep]:
        assert message_id == "shop.events:0:7"
        if self._error is not None:
            raise self._error
        return self._steps


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ((), {}),
        ((("g", "delivered", 5),), {"g": ToldTimes(5, None)}),
        ((("g", "delivered", 5), ("g", "acknowledged", 9)), {"g": ToldTimes(5, 9)}),
        # A member was killed, and another one got it; a late copy is not what was done.
        (
            (("g", "delivered", 1), ("g", "delivered", 5), ("g", "acknowledged", 9), ("g", "delivered", 20)),
            {"g": ToldTimes(5, 9)},
        ),
        ((("g", "acknowledged", 9), ("h", "delivered", 4)), {"g": ToldTimes(None, 9), "h": ToldTimes(4, None)}),
    ],
)  # fmt: skip
async def test_times_of_a_group_are_those_of_the_delivery_that_was_done(steps, expected) -> None:
    assert await told_times(Told(*steps), RECORD) == expected  # type: ignore[arg-type]  # a stand-in


@pytest.mark.parametrize("error", [RequestTimeout("no answer"), NotPermitted("ann may not read")])
async def test_times_are_none_where_the_broker_does_not_say_or_the_message_is_gone(error) -> None:
    assert await told_times(Told(error=error), RECORD) == {}  # type: ignore[arg-type]  # a stand-in
    assert await told_times(Told(error=error), None) == {}  # type: ignore[arg-type]  # a stand-in


def test_a_delivery_is_a_hop_only_where_a_consumer_told_it() -> None:
    journey = Journey()
    queued = journey.add(None, "queue", "queued", "t:0:7", at_ms=100)
    assert add_delivered(journey, queued, "reader", "g", {"g": ToldTimes(None, 9)}) == queued
    assert add_delivered(journey, queued, "reader", "g", {}) == queued
    hop = add_delivered(journey, queued, "reader", "g", {"g": ToldTimes(103, 109)})
    one = journey.hops[hop - 1]
    assert (one.step, one.name, one.at_ms, one.took_ms) == ("delivered", "g", 103, 3)
    assert (one.lane, one.page) == ("reader", "/group?group=g")


def all_told(hops: Sequence[Hop]) -> bool:
    """Whether the command and the three that react to its event have their times."""
    fetched = [
        one.took_ms for one in hops if one.name == "shop.commands" and one.step == "delivered"
    ]
    reacted = [one.at_ms for one in hops if one.step in {"applied", "reacted"}]
    return len(reacted) == 3 and bool(fetched) and None not in {*fetched[:1], *reacted}


async def follow(tmp_path: Any, trace_share: float) -> list[Any]:
    urls = {name: f"sqlite:///{tmp_path}/{name}.db" for name in ("event_store", "read_models")}
    for url in urls.values():
        await upgrade(url)
    target = TraceTarget(command_id="c-ann")
    async with broker() as address:
        settings = Settings(
            broker=address, trace_share=trace_share, result_timeout_ms=120_000, **urls
        )
        async with shop.run(settings) as running:
            await running.bus.execute(
                Order(order="ann", item="cup"), command_id="c-ann", wait_for="handled"
            )
            async with AdminClient(address) as admin:
                found = await trace_application(admin, shop, settings, target)
                # Consumers tell that they were done after the command has its result.
                while trace_share and not all_told(found.journey.hops):
                    await asyncio.sleep(0)
                    found = await trace_application(admin, shop, settings, target)
        async with AdminClient(address) as admin:
            topics = {one.topic for one in await admin.topics()}
            assert ("%TRACE%" in topics) == bool(trace_share)
    return found.journey.hops


async def test_an_application_that_traces_says_when_a_command_was_fetched_and_its_event_applied(
    tmp_path,
) -> None:
    hops = await follow(tmp_path, 1.0)
    delivered = {one.name: one for one in hops if one.step == "delivered"}
    (lines,) = [name for name in delivered if name.startswith("shop.projection")]
    assert {"shop.commands", lines, "shop.process.parcels", "shop.process.bills"} <= set(delivered)
    steps = {one.step: one for one in hops if one.step in {"queued", "handled", "published"}}
    fetched = delivered["shop.commands"]
    assert (fetched.after, steps["handled"].after) == (steps["queued"].number, fetched.number)
    assert fetched.took_ms is not None
    readers = [one for one in hops if one.step in {"applied", "reacted"}]
    assert {one.name for one in readers} == {"lines", "parcels ann", "bills"}
    for one in readers:
        got = hops[one.after - 1]
        assert (got.step, got.after) == ("delivered", steps["published"].number)
        assert one.at_ms - got.at_ms == one.took_ms


async def test_an_application_that_does_not_trace_tells_nothing_and_makes_no_topic(
    tmp_path,
) -> None:
    hops = await follow(tmp_path, 0.0)
    assert [one for one in hops if one.step == "delivered"] == []
    assert {one.at_ms for one in hops if one.step in {"applied", "reacted"}} == {None}

"""Beats reach every queue, and nobody but the lag minds them."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from headrace.domain.message import Command
from headrace.processes.process_manager import ProcessManager
from headrace.processes.process_manager_runner import ProcessManagerRunner
from headrace.projections.runner import ProjectionRunner
from headrace.transports.local import LocalTransport
from headrace.watch.heartbeat import Heart


@pytest.fixture
async def topic(clock: Any, domain: Any) -> LocalTransport:
    transport = LocalTransport(clock)
    await transport.ensure_topic(domain.topic, queues=3, forever=True)
    return transport


@pytest.fixture
def heart(topic: LocalTransport, serializer: Any, clock: Any) -> Heart:
    return Heart(app_name="shop", transport=topic, serializer=serializer, period_ms=1, clock=clock)


async def ends(topic: LocalTransport, name: str) -> list[int]:
    return [each.end for each in await topic.waiting(name, {})]


async def test_each_queue_gets_a_beat_and_after_the_first_time_exactly_one(
    heart: Heart, topic: LocalTransport, domain: Any
) -> None:
    await heart.beat()
    first = await ends(topic, domain.topic)
    assert min(first) >= 1
    await heart.beat()
    assert await ends(topic, domain.topic) == [end + 1 for end in first]


async def test_the_heartbeat_beats_until_it_is_stopped_and_logs_a_missed_beat(
    heart: Heart, topic: LocalTransport, domain: Any, logs: Any
) -> None:
    task = asyncio.create_task(heart.run())
    while min(await ends(topic, domain.topic)) < 2:
        await asyncio.sleep(0)
    await topic.aclose()
    while "heartbeat missed" not in Counter(each["event"] for each in logs):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_projections_pass_beats_over_and_process_managers_send_nothing(
    heart: Heart,
    topic: LocalTransport,
    domain: Any,
    totals: Any,
    sqlite_models: Any,
    store: Any,
    serializer: Any,
    settings: Any,
) -> None:
    manager, sent = ProcessManager("watching"), []

    @manager.on_rejection
    def refused(command: domain.Add, rejection: Any) -> Iterable[Command]:
        sent.append(rejection)
        return []

    await heart.beat()
    parts = {"app_name": "shop", "transport": topic, "serializer": serializer}
    runner = ProjectionRunner(
        projection=totals, read_models=sqlite_models, store=store, settings=settings, **parts
    )
    reacting = asyncio.create_task(
        ProcessManagerRunner(
            manager=manager, bus=None, read_models=sqlite_models, settings=settings, **parts
        ).run()
    )
    targets = {each.queue: each.end for each in await topic.waiting(domain.topic, {})}
    await runner.run_until(targets, timeout_ms=100_000)
    while await topic.committed("shop.process.watching", domain.topic) != {
        number: end for (_, number), end in targets.items()
    }:
        await asyncio.sleep(0)
    reacting.cancel()
    await asyncio.gather(reacting, return_exceptions=True)
    assert sent == []
    assert await sqlite_models.reader(totals).count() == 0

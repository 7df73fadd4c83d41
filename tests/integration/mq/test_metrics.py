"""A real broker process tells Prometheus what goes through it, as a replica does of its group."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.broker.metrics.table import BROKER_METRICS
from headrace_mq.broker.replicated_broker import ReplicatedBroker
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.cluster.records.memory import MemoryRecord
from headrace_mq.message import Message
from headrace_mq.settings import (
    BrokerSettings,
    ConsumerSettings,
    GroupSettings,
    ProducerSettings,
    StoreSettings,
)
from tests.integration.mq.metrics import scrape


@pytest.fixture
async def broker(start_broker: Any, free_port: Callable[[], int]) -> tuple[str, int]:
    port = free_port()
    started = await start_broker(metrics=f"127.0.0.1:{port}")
    return started.address, port


async def test_a_broker_tells_what_went_through_it_and_what_waits(broker: tuple[str, int]) -> None:
    address, port = broker
    async with Producer(address) as producer:
        await producer.create_topic("orders", 2)
        for number in range(10):
            await producer.send(Message(topic="orders", key=str(number), body=b"x"))
    settings = ConsumerSettings(start="earliest", heartbeat_ms=100, commit_interval_ms=20)
    async with Consumer(address, group="kitchen", topics=["orders"], settings=settings) as consumer:
        taken = 0
        while taken < 10:
            for record in await consumer.poll():
                consumer.ack(record)
                taken += 1
        async with asyncio.timeout(120):
            while (found := await scrape(port)).get(("group_members", "kitchen")) != 1 or any(
                found.get(("group_backlog_messages", "kitchen", "orders", queue)) != 0
                for queue in "01"
            ):
                pass
    assert found["messages_in_total", "orders"] == found["messages_out_total", "orders"] == 10
    assert found["append_seconds_count",] == 10
    assert found["flush_seconds_count",] >= 1
    assert found["fetch_seconds_count",] >= 1
    assert found["clients", "consumer"] == 1
    async with Producer(address) as producer:
        for number in range(4):
            await producer.send(Message(topic="orders", key=str(number), body=b"x"))
    found = await scrape(port)
    backlog = [found["group_backlog_messages", "kitchen", "orders", queue] for queue in "01"]
    assert sum(backlog) == 4
    assert found["group_oldest_seconds", "kitchen"] >= 0
    assert found["process_cpu_seconds_total",] > 0


async def test_a_restart_begins_the_counters_again_and_keeps_the_backlog(
    start_broker: Any, free_port: Callable[[], int], tmp_path: Path
) -> None:
    port = free_port()
    broker = await start_broker(tmp_path / "kept", metrics=f"127.0.0.1:{port}")
    async with Producer(broker.address) as producer:
        await producer.send(Message(topic="orders", body=b"x"))
    await broker.stop()
    await broker.start()
    found = await scrape(port)
    assert found["messages_in_total", "orders"] == 0
    assert found["topics",] == 1
    assert found["takes_messages",] == 1


async def test_every_metric_of_the_table_comes_from_some_broker(
    broker: tuple[str, int], tmp_path: Path, free_port: Callable[[], int]
) -> None:
    address, port = broker
    async with Producer(address) as producer:
        await producer.send(Message(topic="orders", body=b"x"))
    names = {name for name, *_ in await scrape(port)}
    known = {
        name.removeprefix("headrace_broker_"): one.name
        for one in BROKER_METRICS
        for name in one.series_names
    }
    assert names <= known.keys()
    silent = {one.name for one in BROKER_METRICS} - {known[name] for name in names}
    # With TLS, an archive, a group of consumers, a group of brokers, a topic of dead letters, or after ten minutes.
    assert all(
        name.removeprefix("headrace_broker_").startswith(
            ("acknowledges_alone", "archive", "certificate", "group_", "lead", "in_sync", "min_in", "record", "replica",
             "unclean", "failover", "dead_letters", "repaired", "unrepaired", "lost", "disk_days")
        )
        for name in silent
    ), silent  # fmt: skip


async def test_a_leader_tells_how_far_its_replicas_are(
    tmp_path: Path, free_port: Callable[[], int]
) -> None:
    record = MemoryRecord()
    brokers = []
    try:
        for name in "ab":
            settings = BrokerSettings(
                store=StoreSettings(directory=tmp_path / name, segment_bytes=64 * 1024),
                port=free_port(),
                group=GroupSettings(record="postgresql://unused/record"),
            )
            brokers.append(ReplicatedBroker(settings, record=record))
            await brokers[-1].start()
        patient = ProducerSettings(send_timeout_ms=60_000)
        async with Producer(",".join(one.address for one in brokers), patient) as producer:
            await producer.send(Message(topic="orders", body=b"x"))
        async with asyncio.timeout(120):
            while not all(len(one.figures().in_sync) == 2 for one in brokers):
                await asyncio.sleep(0)
        (leader,) = (one for one in brokers if one.figures().leads)
        (other,) = (one for one in brokers if one is not leader)
        assert leader.figures().leader == other.figures().leader == leader.figures().me
        assert other.figures().replicas == ()
        (replica,) = leader.figures().replicas
        assert (replica.name, replica.in_sync) == (other.figures().me, True)
    finally:
        for one in brokers[::-1]:
            await one.aclose()

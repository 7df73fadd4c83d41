"""Each metric that an alert rule or the dashboard names comes from a broker or an application at work."""

import asyncio
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from headrace.gateway.gateway import Gateway
from headrace.metrics.collector import AppMetrics
from headrace.stores.database.schema import ARCHIVE, upgrade
from headrace.testing.conformance.letters import letter
from headrace.testing.history import FakeClock
from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.metrics.collector import BrokerMetrics
from headrace_mq.broker.replicated_broker import ReplicatedBroker
from headrace_mq.broker.server import Broker
from headrace_mq.broker.topics.disk import FORECAST_MS_MIN
from headrace_mq.client.producer.producer import Producer
from headrace_mq.cluster.records.memory import MemoryRecord
from headrace_mq.message import Message, QueueRef
from headrace_mq.settings import ArchiveSettings, BrokerSettings, GroupSettings, StoreSettings
from samples.bank import app
from samples.bank.accounts import OpenAccount

ROOT = Path(__file__).parents[3]
FILES = ("deploy/prometheus/alerts.yml", "deploy/grafana/headrace.json")


def named() -> set[str]:
    """Every metric that the two files name."""
    texts = [(ROOT / file).read_text(encoding="utf-8") for file in FILES]
    return {name for text in texts for name in re.findall(r"\b(?:headrace|process)_[a-z_]+", text)}


def names_of(text: bytes) -> set[str]:
    families = text_string_to_metric_families(text.decode())
    return {sample.name for family in families for sample in family.samples}


async def of_a_broker(folder: Path, archive: str, certificate: Iterable[Path]) -> set[str]:
    """Of a broker with TLS, an archive, a group of consumers and dead letters."""
    own, key, ca = certificate
    settings = BrokerSettings(
        store=StoreSettings(directory=folder / "lone", segment_bytes=1 << 20),
        port=0, archive=ArchiveSettings(url=archive), tls_certificate=own, tls_key=key,
    )  # fmt: skip
    clock = FakeClock()
    async with Broker(settings) as broker:
        address = f"tls://{broker.address}?ca={ca}"
        async with AdminClient(address) as admin:
            await admin.create_topic("%DLQ%g", 1, retention="forever")
        async with Producer(address) as producer:
            await producer.send(Message(topic="orders", body=b"x"))
        assert broker.state is not None
        broker.state.offsets.commit("g", [(QueueRef("orders", 0), 0)])
        metrics = BrokerMetrics(settings, lambda: broker.state, lambda: None, clock)
        await metrics.text()
        clock.advance(FORECAST_MS_MIN)
        return names_of(await metrics.text())


async def of_a_group(folder: Path, free_port: Callable[[], int]) -> set[str]:
    """Of a leader with a replica."""
    record, brokers = MemoryRecord(), []
    try:
        for name in "ab":
            settings = BrokerSettings(
                store=StoreSettings(directory=folder / name, segment_bytes=1 << 20),
                port=free_port(),
                group=GroupSettings(record="postgresql://unused/record"),
            )
            brokers.append(ReplicatedBroker(settings, record=record))
            await brokers[-1].start()
        async with asyncio.timeout(60):
            while not any(one.figures().replicas for one in brokers):
                await asyncio.sleep(0)
        (leader,) = (one for one in brokers if one.figures().replicas)
        metrics = BrokerMetrics(settings, lambda: leader.state, leader.figures)
        return names_of(await metrics.text())
    finally:
        for one in brokers[::-1]:
            await one.aclose()


async def of_an_application() -> set[str]:
    """Of a bank with HTTP and a parked command."""
    async with app.run_local() as bank:
        gateway = Gateway(app, bank)
        metrics = AppMetrics(bank, gateway, lambda: 1.0)
        await bank.bus.execute(OpenAccount(account_id="ann", owner="Ann"))
        await bank.letters.store.park([letter("a", "c-1")])
        transport = httpx.ASGITransport(gateway)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            await client.get("/health")
        assert bank.watch is not None
        async with asyncio.timeout(60):
            while "headrace_app_alarm" not in (found := names_of(await metrics.text())):
                # The application looks too, and what it began earlier may end later.
                await bank.watch.alarms.look()
        return found


async def test_every_metric_of_rules_and_dashboard_comes_from_a_broker_or_an_application(
    tmp_path: Path, free_port: Callable[[], int], postgres_database: str, authority: Any
) -> None:
    await upgrade(postgres_database, tree=ARCHIVE)
    files = (*authority.issue(tmp_path, "127.0.0.1", "localhost"), authority.write(tmp_path))
    found = await of_a_broker(tmp_path, postgres_database, files)
    found |= await of_a_group(tmp_path, free_port)
    found |= await of_an_application()
    assert len(named()) > 50
    assert named() - found == set()

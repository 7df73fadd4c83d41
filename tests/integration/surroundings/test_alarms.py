"""Each metric that an alert rule or the dashboard names comes from a broker or an application at work.

Where these are healthy, no rule raises an alarm over what they answer.
"""

import asyncio
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from headrace.alarms.promql.evaluate import Expression
from headrace.alarms.promql.history import Figure, FigureHistory
from headrace.alarms.rules.table import RULES
from headrace.alarms.targets import figures_of
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
# What they say depends on the machine's disk and speed: they are evaluated, and may hold.
OF_THE_MACHINE = {
    "HeadraceAppendSlow", "HeadraceCommitSlow", "HeadraceDiskDaysLeft", "HeadraceDiskNearlyFull",
    "HeadraceFlushSlow", "HeadraceReplicaLag",
}  # fmt: skip
# There only while something is wrong.
OF_WHAT_FAILS = {"headrace_app_alarm", "headrace_app_parked_oldest_seconds"}
DAY_S = 86_400.0


def named() -> set[str]:
    """Every metric that the two files name."""
    texts = [(ROOT / file).read_text(encoding="utf-8") for file in FILES]
    return {name for text in texts for name in re.findall(r"\b(?:headrace|process)_[a-z_]+", text)}


def names_of(*texts: bytes) -> set[str]:
    return {
        sample.name
        for text in texts
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


async def of_a_broker(folder: Path, archive: str, certificate: Iterable[Path]) -> bytes:
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
            await admin.create_topic("orders", 1)
        async with Producer(address) as producer:
            await producer.send(Message(topic="orders", body=b"x"))
        assert broker.state is not None
        broker.state.offsets.commit("g", [(QueueRef("orders", 0), 1)])
        metrics = BrokerMetrics(settings, lambda: broker.state, lambda: None, clock)
        await metrics.text()
        clock.advance(FORECAST_MS_MIN)
        return await metrics.text()


async def of_a_group(folder: Path, free_port: Callable[[], int]) -> bytes:
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
            while not (leading := [one for one in brokers if in_sync(one)]):
                await asyncio.sleep(0)
        (leader,) = leading
        metrics = BrokerMetrics(settings, lambda: leader.state, leader.figures)
        return await metrics.text()
    finally:
        for one in brokers[::-1]:
            await one.aclose()


def in_sync(broker: ReplicatedBroker) -> bool:
    """Whether it leads, and its replica has all."""
    replicas = broker.figures().replicas
    return bool(replicas) and all(one.in_sync for one in replicas)


async def of_an_application(*, parked: bool) -> bytes:
    """Of a bank with HTTP, and with a parked command or without one."""
    async with app.run_local() as bank:
        gateway = Gateway(app, bank)
        metrics = AppMetrics(bank, gateway, lambda: time.time() + 365 * DAY_S)
        opened = OpenAccount(account_id="ann", owner="Ann")
        await bank.bus.execute(opened, wait_for=list(app.projections.values()))
        if parked:
            await bank.letters.store.park([letter("a", "c-1")])
        transport = httpx.ASGITransport(gateway)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            await client.get("/health")
        assert bank.watch is not None
        async with asyncio.timeout(60):
            await bank.watch.alarms.look()
            while parked and "headrace_app_alarm" not in names_of(await metrics.text()):
                # The application looks too, and what it began earlier may end later.
                await bank.watch.alarms.look()
        return await metrics.text()


async def of_brokers(
    folder: Path, free_port: Callable[[], int], database: str, authority: Any
) -> tuple[bytes, bytes]:
    """Of a lone broker, and of the leader of a group."""
    await upgrade(database, tree=ARCHIVE)
    files = (*authority.issue(folder, "127.0.0.1", "localhost"), authority.write(folder))
    return await of_a_broker(folder, database, files), await of_a_group(folder, free_port)


async def test_every_metric_of_rules_and_dashboard_comes_from_a_broker_or_an_application(
    tmp_path: Path, free_port: Callable[[], int], postgres_database: str, authority: Any
) -> None:
    brokers = await of_brokers(tmp_path, free_port, postgres_database, authority)
    found = names_of(*brokers, await of_an_application(parked=True))
    assert len(named()) > 50
    assert named() - found == set()


async def test_no_rule_raises_an_alarm_where_brokers_and_applications_are_healthy(
    tmp_path: Path, free_port: Callable[[], int], postgres_database: str, authority: Any
) -> None:
    lone, leader = await of_brokers(tmp_path, free_port, postgres_database, authority)
    texts = {
        ("headrace-broker", "lone:9464"): lone,
        ("headrace-broker", "leader:9464"): leader,
        ("headrace-run", "bank:9464"): await of_an_application(parked=False),
    }
    rules = {name: Expression(rule.expression) for name, rule in RULES.items()}
    reach = {name: DAY_S for rule in rules.values() for name in rule.reach_s}
    assert reach.keys() - {"up"} - names_of(*texts.values()) <= OF_WHAT_FAILS
    history, now_s = FigureHistory(reach, series_max=10_000), time.time()
    for moment_s in (now_s - 60, now_s):  # two, because rates and changes need two
        for (job, instance), text in texts.items():
            figures = [Figure("up", {}, 1.0), *figures_of(text.decode())]
            history.add(moment_s, job, instance, figures)
    held = {name: rule.at(history, now_s) for name, rule in rules.items()}
    # Not a number is no alarm: a share of what did not happen.
    alarms = {
        name: raised
        for name, vector in held.items()
        if (raised := {labels: value for labels, value in vector.items() if value == value})
    }
    assert {name: each for name, each in alarms.items() if name not in OF_THE_MACHINE} == {}

"""The drill of docs/kafka.md with the demo's data: from the built-in queue to a real Kafka, and back."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Settings
from headrace.testing.conformance.subscriptions import fresh
from headrace.transports.kafka.address import KafkaAddress
from headrace.transports.kafka.topic_writer import KafkaTopicWriter
from headrace.transports.kafka.transport import KafkaTransport
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns
from headrace_mq.testing.conformance.deployment import ProcessDeployment
from samples.bank import app
from samples.bank.accounts import Deposit
from samples.bank.demo.folder import Folder
from samples.bank.read_models import balances
from samples.kafka import KafkaBrokers

ROOT = Path(__file__).parents[2]
NAMES = sorted(app.projections)

pytestmark = pytest.mark.timeout(600)


def call(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """What a demo leaves behind."""
    folder = Folder(tmp_path / "d")
    found = json.loads(call("samples.bank.demo", "--data", str(folder.path)).splitlines()[-1])
    assert found["mismatches_live"] == 0
    return folder


@pytest.fixture
def deployment(folder: Folder) -> Iterator[ProcessDeployment]:
    deployment = ProcessDeployment(folder.broker)
    deployment.start()
    yield deployment
    deployment.close()


def copy(source: str, target: str, folder: Folder) -> Any:
    options = ("--app", "samples.bank:app", "--read-models", folder.read_models, "--json")
    return json.loads(call("headrace", "topic", "copy", source, target, *options))


def verify(broker: str, folder: Folder) -> None:
    options = ("--app", "samples.bank:app", "--broker", broker)
    databases = ("--event-store", folder.event_store, "--read-models", folder.read_models)
    call("headrace", "projection", "verify", *NAMES, *options, *databases)


def read_by_spark(broker: str, folder: Folder, out: Path) -> None:
    """Seals, exports and follows what is at the cluster; each says how much it read."""
    app = ("--app", "samples.bank:app", "--broker", broker)
    store = ("--event-store", folder.event_store)
    sealed = json.loads(call("headrace", "history", "seal", str(out / "h"), *app, *store, "--json"))
    assert sealed["differences"] == []
    exported = call("headrace", "events", "export", str(out / "e"), *app, *store, "--json")
    assert sum(json.loads(exported)["events"].values()) > 3_000
    models = ("--read-models", f"sqlite:///{out}/followed.db")
    follow = ("projection", "follow", balances.name, "--available-now")
    assert "headrace follow ready" in call("headrace", *follow, *app, *store, *models)


async def deposit(broker: str, folder: Folder, name: str) -> None:
    """One more on an account; live rows have it soon, so readers go on."""
    settings = Settings(
        broker=broker, event_store=folder.event_store, read_models=folder.read_models
    )
    async with app.run(settings) as running, app.client(settings) as bus:
        before = await anext(aiter(running.read(balances).rows()))
        more = Deposit(account_id=before.account_id, transaction_id=name, amount=100)
        assert (await bus.execute(more)).status == "executed"
        async with asyncio.timeout(60):
            while True:
                row = await running.read(balances).get(before.account_id)
                if row is not None and row.balance == before.balance + 100:
                    break
                await asyncio.sleep(0)
            assert running.watch is not None
            while any(lag.messages for lag in await running.watch.lags.measure()):
                await asyncio.sleep(0)


async def test_the_demo_moves_to_kafka_and_back(
    empty_broker: KafkaBrokers, folder: Folder, deployment: ProcessDeployment, tmp_path: Path
) -> None:
    there = await asyncio.to_thread(copy, deployment.address, empty_broker.address, folder)
    assert there["copied"] > 8_000
    assert set(NAMES) < set(there["readers"])
    await deposit(empty_broker.address, folder, "at Kafka")
    await asyncio.to_thread(verify, empty_broker.address, folder)
    await asyncio.to_thread(read_by_spark, empty_broker.address, folder, tmp_path)
    back = await asyncio.to_thread(copy, empty_broker.address, deployment.address, folder)
    # A command and its event.
    assert back["copied"] == 2
    await deposit(deployment.address, folder, "at home")
    await asyncio.to_thread(verify, deployment.address, folder)


async def test_a_group_of_a_real_cluster_goes_on_at_its_offsets(one_broker: KafkaBrokers) -> None:
    topic, group = fresh("t"), fresh("g")
    address = KafkaAddress.parse(f"{one_broker.address}?group.protocol=consumer")
    messages = Columns([], [], [], [b"0", b"1", b"2"], [])

    def write() -> None:
        with KafkaTopicWriter(address) as writer:
            writer.ensure(topic, queues=1, forever=True)
            writer.write(QueueRef(topic, 0), messages)
            writer.commit(group, topic, {0: 2})
            assert writer.committed(group, topic) == {0: 2}

    def commit() -> None:
        with KafkaTopicWriter(address) as writer:
            writer.commit(group, topic, {0: 0})

    await asyncio.to_thread(write)
    transport = KafkaTransport(address)
    await transport.start()
    subscription = await transport.subscribe(group, [topic])
    assert [each.offset for each in await subscription.poll()] == [2]
    with pytest.raises(Exception, match="so that the group has no members"):
        await asyncio.to_thread(commit)
    await subscription.aclose()
    await transport.aclose()

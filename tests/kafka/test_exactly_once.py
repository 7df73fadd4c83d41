"""The bank over three brokers: services and leaders are killed, and each command has its effect once."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from headrace.settings import Settings
from samples.kafka import KafkaBrokers
from tests.integration.exactly_once.conftest import LOOKS, Bank, History

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[2]
KILLS = 20


class Service:
    """`headrace run` in a process that can be killed."""

    def __init__(self, settings: Settings, log: Path) -> None:
        self._command = [
            Path(sys.executable).with_name("headrace"), "run", "samples.bank:app",
            "--broker", str(settings.broker), "--event-store", settings.event_store,
            "--read-models", settings.read_models,
        ]  # fmt: skip
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": str(ROOT)}
            )

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


@contextmanager
def serving(settings: Settings, log: Path) -> Iterator[Service]:
    service = Service(settings, log)
    service.start()
    try:
        yield service
    finally:
        service.kill()


def leader(brokers: KafkaBrokers, topic: str) -> int:
    """Returns the broker that leads a topic's first partition."""
    admin = AdminClient({"bootstrap.servers": brokers.address.removeprefix("kafka://")})
    number: int = admin.list_topics(topic, timeout=30).topics[topic].partitions[0].leader
    return number


async def settled(bank: Bank, settings: Settings) -> History:
    """Returns what has happened as soon as it is what the bank expects, and rows show it."""
    attempt = 0
    async with asyncio.timeout(120):
        while True:
            history = await History.read(bank.app, settings)
            if history.happened == bank.expected and not history.faults():
                return history
            attempt += 1
            await LOOKS.pause(attempt)


@pytest.fixture
def three(three_brokers: KafkaBrokers, tmp_path: Path) -> Iterator[KafkaBrokers]:
    """Three brokers without topics: the bank's names are those of another test, too."""
    with KafkaBrokers(tmp_path / "kafka", brokers=3, jars=three_brokers.jars) as brokers:
        yield brokers


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_each_command_has_its_effect_once(
    three: KafkaBrokers, tmp_path: Path, protocol: str
) -> None:
    options = f"group.protocol={protocol}"
    if protocol == "classic":
        options += "&session.timeout.ms=3000"
    settings = Settings(
        broker=f"{three.address}?{options}",
        event_store=f"sqlite:///{tmp_path}/events.db",
        read_models=f"sqlite:///{tmp_path}/read.db",
        result_timeout_ms=5_000,
        result_resend_ms=1_000,
    )
    bank = Bank()
    log = tmp_path / "service.log"
    with serving(settings, log) as service:
        async with bank.app.client(settings) as bus:
            await bank.begin(bus)
            for number in range(KILLS // 2):
                going = asyncio.create_task(bank.go_on(bus, number, KILLS // 2))
                if number % 2:
                    await asyncio.to_thread(service.kill)
                    service.start()
                else:
                    node = await asyncio.to_thread(leader, three, "bank.events")
                    await asyncio.to_thread(three.kill, node)
                    three.start_one(node)
                    await asyncio.to_thread(three.wait)
                await going
        history = await settled(bank, settings)
    assert history.happened == bank.expected
    assert history.faults() == []

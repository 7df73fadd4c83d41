"""A broker in its own process, one Spark session for all tests, and an application with a history."""

import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace._domain.stream import EventStream, Rejection
from headrace._projecting.projection import Projection
from headrace._projecting.read_models import ReadModels
from headrace._projecting.runner import ProjectionRunner
from headrace.settings import Settings
from headrace.spark.session import local_session
from headrace.stores.memory import MemoryEventStore
from headrace.stores.schema import upgrade
from headrace.transports.queue import QueueTransport
from headrace_mq.client.producer import Producer
from headrace_mq.message import Message
from headrace_mq.spark.reader import fetch_ranges

TOPIC = "ledger.events"
NOW = datetime(2026, 1, 31, 23, 30, tzinfo=UTC)

BROKER = """
import sys
from pathlib import Path
import structlog
from headrace_mq.broker.server import run
from headrace_mq.settings import BrokerSettings, StoreSettings
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
store = StoreSettings(directory=Path(sys.argv[1]), flush="interval", segment_bytes=1 << 22)
run(BrokerSettings(store=store, port=int(sys.argv[2])), ready=lambda address: print(address, flush=True))
"""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one session of the suite."""
    session = local_session("headrace-tests", cores=2, driver_memory="1g")
    yield session
    session.stop()


class BrokerProcess:
    """A broker that can be stopped, killed and started again on the same address."""

    def __init__(self, directory: Path, port: int) -> None:
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None
        self.address = f"127.0.0.1:{port}"
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", BROKER, str(self._directory), self.address.rpartition(":")[2]],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        assert self.address, "the broker did not start"

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.communicate(timeout=50)
            self._process = None


@pytest.fixture
def broker(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[BrokerProcess]:
    """A new, empty broker."""
    process = BrokerProcess(tmp_path / "broker", free_port())
    yield process
    process.stop()


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The application's module, importable here; Spark's workers find it by its folder."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import ledger_app

    yield ledger_app
    sys.modules.pop("ledger_app")


def stream(aggregate_id: str, version: int | None, *events: Any) -> EventStream:
    rejected = Rejection(
        error="No", sentence="no", command_name="X", command_version=1, command_data={}
    )
    return EventStream(
        aggregate_type="Ledger",
        aggregate_id=aggregate_id,
        version=version,
        command_id=f"{aggregate_id}-{version}",
        correlation_id=f"{aggregate_id}-{version}",
        recorded_at=NOW + timedelta(seconds=version or 0, microseconds=7),
        events=events,
        rejection=rejected if version is None else None,
    )


@pytest.fixture
def make_stream() -> Callable[..., EventStream]:
    """Makes one stream."""
    return stream


@pytest.fixture
def make_history(ledger: Any) -> Callable[..., list[EventStream]]:
    """Makes streams of many aggregates: bookings, notes, ends, rejections; same seed, same history."""

    def make(aggregates: int, versions: int, *, first: int = 1, seed: int = 7) -> list[EventStream]:
        chance = random.Random(seed)
        history: list[EventStream] = []
        for version in range(first, first + versions):
            for number in range(aggregates):
                events: list[Any] = [
                    ledger.Booked(partner=f"p{chance.randrange(9)}", amount=chance.randint(-99, 99))
                ]
                if chance.random() < 0.2:
                    events.append(ledger.Noted(text=f"note {version} 'ü'"))
                if chance.random() < 0.05:
                    events.append(ledger.Ended())
                history.append(stream(f"a{number}", version, *events))
                if chance.random() < 0.05:
                    history.append(stream(f"a{number}", None))
        return history

    return make


@pytest.fixture
async def publish(ledger: Any, broker: BrokerProcess) -> Any:
    """Appends streams to the event topic, as the framework's publisher does."""
    serializer = ledger.app.serializer

    async def send(streams: Sequence[EventStream]) -> None:
        async with Producer(broker.address) as producer:
            await producer.create_topic(TOPIC, queues=3, retention="forever")
            await producer.send_many(
                [
                    Message(
                        topic=TOPIC,
                        key=one.aggregate_id,
                        tag=one.aggregate_type,
                        headers={"kind": "rejection" if one.version is None else "events"},
                        body=serializer.encode_stream(one),
                    )
                    for one in streams
                ]
            )

    return send


@pytest.fixture
async def catch_up_live(ledger: Any, broker: BrokerProcess) -> Any:
    """Runs the live projection until it has applied everything the topic holds."""

    async def run(url: str, projection: Projection[Any]) -> None:
        ranges = fetch_ranges(broker.address, [TOPIC])
        read_models = ReadModels(url)
        await upgrade(url)
        await read_models.ensure(projection)
        transport = QueueTransport(broker.address)
        await transport.start()
        try:
            runner = ProjectionRunner(
                projection=projection,
                app_name=ledger.app.name,
                read_models=read_models,
                store=MemoryEventStore(),
                transport=transport,
                serializer=ledger.app.serializer,
                settings=Settings(),
            )
            await runner.run_until(
                {(one.topic, one.queue_id): one.end for one in ranges if one.end},
                timeout_ms=100_000,
            )
        finally:
            await transport.aclose()
            await read_models.aclose()

    return run


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A new database of read models in a file."""
    return f"sqlite:///{tmp_path / 'read.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def read_models_url(request: pytest.FixtureRequest, sqlite_url: str) -> str:
    """A new database of read models, of each kind."""
    if request.param == "sqlite":
        return sqlite_url
    url: str = request.getfixturevalue("postgres_database")
    return url

"""A broker in its own process, one Spark session for all tests, and an application with a history."""

import os
import random
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from headrace.domain.stream import EventStream, Rejection
from headrace.projections.definition.projection import Projection
from headrace.projections.runner import ProjectionRunner
from headrace.projections.tables.read_models import ReadModels
from headrace.settings import Settings
from headrace.spark.session import local_session
from headrace.stores.database.schema import upgrade
from headrace.stores.memory.store import MemoryEventStore
from headrace.transports.queue import QueueTransport
from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message
from headrace_mq.spark.reader import fetch_ranges
from tests.forked_broker import ForkedBroker
from tests.spark_classes import QUICK_JAVA, java_options

TOPIC = "ledger.events"
NOW = datetime(2026, 1, 31, 23, 30, tzinfo=UTC)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one session of the suite."""
    with pytest.MonkeyPatch.context() as patched:
        # Java keeps it: with this Python, Spark looks for data sources.
        patched.setenv("PYSPARK_PYTHON", sys.executable)
        session = local_session("headrace-tests", cores=2, driver_memory="1g")
    yield session
    session.stop()


class BrokerProcess:
    """A broker that can be stopped and started again on the same address."""

    def __init__(self, directory: Path, port: int) -> None:
        self._directory = directory
        self._process: ForkedBroker | None = None
        self.address = f"127.0.0.1:{port}"
        self.start()

    def start(self) -> None:
        port = int(self.address.rpartition(":")[2])
        self._process = ForkedBroker(self._directory, port, flush="interval", segment_bytes=1 << 22)
        self.address = self._process.address

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None


class Relay:
    """Stands between a client and a server, and can be away.

    Args:
        connect: opens a connection to the server.
    """

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._refusals = 0
        self.refused = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self, refusals: int) -> None:
        """Ends every connection, and refuses so many before it lets one through again."""
        with self._lock:
            self._refusals = refusals
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut(0)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with self._lock:
                    refuse = self._refusals > 0
                    self._refusals -= refuse
                    self.refused += refuse
                if refuse:
                    client.close()
                    continue
                server = self._connect()
                with self._lock:
                    self._open |= {client, server}
                for source, target in ((client, server), (server, client)):
                    threading.Thread(
                        target=self._pass_on, args=(source, target), daemon=True
                    ).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._open.discard(source)
        source.close()


class Cluster:
    """A standalone master and two workers on loopback, each with one core.

    Args:
        folder: where the workers keep what they need.
    """

    settings = (
        "spark.driver.host=127.0.0.1",
        "spark.driver.bindAddress=127.0.0.1",
        "spark.executor.cores=1",
        "spark.executor.memory=512m",
        f"spark.executor.extraJavaOptions={java_options()}",
    )

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[str]] = []
        self.address = self._start("master.Master", r"Starting Spark master at (\S+)")
        for number in range(2):
            options = ("--cores", "1", "--memory", "600m", "--work-dir", str(folder / str(number)))
            self._start("worker.Worker", "(registered with master)", *options, self.address)

    def executor_at(self, file: Path) -> int:
        """Returns the executor of which a Python worker has a file open."""
        for worker in self._processes[1:]:
            for executor in children(worker.pid):
                if any(has_open(process, file) for process in descendants(executor)):
                    return executor
        raise AssertionError(f"no executor has {file} open")

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(60)

    def _start(self, kind: str, ready: str, *options: str) -> str:
        log = self._folder / f"{len(self._processes)}.log"
        home = Path(pyspark.__file__).parent
        with log.open("w") as output:
            process = subprocess.Popen(
                [home / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}",
                 "--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *options],
                stdout=output, stderr=output, text=True,
                env=os.environ | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1",
                                  "SPARK_DAEMON_MEMORY": "256m",
                                  "SPARK_DAEMON_JAVA_OPTS": java_options()},
            )  # fmt: skip
        self._processes.append(process)
        while not (found := re.search(ready, log.read_text(encoding="utf-8"))):
            assert process.poll() is None, log.read_text(encoding="utf-8")
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
        return found[1]


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def descendants(pid: int) -> Iterator[int]:
    for child in children(pid):
        yield child
        yield from descendants(child)


def has_open(pid: int, file: Path) -> bool:
    return any(link.exists() and link.samefile(file) for link in Path(f"/proc/{pid}/fd").iterdir())


class ConnectServer:
    """A Spark Connect server on loopback, with two cores.

    Args:
        folder: where it says what it does.
    """

    def __init__(self, folder: Path) -> None:
        log, home = folder / "connect.log", Path(pyspark.__file__).parent
        with log.open("w") as output:
            self._process = subprocess.Popen(
                [home / "bin" / "spark-submit", "--master", "local[2]",
                 "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
                 "--driver-memory", "600m", "--driver-java-options", QUICK_JAVA,
                 "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1",
                 "--conf", "spark.driver.bindAddress=127.0.0.1",
                 "--conf", "spark.connect.grpc.binding.address=127.0.0.1",
                 "--conf", "spark.connect.grpc.binding.port=0", "spark-internal"],
                stdout=output, stderr=output, cwd=folder,
                env=os.environ | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1",
                                  "SPARK_CONNECT_MODE": "0", "PYSPARK_PYTHON": sys.executable},
            )  # fmt: skip
        started = r"Spark Connect server started at: (\S+)"
        while not (found := re.search(started, log.read_text(encoding="utf-8"))):
            assert self._process.poll() is None, log.read_text(encoding="utf-8")
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.1)
        self.url = f"sc://{found[1]}"

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)


@pytest.fixture
def connect_server(tmp_path: Path) -> Iterator[ConnectServer]:
    """A Spark Connect server of the test's own."""
    made = ConnectServer(tmp_path)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The one standalone cluster of the suite."""
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.stop()


@pytest.fixture
def relay_to() -> Iterator[Callable[..., Relay]]:
    """Makes relays, to an address or to the socket of a file."""
    made: list[Relay] = []

    def make(place: str) -> Relay:
        def connect() -> socket.socket:
            if "/" not in place:
                host, _, port = place.rpartition(":")
                return socket.create_connection((host, int(port)))
            opened = socket.socket(socket.AF_UNIX)
            opened.connect(place)
            return opened

        made.append(Relay(connect))
        return made[-1]

    yield make
    for relay in made:
        relay.close()


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


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The application's module, importable here; Spark's workers find it by its folder."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import declared_app

    yield declared_app
    sys.modules.pop("declared_app")


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
def topic_ends(broker: BrokerProcess) -> Callable[[], dict[tuple[str, int], int]]:
    """Tells where each queue of the event topic ends."""

    def ask() -> dict[tuple[str, int], int]:
        ranges = fetch_ranges(broker.address, [TOPIC])
        return {(one.topic, one.queue_id): one.end for one in ranges}

    return ask


@pytest.fixture
def child_environment() -> dict[str, str]:
    """The environment of a process that imports the applications of this folder."""
    paths = [str(Path(__file__).parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


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
def rows_of() -> Callable[..., Awaitable[dict[str, Any]]]:
    """Reads the rows of a generation by key, of the live one by default."""

    async def read(
        url: str, projection: Projection[Any], generation: int | None = None
    ) -> dict[str, Any]:
        read_models = ReadModels(url)
        try:
            reader = read_models.reader(projection, generation=generation)
            return {getattr(row, projection.key): row async for row in reader.rows()}
        finally:
            await read_models.aclose()

    return read


@pytest.fixture
def state_of() -> Callable[..., Awaitable[Any]]:
    """Reads what is stored about a projection."""

    async def read(url: str, projection: Projection[Any]) -> Any:
        read_models = ReadModels(url)
        try:
            return await read_models.state(projection.name)
        finally:
            await read_models.aclose()

    return read


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

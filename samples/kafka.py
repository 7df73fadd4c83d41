"""
A real Kafka on this machine, for trying and for tests: one or three brokers in KRaft's combined mode.

    python -m samples.kafka jars                        fetches Kafka's jars into var/kafka, once
    python -m samples.kafka run --brokers 3 --port 9092  runs brokers until Ctrl-C

The jars come from Maven's central repository through the Ivy that PySpark brings. Brokers listen on
127.0.0.1 without a login, with small heaps: this is no cluster for production.
"""

import argparse
import contextlib
import shutil
import signal
import socket
import subprocess
import threading
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Final

__all__ = ["FOLDER", "VERSION", "KafkaBrokers", "KafkaMissing", "broker_settings", "fetch", "jars"]

VERSION: Final = "4.3.1"
FOLDER: Final = Path("var/kafka")
HOST: Final = "127.0.0.1"
# Enough for the tests; three brokers fit next to Spark and PostgreSQL on a small machine.
_HEAP_MB: Final = 384
# A broker starts in five seconds on an idle core; a busy machine takes its time.
_START_S_MAX: Final = 120
_STOP_S_MAX: Final = 30
_FETCH_S_MAX: Final = 900
_RETRY_S: Final = 0.2
_IVY: Final = f"""<ivy-module version="2.0">
<info organisation="headrace" module="kafka"/><configurations><conf name="default"/></configurations>
<dependencies>
<dependency org="org.apache.kafka" name="kafka_2.13" rev="{VERSION}" conf="default->default"/>
<dependency org="org.apache.logging.log4j" name="log4j-slf4j-impl" rev="2.25.4" conf="default->default"/>
</dependencies></ivy-module>
"""


class KafkaMissing(Exception):
    """Kafka cannot be had here; the sentence says what to do."""


def jars(folder: Path = FOLDER) -> Path:
    """Returns the folder with Kafka's jars.

    Raises:
        KafkaMissing: they were not fetched yet.
    """
    found = folder / f"jars-{VERSION}"
    if not found.is_dir():
        raise KafkaMissing(f"Kafka's jars are not in {found}: run 'make kafka' once")
    return found


def fetch(folder: Path = FOLDER) -> Path:
    """Fetches Kafka's jars unless they are there, about 45 MB, and returns their folder.

    Raises:
        KafkaMissing: there is no Java or no PySpark, or the repository does not answer.
    """
    with contextlib.suppress(KafkaMissing):
        return jars(folder)
    spark = find_spec("pyspark")
    if spark is None or not spark.submodule_search_locations:
        raise KafkaMissing("PySpark brings what fetches Kafka: pip install 'headrace[spark]'")
    folder = folder.absolute()
    target, coming = folder / f"jars-{VERSION}", folder / f"coming-{uuid.uuid4().hex}"
    coming.mkdir(parents=True)
    (coming / "ivy.xml").write_text(_IVY, encoding="utf-8")
    done = subprocess.run(
        [
            java(), "-cp", f"{spark.submodule_search_locations[0]}/jars/*", "org.apache.ivy.Main",
            "-cache", str(folder / "ivy"), "-ivy", str(coming / "ivy.xml"), "-confs", "default",
            "-retrieve", f"{coming}/jars/[artifact]-[revision](-[classifier]).[ext]",
        ],
        capture_output=True, text=True, check=False, timeout=_FETCH_S_MAX,
    )  # fmt: skip
    try:
        if done.returncode or not any((coming / "jars").glob("kafka_2.13-*.jar")):
            (folder / "fetch.log").write_text(done.stdout + done.stderr, encoding="utf-8")
            raise KafkaMissing(
                "Kafka's jars cannot be had from https://repo1.maven.org/maven2"
                f" ({folder / 'fetch.log'} says why): run 'make kafka' where that is reachable,"
                f" and copy {target} from there"
            )
        # Two that fetch at once bring the same: the first stays.
        with contextlib.suppress(OSError):
            (coming / "jars").rename(target)
    finally:
        shutil.rmtree(coming)
    return target


def java() -> str:
    """Returns the program that runs Java.

    Raises:
        KafkaMissing: there is none.
    """
    found = shutil.which("java")
    if found is None:
        raise KafkaMissing("Kafka needs Java 17: install it, so that 'java -version' answers")
    return found


def broker_settings(
    node: int, ports: Sequence[tuple[int, int]], data: Path, *, min_insync: int = 0
) -> dict[str, str]:
    """Returns the settings of one broker.

    Args:
        node: its number, from 1.
        ports: of each broker: for clients, and for the brokers' own votes.
        data: the folder of its log.
        min_insync: copies before a message is acknowledged, by default; 0: all but one, at least one.
    """
    copies = min(3, len(ports))
    insync = min_insync or max(1, copies - 1)
    client, votes = ports[node - 1]
    return {
        "process.roles": "broker,controller",
        "node.id": str(node),
        "controller.quorum.voters": ",".join(
            f"{number}@{HOST}:{port}" for number, (_, port) in enumerate(ports, 1)
        ),
        "listeners": f"PLAINTEXT://{HOST}:{client},CONTROLLER://{HOST}:{votes}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{client}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "default.replication.factor": str(copies),
        "min.insync.replicas": str(insync),
        "offsets.topic.replication.factor": str(copies),
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": str(insync),
        "share.coordinator.state.topic.replication.factor": str(copies),
        "share.coordinator.state.topic.min.isr": str(insync),
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "200",
        "group.consumer.session.timeout.ms": "6000",
        "group.consumer.heartbeat.interval.ms": "500",
        # A dead broker's partitions have another leader after three seconds.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
    }


class KafkaBrokers:
    """Brokers that end with their block; their data stays in the folder.

    Args:
        folder: for data, settings and logs.
        brokers: how many: 1 or 3.
        port: of the first broker, the others follow; 0: any free ones.
        min_insync: see `broker_settings`.
        jars: a folder with Kafka's jars.
    """

    def __init__(
        self, folder: Path, *, brokers: int = 1, port: int = 0, min_insync: int = 0, jars: Path
    ) -> None:
        self._folder = folder.absolute()
        self._jars = jars.absolute()
        clients = [port + number for number in range(brokers)] if port else _free_ports(brokers)
        self._ports = list(zip(clients, _free_ports(brokers), strict=True))
        self._min_insync = min_insync
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def jars(self) -> Path:
        """The folder with Kafka's jars."""
        return self._jars

    @property
    def address(self) -> str:
        """The setting `broker`: `kafka://127.0.0.1:PORT,…`."""
        return "kafka://" + ",".join(f"{HOST}:{port}" for port, _ in self._ports)

    @property
    def nodes(self) -> list[int]:
        """The numbers of all brokers, from 1, whether they run or not."""
        return list(range(1, len(self._ports) + 1))

    def start(self) -> None:
        """Starts all brokers and waits until they answer.

        Raises:
            KafkaMissing: one does not start; the sentence names its log.
        """
        identity = self._folder / "cluster.id"
        if not identity.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            drawn = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            identity.write_text(drawn.replace("-", "A"), encoding="utf-8")
        for node in self.nodes:
            settings = broker_settings(
                node, self._ports, self._folder / f"data-{node}", min_insync=self._min_insync
            )
            lines = "".join(f"{name}={value}\n" for name, value in settings.items())
            self._file(node, "properties").write_text(lines, encoding="utf-8")
            asked = ["format", "--ignore-formatted", "--cluster-id", identity.read_text("utf-8")]
            config = str(self._file(node, "properties"))
            made = self._java("kafka.tools.StorageTool", [*asked, "--config", config], node)
            if made.wait(_START_S_MAX):
                raise KafkaMissing(f"Kafka's storage is not made: see {self._file(node, 'log')}")
        for node in self.nodes:
            self.start_one(node)
        self.wait()

    def start_one(self, node: int) -> None:
        """Starts a broker that does not run, on its data; `wait` waits for it."""
        config = str(self._file(node, "properties"))
        self._running[node] = self._java("kafka.Kafka", [config], node)

    def wait(self) -> None:
        """Waits until all brokers that run are in the cluster.

        Raises:
            KafkaMissing: one has ended, or they take too long; the sentence names a log.
        """
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        servers = self.address.removeprefix("kafka://")
        client = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        deadline = time.monotonic() + _START_S_MAX
        while time.monotonic() < deadline:
            for node, process in self._running.items():
                if process.poll() is not None:
                    raise KafkaMissing(f"Kafka has ended: {self._file(node, 'log')} says why")
            with contextlib.suppress(KafkaException):
                if set(self._running) <= set(client.list_topics(timeout=5).brokers):
                    return
            time.sleep(_RETRY_S)
        raise KafkaMissing(f"Kafka takes over {_START_S_MAX} s to start: see {self._folder}")

    def signal(self, node: int, number: signal.Signals) -> None:
        """Sends a signal to a broker, such as SIGSTOP."""
        self._running[node].send_signal(number)

    def kill(self, node: int) -> None:
        """Kills a broker with SIGKILL, and returns when it is gone."""
        process = self._running.pop(node)
        process.kill()
        process.wait()

    def close(self) -> None:
        """Stops all brokers; those that do not stop are killed."""
        for process in self._running.values():
            process.terminate()
        deadline = time.monotonic() + _STOP_S_MAX
        for node in list(self._running):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._running[node].wait(max(0.0, deadline - time.monotonic()))
            self.kill(node)

    def __enter__(self) -> "KafkaBrokers":
        """Starts them."""
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_of: object) -> None:
        """Stops them."""
        self.close()

    def _file(self, node: int, kind: str) -> Path:
        return self._folder / f"broker-{node}.{kind}"

    def _java(self, program: str, arguments: list[str], node: int) -> subprocess.Popen[bytes]:
        # One compiler and one collector: what runs for minutes on two cores gains nothing from more.
        small = [f"-Xmx{_HEAP_MB}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        logged = "-Dorg.apache.logging.log4j.level=WARN"
        command = [java(), *small, logged, "-cp", f"{self._jars}/*", program, *arguments]
        with self._file(node, "log").open("ab") as log:
            # A group of its own: Ctrl-C ends brokers through `close`, in order.
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        holders = [held.enter_context(socket.socket()) for _ in range(count)]
        for holder in holders:
            holder.bind((HOST, 0))
        return [int(holder.getsockname()[1]) for holder in holders]


def main() -> None:
    """Fetches Kafka's jars, and with `run` runs brokers until a signal."""
    parser = argparse.ArgumentParser(prog="python -m samples.kafka", description=__doc__)
    parser.add_argument("work", choices=["jars", "run"])
    parser.add_argument("--brokers", type=int, choices=[1, 3], default=1)
    parser.add_argument("--port", type=int, default=9092, help="of the first; 0: free ones")
    parser.add_argument("--data", type=Path, default=FOLDER / "data")
    parser.add_argument("--min-insync", type=int, default=0, help="0: all copies but one")
    told = parser.parse_args()
    try:
        found = fetch()
        if told.work == "jars":
            print(f"Kafka {VERSION} is in {found}")
            return
        ended = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: ended.set())
        data = told.data / f"{told.brokers}"
        with KafkaBrokers(
            data, brokers=told.brokers, port=told.port, min_insync=told.min_insync, jars=found
        ) as brokers:
            print(f"Kafka {VERSION} answers at {brokers.address}; Ctrl-C ends it", flush=True)
            ended.wait()
    except KafkaMissing as missing:
        raise SystemExit(str(missing)) from None


if __name__ == "__main__":
    main()

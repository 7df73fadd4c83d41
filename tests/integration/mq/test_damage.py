"""Batches that no reader can decode, in the log as an older broker would have taken them: all go on."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.cli import _command_line
from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.metadata import METADATA
from headrace_mq.broker.server import Broker
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.consumer.pull_consumer import PullConsumer
from headrace_mq.client.fetch.damage import DAMAGE_HEADER, Damaged
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.sync.reader import BlockingReader
from headrace_mq.errors import InvalidBatch, ResponseCode
from headrace_mq.message import Message, QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.protocol.bodies import ProduceAnswer, decode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.settings import BrokerSettings, ConsumerSettings, StoreSettings
from headrace_mq.spark.offsets import QueueSlice
from headrace_mq.spark.reader import read_record_batches
from headrace_mq.store.check.inspection import check
from headrace_mq.testing.hostile import REFUSED, hostile_batches, mutated

QUEUE = QueueRef("t", 0)
EARLIEST = ConsumerSettings(start="earliest")


@asynccontextmanager
async def running(directory: Path, **settings: Any) -> AsyncIterator[Broker]:
    store = StoreSettings(directory=directory, segment_bytes=8 << 20, disk_refuse_percent=100)
    broker = Broker(BrokerSettings(store=store, port=0, **settings))
    await broker.start()
    try:
        yield broker
    finally:
        await broker.aclose()


async def stored(broker: Broker, batches: Sequence[bytearray]) -> None:
    """Puts batches into the log behind the broker's door."""
    for batch in batches:
        broker._state.store.append(bytearray(batch), retention="transient")
    await broker._state.store.durable()


@pytest.fixture
async def damaged(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker whose one queue has a sound message before, between and behind all hostile batches."""
    async with running(tmp_path / "data") as broker:
        async with Producer(broker.address) as producer:
            await producer.create_topic("t", queues=1)
            await producer.send(Message(topic="t", body=b"first", key="k"))
            for batch in hostile_batches(QUEUE).values():
                await stored(broker, [batch])
                sound = Message(topic="t", body=b"sound", key="k", tag="s", headers={"a": "1"})
                await producer.send(sound)
        yield broker


SOUND = [b"first", *[b"sound"] * len(hostile_batches(QUEUE))]
HOSTILE = 3 * (len(SOUND) - 2) + 65_536


@pytest.mark.parametrize("name", REFUSED)
async def test_the_door_refuses_what_no_reader_could_decode(tmp_path: Path, name: str) -> None:
    async with running(tmp_path / "data") as broker, Producer(broker.address) as producer:
        await producer.create_topic("t", queues=1)
        sound = encode_batch(QUEUE, Columns([], [], [], [b"sound"], []), born_first_ms=1)
        bodies = [bytes(hostile_batches(QUEUE)[name]), bytes(sound)]
        # The producer's own connection: what is refused must leave it open.
        answer = await producer._link.request(RequestCode.PRODUCE, *bodies, timeout_ms=10_000)
        refused, taken = decode(ProduceAnswer, answer).results
        assert refused.code == ResponseCode.INVALID_BATCH
        assert "no reader could decode the batch" in refused.sentence
        assert (taken.code, taken.base_offset) == (ResponseCode.OK, 0)


async def test_a_consumer_goes_on_commits_and_tells_once(damaged: Broker) -> None:
    heard: list[Damaged] = []
    consumer = Consumer(damaged.address, group="g", topics=["t"], settings=EARLIEST)
    consumer.damage.listen(heard.append)
    async with consumer, AdminClient(damaged.address) as admin:
        bodies: list[bytes] = []
        async with asyncio.timeout(40):
            while len(bodies) < len(SOUND):
                records = await consumer.poll()
                bodies += [record.body for record in records]
                consumer.ack_all(records)
        await consumer.commit()
        ((_, offset),) = (await admin.offsets("g", ["t"])).items()
        ((queue, *_, end),) = [(one.topic, one.end) for one in await admin.ranges(["t"])]
    assert bodies == SOUND
    assert offset == end == len(SOUND) + HOSTILE
    assert queue == "t"
    assert len(heard) == consumer.damage.batches == len(SOUND) - 1
    assert consumer.damage.messages == {"t": HOSTILE}


@pytest.mark.parametrize("wanted", ["a = '1'", "a > 0", "_tag = 's'", "_key = 'k'"])
async def test_a_filter_goes_on_as_well(damaged: Broker, wanted: str) -> None:
    async with PullConsumer(damaged.address, settings=EARLIEST, filters={"t": wanted}) as consumer:
        await consumer.assign([QUEUE])
        bodies: list[bytes] = []
        async with asyncio.timeout(40):
            while len(bodies) < len(SOUND) - 1:
                bodies += [one.body for one in await consumer.fetch()]
    assert [body for body in bodies if body == b"sound"] == SOUND[1:]


async def test_scripts_and_spark_read_past_damaged_records(damaged: Broker) -> None:
    end = len(SOUND) + HOSTILE

    def read() -> tuple[list[bytes], list[bytes]]:
        with BlockingReader(damaged.address) as reader:
            scripted = [
                body
                for _, columns, first, last in reader.read(QUEUE, 0, end)
                for body in columns.bodies[first:last]
            ]
        batches = read_record_batches(damaged.address, QueueSlice(queue=QUEUE, start=0, end=end))
        return scripted, [body for one in batches for body in one["body"].to_pylist()]

    scripted, sparked = await asyncio.to_thread(read)
    assert scripted == sparked == SOUND
    async with AdminClient(damaged.address) as admin:
        tail = (await admin.tail("t", 1_000)).records
        assert [one.body for one in tail if DAMAGE_HEADER not in one.headers].count(b"sound") > 5
        assert any(DAMAGE_HEADER in one.headers for one in tail)
        found = await admin.find("t", "k", limit=1_000)
        assert [one.body for one in found] == SOUND
        assert await admin.message("t:0:1") is None
        batch = await admin.batch_of("t:0:1")
        assert batch is not None
        assert (batch.header.base_offset, batch.header.count) == (1, 3)
        assert "does not decode" in batch.damage


async def test_a_range_that_ends_in_such_a_batch_is_read_to_its_end(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        async with Producer(broker.address) as producer:
            await producer.create_topic("t", queues=1)
            await producer.send(Message(topic="t", body=b"first"))
        await stored(broker, [hostile_batches(QUEUE)["no msgpack"]])

        def read() -> list[tuple[int, int]]:
            with BlockingReader(broker.address) as reader:
                return [
                    (len(columns.bodies), header.base_offset + last)
                    for header, columns, _, last in reader.read(QUEUE, 0, 4)
                ]

        assert await asyncio.to_thread(read) == [(1, 1), (0, 4)]


async def test_an_operator_sees_what_is_there(damaged: Broker, tmp_path: Path) -> None:
    def headrace(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(_command_line(), [*words, "--broker", damaged.address])
        return done.exit_code, done.output

    code, shown = await asyncio.to_thread(headrace, "message", "show", "t:0:2")
    assert code == 1
    assert "does not decode" in shown
    assert "readers leave it out" in shown
    code, tail = await asyncio.to_thread(headrace, "message", "tail", "t", "--last", "5")
    assert code == 0
    assert "cannot be read" in tail
    async with AdminClient(damaged.address) as admin:
        await admin.set_offsets("g", {QUEUE: 2})
        end = (await admin.batch_of("t:0:2")).header.next_offset  # type: ignore[union-attr]  # it is there
        code, skipped = await asyncio.to_thread(
            headrace, "message", "skip", "t:0:1", "--group", "g"
        )
        assert (code, f", {end - 2} skipped" in skipped) == (0, True)
        # The whole batch: no message of it can be told from the others.
        assert await admin.offsets("g", ["t"]) == {QUEUE: end}
    await damaged.aclose()
    report = check(tmp_path / "data", metadata=METADATA)
    assert report.status == "clean"
    found = [one for one in report.findings if one.kind == "undecodable"]
    assert len(found) == len(SOUND) - 1
    assert all(one.queue == "t/0" and one.records and one.reason for one in found)
    assert sum(one.records for one in found) == HOSTILE
    done = CliRunner().invoke(_command_line(), ["store", "check", str(tmp_path / "data")])
    assert (done.exit_code, f"clean, but for {len(found)} batches" in done.output) == (0, True)


async def test_damaged_records_are_named_in_log_status_and_to_the_consumer(
    tmp_path: Path,
) -> None:
    async with running(tmp_path / "data") as broker, Producer(broker.address) as producer:
        await producer.create_topic("t", queues=1)
        await producer.send(Message(topic="t", body=b"first"))
        await producer.send_many([Message(topic="t", body=b"lost")] * 3)
        await producer.send(Message(topic="t", body=b"after"))
    (segment,) = (tmp_path / "data" / "transient").glob("*.log")
    segment.write_bytes(segment.read_bytes().replace(b"lost", b"LOST", 1))
    async with running(tmp_path / "data") as broker:
        consumer = Consumer(broker.address, group="g", topics=["t"], settings=EARLIEST)
        async with consumer, AdminClient(broker.address) as admin:
            async with asyncio.timeout(40):
                offsets = []
                while len(offsets) < 2:
                    offsets += [record.offset for record in await consumer.poll()]
            status = await admin.status()
    assert offsets == [0, 4]
    assert consumer.damage.messages == {"t": 3}
    assert status.damaged == 1
    assert status.damage[0].startswith("t/0 from offset 1, 3: ")


def mutants(count: int, chance: random.Random) -> Iterator[bytearray]:
    sound = [
        encode_batch(
            QueueRef("hostile", 0),
            Columns(
                [f"k{n}" for n in range(5)], ["t"] * 5, [{"h": "v"}] * 5, [b"body" * n for n in range(5)],
                [0, 1, 2, 3, 4],
            ),
            born_first_ms=5,
            codec=codec,
        )
        for codec in ("none", "none", "lz4", "zstd")
    ]  # fmt: skip
    for _ in range(count):
        yield mutated(chance.choice(sound), chance)


async def test_mutated_batches_harm_neither_the_broker_nor_an_honest_client(tmp_path: Path) -> None:
    chance, codes = random.Random(7), dict[int, int]()
    async with (
        running(tmp_path / "data") as broker,
        Producer(broker.address) as hostile,
        Producer(broker.address) as honest,
    ):
        await honest.create_topic("hostile", queues=1)
        taken = 0
        for batch in mutants(2_000, chance):
            answer = await hostile._link.request(
                RequestCode.PRODUCE, bytes(batch), timeout_ms=10_000
            )
            (result,) = decode(ProduceAnswer, answer).results
            codes[result.code] = codes.get(result.code, 0) + 1
            taken += result.code == ResponseCode.OK
        assert codes.keys() <= {
            ResponseCode.OK,
            ResponseCode.INVALID_BATCH,
            ResponseCode.INVALID_ARGUMENT,
            ResponseCode.CORRUPT_BATCH,
        }
        assert codes[ResponseCode.INVALID_BATCH] > 100
        assert taken > 100
        last = await honest.send(Message(topic="hostile", body=b"honest"))
        consumer = Consumer(broker.address, group="g", topics=["hostile"], settings=EARLIEST)
        async with consumer, asyncio.timeout(120):
            offset = -1
            while offset < last.offset:
                records = await consumer.poll()
                consumer.ack_all(records)
                offset = records[-1].offset
        assert consumer.damage.batches > 10


async def test_a_producer_hears_why_its_batch_was_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = hostile_batches(QueueRef("t", 0))["columns differ"]
    monkeypatch.setattr("headrace_mq.client.batch.batch.encode_batch", lambda *_, **__: hostile)
    async with running(tmp_path / "data") as broker, Producer(broker.address) as producer:
        await producer.create_topic("t", queues=1)
        with pytest.raises(InvalidBatch, match="columns of a record batch differ in length"):
            await producer.send(Message(topic="t", body=b"x"))

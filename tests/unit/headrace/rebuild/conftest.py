"""A broker in this process that holds the ledger's event topic."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace.domain.stream import EventStream
from headrace.events.seals import Seal
from headrace.projections.batch_transaction import apply_batch, decode_batch
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.event_topic import EventTopic
from headrace.stores.base import EventStore
from headrace.stores.open import open_event_store
from headrace_mq.broker.server import Broker
from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message
from headrace_mq.settings import BrokerSettings, StoreSettings


@dataclass
class EventBroker:
    """The broker and a producer of event messages."""

    broker: Broker
    producer: Producer
    ledger: Any

    @property
    def address(self) -> str:
        return self.broker.address

    async def publish(self, *streams: EventStream) -> None:
        await self.producer.send_many(
            [
                Message(
                    topic=self.ledger.topic_name,
                    key=stream.aggregate_id,
                    headers={"kind": "events" if stream.rejection is None else "rejection"},
                    body=self.ledger.serializer.encode_stream(stream),
                )
                for stream in streams
            ]
        )


@pytest.fixture
async def event_broker(tmp_path: Path, ledger: Any) -> AsyncIterator[EventBroker]:
    store = StoreSettings(directory=tmp_path / "broker", segment_bytes=1 << 20)
    broker = Broker(BrokerSettings(store=store, port=0))
    await broker.start()
    async with Producer(broker.address) as producer:
        await producer.create_topic(ledger.topic_name, queues=2, retention="forever")
        yield EventBroker(broker, producer, ledger)
    await broker.aclose()


@pytest.fixture
def store_url(database_url: str, tmp_path: Path) -> str:
    """A second file, or the PostgreSQL database of the read models."""
    if database_url.startswith("sqlite"):
        return f"sqlite:///{tmp_path / 'events.db'}"
    return database_url


@pytest.fixture
async def event_store(
    store_url: str,
    ledger: Any,
    read_models: ReadModels,
    give_schema: Callable[[str], Awaitable[None]],
) -> AsyncIterator[EventStore]:
    """An event store; on PostgreSQL in the database of the read models."""
    await give_schema(store_url)
    store = await open_event_store(store_url, ledger.serializer)
    yield store
    await store.aclose()


@pytest.fixture
def go_live(event_broker: Any, ledger: Any) -> Any:
    """Lets the live generation apply all that the topic holds."""

    async def find_nothing(*_: object) -> list[Any]:
        return []

    async def run(models: ReadModels, projection: Any) -> None:
        generation = await models.generation(projection.name)
        offsets = await models.offsets(projection.name, generation)
        topic = EventTopic(event_broker.address, ledger.topic_name, messages_max=100)
        for queue, (_, end) in (await topic.ranges()).items():
            async for messages in topic.read(queue, offsets.get(queue, 0), end):
                batch = decode_batch(messages, offsets, ledger.serializer)
                async with models.begin() as connection:
                    await apply_batch(
                        connection, models.target(projection, generation), batch,
                        missing=find_nothing,
                    )  # fmt: skip

    return run


@pytest.fixture
async def history(event_broker: Any, ledger: Any, read_models: ReadModels) -> list[Any]:
    """Bookings of five aggregates with deletions and duplicates, in the topic; no shadow."""
    await read_models.abandon_shadow("accounts", 2, "the test")
    streams = []
    for key in "abcde":
        for version in range(1, 7):
            event = ledger.Booked(partner=f"p{version % 2}", amount=version)
            streams.append(ledger.stream(key, version, event))
    streams += [ledger.stream("e", 7, ledger.Ended()), *streams[3:9], ledger.rejection("a")]
    await event_broker.publish(*streams)
    return streams


@pytest.fixture
async def stored(history: list[Any], event_store: EventStore) -> list[Any]:
    """The history in the event store, each stream once."""
    once = {(each.aggregate_id, each.command_id): each for each in history}
    await event_store.append(list(once.values()))
    return list(once.values())


class Believing:
    """An event store whose service has published what it holds, and somebody who forges."""

    def __init__(self, event_broker: Any, ledger: Any, tmp_path: Path) -> None:
        self.url = f"sqlite:///{tmp_path / 'believing.db'}"
        self._broker = event_broker
        self._ledger = ledger

    def stream(self, key: str, version: int, amount: int) -> Any:
        return self._ledger.stream(key, version, self._ledger.Booked(partner="p", amount=amount))

    async def store(self, *streams: Any) -> Seal:
        store = await open_event_store(self.url, self._ledger.serializer)
        await store.append(streams)
        seal = Seal(await store.identity())
        await store.aclose()
        return seal

    async def publish(
        self, *streams: Any, seal: Seal | None, spoil: tuple[str, int] | None = None
    ) -> None:
        for each in streams:
            body = self._ledger.serializer.encode_stream(each)
            if (each.aggregate_id, each.version) == spoil:
                body = body.replace(b'"amount"', b'"lost"')
            await self._broker.producer.send(
                Message(
                    topic=self._ledger.topic_name,
                    key=each.aggregate_id,
                    headers={"kind": "events"},
                    body=body if seal is None else seal.put_on(body),
                )
            )


@pytest.fixture
def believing(event_broker: Any, ledger: Any, tmp_path: Path) -> Believing:
    return Believing(event_broker, ledger, tmp_path)

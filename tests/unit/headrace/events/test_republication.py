"""What the topic lacks is published, each aggregate in its order, and nothing else."""

from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain.message import ApplicationMessage, DomainEvent
from headrace.domain.registry import Registry
from headrace.domain.stream import EventStream, Rejection
from headrace.events.republication import Republication, Republished
from headrace.serialization import JsonSerializer
from headrace.settings import Settings
from headrace.stores.memory.store import MemoryEventStore
from headrace.transports.base import Outgoing
from headrace.transports.local import LocalTransport

TOPIC = "shop.events"


class Happened(DomainEvent):
    pass


class Told(ApplicationMessage):
    pass


class Parts:
    """A store, a topic, and what goes from the one to the other."""

    def __init__(self) -> None:
        events: Registry[DomainEvent] = Registry("event")
        events.add(Happened)
        messages: Registry[ApplicationMessage] = Registry("message")
        messages.add(Told)
        self.serializer = JsonSerializer(Registry("command"), events, messages)
        self.store = MemoryEventStore()
        self.transport = LocalTransport()
        self.republication = Republication(
            name="shop",
            store=self.store,
            transport=self.transport,
            serializer=self.serializer,
            settings=Settings(),
        )

    async def begin(self) -> None:
        await self.transport.ensure_topic(TOPIC, queues=2, forever=True)

    async def publish(self, stream: EventStream) -> None:
        """As the command service does."""
        await self.transport.publish(
            Outgoing(
                topic=TOPIC,
                key=stream.aggregate_id,
                body=self.serializer.encode_stream(stream),
                tag=stream.aggregate_type,
                headers={"kind": "events", "command": stream.command_id},
            )
        )

    async def held(self) -> dict[str, list[str]]:
        """The command ids of each aggregate in the topic, in their order."""
        found: dict[str, list[str]] = defaultdict(list)
        lineage = await self.transport.topic_lineage(TOPIC)
        for number, (first, end) in lineage.ranges.items():
            async for messages in self.transport.read((TOPIC, number), first, end):
                for message in messages:
                    found[message.key].append(message.headers["command"])
        return dict(found)


def stream(aggregate_id: str, version: int | None, command: str, **parts: Any) -> EventStream:
    events = (Happened(),) if version else ()
    return EventStream(
        aggregate_type="Thing",
        aggregate_id=aggregate_id,
        version=version,
        command_id=command,
        correlation_id=command,
        recorded_at=datetime(2026, 1, 1, tzinfo=UTC),
        **{"events": events, **parts},
    )


@pytest.fixture
async def parts() -> Parts:
    parts = Parts()
    await parts.begin()
    return parts


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=12))
async def test_each_stream_is_in_the_topic_once_and_missing_ones_in_order(
    stored: list[tuple[str, bool]],
) -> None:
    parts = Parts()
    await parts.begin()
    versions: dict[str, int] = defaultdict(int)
    expected: dict[str, set[str]] = defaultdict(set)
    lacking: dict[str, list[str]] = defaultdict(list)
    for key, is_held in stored:
        versions[key] += 1
        one = stream(key, versions[key], f"{key}{versions[key]}")
        await parts.store.append([one])
        expected[key].add(one.command_id)
        if is_held:
            await parts.publish(one)
        else:
            lacking[key].append(one.command_id)
    before = await parts.held()
    missing = sum(map(len, lacking.values()))
    looked = await parts.republication.run(dry_run=True)
    assert await parts.held() == before
    done = await parts.republication.run()
    held = len(stored) - missing
    assert (
        done == looked == Republished(held=held, stored=len(stored), published=missing, damaged=0)
    )
    after = await parts.held()
    assert {key: set(each) for key, each in after.items()} == dict(expected)
    assert all(len(each) == len(expected[key]) for key, each in after.items())
    assert {key: each[len(before.get(key, [])) :] for key, each in after.items()} == {
        key: lacking[key] for key in after
    }
    assert (await parts.republication.run()).published == 0


async def test_a_copy_of_a_genuine_message_with_another_header_hides_no_stream(
    parts: Parts,
) -> None:
    first, lost = stream("a", 1, "a1"), stream("a", 2, "a2")
    await parts.store.append([first, lost])
    for command in ("a1", "a2"):
        await parts.transport.publish(
            Outgoing(
                topic=TOPIC,
                key="a",
                body=parts.serializer.encode_stream(first),
                tag="Thing",
                headers={"kind": "events", "command": command},
            )
        )
    done = await parts.republication.run()
    assert (done.held, done.published) == (1, 1)


async def test_rejections_are_published_and_application_messages_are_not(parts: Parts) -> None:
    rejection = Rejection(
        error="No", sentence="no", command_name="C", command_version=1, command_data={}
    )
    await parts.store.append(
        [
            stream("a", 1, "a1", messages=(Told(),)),
            stream("b", None, "b1", rejection=rejection),
            stream("c", None, "c1", messages=(Told(),)),
        ]
    )
    done = await parts.republication.run()
    assert (done.stored, done.published) == (2, 2)
    assert await parts.held() == {"a": ["a1"], "b": ["b1"]}


async def test_more_than_a_page_is_published(parts: Parts) -> None:
    for number in range(1, 2_102):
        await parts.store.append([stream("a", number, str(number))])
    await parts.publish(stream("a", 1_500, "1500"))
    assert (await parts.republication.run()).published == 2_100
    assert len((await parts.held())["a"]) == 2_101

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace_mq._net.link import Link
from headrace_mq.client.broadcast.queues import Audience
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.group.membership import Listeners
from headrace_mq.errors import ConnectionLost, InvalidArgument, MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.settings import ConsumerSettings

DESCRIBE = RequestCode.DESCRIBE_TOPICS
A, B = QueueRef("t", 0), QueueRef("t", 1)
Until = Callable[[Callable[[], object]], Any]


class Heard:
    """An audience and what it told."""

    def __init__(self, link: Link, **settings: Any) -> None:
        self.changes: list[frozenset[QueueRef]] = []
        self.losses = 0
        self.audience = Audience(
            link,
            ["t", "t"],
            settings=ConsumerSettings(**settings),
            listeners=Listeners(
                on_change=self.changes.append,
                on_lost=self._lose,
                on_error=lambda _: None,
                on_beat=lambda _: None,
            ),
        )
        link._on_down = self.audience.lost

    def _lose(self) -> None:
        self.losses += 1


async def staying(heard: Heard) -> asyncio.Task[None]:
    return asyncio.create_task(heard.audience.stay())


async def test_all_queues_are_reported_also_later_ones(
    broker: Any, link: Link, until: Until
) -> None:
    heard = Heard(link, topics_refresh_ms=1)
    await heard.audience.join()
    assert heard.changes == [frozenset()]
    task = await staying(heard)
    broker.topics["t"] = 1
    await until(lambda: heard.changes[-1] == {A})
    broker.topics["t"] = 2
    await until(lambda: heard.changes[-1] == {A, B})
    assert heard.audience.first_seen == frozenset()
    assert len(heard.changes) == 3
    task.cancel()
    await asyncio.wait([task])


async def test_the_queues_are_reported_again_after_a_lost_connection_with_another_generation(
    broker: Any, link: Link, until: Until
) -> None:
    broker.topics["t"] = 1
    heard = Heard(link)
    await heard.audience.join()
    first = heard.audience.generation
    task = await staying(heard)
    broker.drop()
    await until(lambda: heard.losses == 1)
    assert heard.audience.generation == -1
    await until(lambda: len(heard.changes) == 2)
    assert heard.audience.generation > first
    assert heard.audience.first_seen == {A}
    task.cancel()
    await asyncio.wait([task])


async def test_a_refusal_is_asked_again_and_a_silent_broker_is_left(
    broker: Any, link: Link, until: Until
) -> None:
    broker.topics["t"] = 1
    heard = Heard(link)
    await heard.audience.join()
    heard.audience._settings = ConsumerSettings(
        topics_refresh_ms=1, heartbeat_ms=1, request_timeout_ms=50
    )
    broker.held = {DESCRIBE}
    task = await staying(heard)
    (await broker.next(DESCRIBE)).refuse(InvalidArgument("not now"))
    await broker.next(DESCRIBE)
    broker.held = set()
    await until(lambda: heard.losses and len(heard.changes) > heard.losses)
    task.cancel()
    await asyncio.wait([task])


async def test_a_connection_lost_while_looking_fails_the_join(broker: Any, link: Link) -> None:
    heard = Heard(link)
    broker.held = {DESCRIBE}
    joining = asyncio.create_task(heard.audience.join())
    await broker.next(DESCRIBE)
    broker.drop()
    with pytest.raises(ConnectionLost):
        await joining
    assert heard.changes == []


# --- a broadcast consumer ------------------------------------------------------------------------


async def test_every_broadcast_consumer_gets_everything_and_goes_on_from_its_own_file(
    broker: Any, make: Callable[..., Consumer], tmp_path: Path
) -> None:
    broker.topics["t"] = 2
    files = [tmp_path / "one", tmp_path / "two"]

    async def read(consumer: Consumer, count: int) -> list[bytes]:
        bodies: list[bytes] = []
        while len(bodies) < count:
            for record in await consumer.poll():
                bodies.append(record.body)
                consumer.ack(record)
        return sorted(bodies)

    async with make(broadcast_file=files[0]) as one:
        async with make(broadcast_file=files[1]) as two:
            assert one.assignment == two.assignment == {A, B}
            broker.append(A, [b"a"])
            broker.append(B, [b"b"])
            assert await read(one, 2) == await read(two, 2) == [b"a", b"b"]
        broker.append(A, [b"c"])
        assert await read(one, 1) == [b"c"]
        broker.drop()
        broker.append(B, [b"d"])
        assert await read(one, 1) == [b"d"]
    async with make(broadcast_file=files[1]) as two:
        assert await read(two, 2) == [b"c", b"d"]
    broker.append(A, [b"e"])
    async with make(broadcast_file=files[0]) as one:
        assert await read(one, 1) == [b"e"]
    codes = {request.code for request in broker.seen}
    assert codes.isdisjoint(
        {RequestCode.JOIN_GROUP, RequestCode.COMMIT_OFFSETS, RequestCode.LOCK_QUEUES}
    )


async def test_finished_offsets_are_kept_though_the_broker_is_gone(
    broker: Any, make: Callable[..., Consumer], tmp_path: Path, until: Until
) -> None:
    broker.topics["t"] = 1
    broker.append(A, [b"a"])
    consumer = make(broadcast_file=tmp_path / "offsets")
    async with consumer:
        (record,) = await consumer.poll()
        consumer.ack(record)
        await consumer.commit()
        await broker.stop()
        await until(lambda: not consumer._link.is_up)
    await broker.start()
    broker.append(A, [b"b"])
    async with make(broadcast_file=tmp_path / "offsets") as consumer:
        assert [record.body for record in await consumer.poll()] == [b"b"]


async def test_a_file_that_cannot_be_used_refuses_the_start(
    broker: Any, make: Callable[..., Consumer], tmp_path: Path
) -> None:
    broker.topics["t"] = 1
    async with make(broadcast_file=tmp_path / "offsets"):
        with pytest.raises(MessageQueueError, match="another consumer"):
            await make(broadcast_file=tmp_path / "offsets").start()


async def test_offsets_are_kept_in_one_place(make: Callable[..., Consumer], tmp_path: Path) -> None:
    async def load(queues: Sequence[QueueRef]) -> dict[QueueRef, int]:
        return {}

    with pytest.raises(ValueError, match="choose one"):
        make(load, broadcast_file=tmp_path / "offsets")

"""Consumers and producers with names: who they are to others, and what a restart costs these."""

import asyncio
import json
from collections.abc import Callable, Collection
from typing import Any

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.group.allocation import nearby
from headrace_mq.client.producer.producer import Producer
from headrace_mq.errors import GroupNotEmpty, NameTaken
from headrace_mq.message import Message, QueueRef
from headrace_mq.settings import ConsumerSettings, ProducerSettings
from headrace_mq.testing.arrivals import take

QUEUES = 6


def settings(name: str, **more: Any) -> ConsumerSettings:
    return ConsumerSettings(name=name, heartbeat_ms=50, commit_interval_ms=20, **more)


async def hold(*consumers: Consumer) -> list[frozenset[QueueRef]]:
    """Waits until these consumers have all queues between them, and returns whose they are."""
    while True:
        shares = [consumer.assignment for consumer in consumers]
        if sum(map(len, shares)) == QUEUES == len(frozenset().union(*shares)):
            return shares
        await asyncio.sleep(0)


async def owners(admin: AdminClient) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for queue in (await admin.lag("g", ["t"])).queues:
        found.setdefault(queue.member, []).append(queue.queue_id)
    return found


async def until_owners(admin: AdminClient, expected: Callable[[Collection[str]], bool]) -> None:
    while not expected((await owners(admin)).keys()):
        pass


@pytest.mark.parametrize("allocation", ["average", "sticky", "consistent_hash"])
async def test_a_member_that_comes_back_under_its_name_disturbs_no_other(
    broker: Any, allocation: Any
) -> None:
    async with AdminClient(broker.address) as admin, Producer(broker.address) as producer:
        await admin.create_topic("t", QUEUES)

        def member(name: str) -> Consumer:
            chosen = settings(name, allocation=allocation)
            return Consumer(broker.address, group="g", topics=["t"], settings=chosen)

        first = member("first")
        async with member("second") as second:
            async with first:
                mine, others = await hold(first, second)
                assert mine
                await until_owners(admin, lambda names: names == {"first", "second"})
                generation = (await admin.group("g")).generation
            (away, here) = (await admin.group("g")).members
            assert (away.member, away.address, here.away_ms) == ("first", "", 0)
            assert 0 < away.away_ms <= 30_000
            with pytest.raises(GroupNotEmpty, match="1 of them away"):
                await admin.reset_offsets("g", "latest", 0, topics=["t"])
            # What comes meanwhile waits for it.
            await producer.send_many([Message(topic="t", body=b"x")] * QUEUES)
            got = await take(second, len(others))
            assert {record.queue for record in got} == others
            async with member("first") as again:
                assert again.assignment == mine
                assert {record.queue for record in await take(again, len(mine))} == mine
                assert second.assignment == others
                assert (await admin.group("g")).generation == generation


async def test_a_killed_process_gets_its_queues_back_and_one_that_stays_away_loses_them(
    start_broker: Any, start_child: Any
) -> None:
    broker = await start_broker(member_expiry_ms=3_000)
    async with AdminClient(broker.address) as admin:
        await admin.create_topic("t", QUEUES)
        named = json.dumps({"name": "shelf-1", "heartbeat_ms": 100})
        chosen = settings("shelf-2")
        async with Consumer(broker.address, group="g", topics=["t"], settings=chosen) as other:
            process = await start_child(MEMBER, broker.address, named)
            await until_owners(admin, lambda names: names == {"shelf-1", "shelf-2"})
            before, generation = await owners(admin), (await admin.group("g")).generation
            await process.end()
            process = await start_child(MEMBER, broker.address, named)
            await process.heard("joined")
            await until_owners(admin, lambda names: names == {"shelf-1", "shelf-2"})
            assert (await owners(admin), (await admin.group("g")).generation) == (
                before,
                generation,
            )
            await process.end()
            while len(other.assignment) < QUEUES:
                await asyncio.sleep(0)
            assert [member.member for member in (await admin.group("g")).members] == ["shelf-2"]


MEMBER = """
import asyncio, json, sys
from headrace_mq import Consumer, ConsumerSettings

async def main(address, settings):
    chosen = ConsumerSettings(**json.loads(settings))
    async with Consumer(address, group="g", topics=["t"], settings=chosen) as consumer:
        print("joined", len(consumer.assignment), flush=True)
        await consumer.poll()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_second_member_of_a_name_learns_which_client_has_it(broker: Any) -> None:
    async with AdminClient(broker.address) as admin:
        await admin.create_topic("t", QUEUES)

        def twin(**more: Any) -> Consumer:
            chosen = settings("twin", **more)
            return Consumer(broker.address, group="g", topics=["t"], settings=chosen)

        async with twin() as one:
            await hold(one)
            for second in (twin(), twin(away_ms=0)):
                with pytest.raises(NameTaken, match="has a member 'twin' at work"):
                    await second.start()
            await until_owners(admin, lambda names: names == {"twin"})
        # It is away, so the name is free for whoever has the place.
        async with twin(away_ms=0) as other:
            await hold(other)
        # That one wanted no place to be kept.
        assert sum(group.members for group in await admin.groups()) == 0


async def test_queues_are_divided_by_the_rooms_that_names_tell(broker: Any) -> None:
    def room_of_member(name: str) -> str:
        return name.partition("-")[0]

    def room_of_queue(queue: QueueRef) -> str:
        return "east" if queue.queue_id < 2 else "west"

    async with AdminClient(broker.address) as admin:
        await admin.create_topic("t", QUEUES)

        def reader(name: str) -> Consumer:
            return Consumer(
                broker.address, group="g", topics=["t"], settings=settings(name, away_ms=0),
                strategy=nearby(room_of_member, room_of_queue),
            )  # fmt: skip

        async with reader("west-1") as one:
            # Where nobody is near, whoever is there reads.
            await hold(one)
            async with reader("east-1") as east, reader("west-2") as two:
                await until_owners(admin, lambda names: names == {"east-1", "west-1", "west-2"})
                assert await owners(admin) == {
                    "east-1": [0, 1], "west-1": [2, 3], "west-2": [4, 5]
                }  # fmt: skip
                assert [len(each.assignment) for each in (east, one, two)] == [2, 2, 2]


async def test_names_stand_where_clients_are_listed(broker: Any) -> None:
    async with (
        AdminClient(broker.address) as admin,
        Producer(broker.address, ProducerSettings(name="till-3")) as till,
        Producer(broker.address, ProducerSettings(name="till-3")) as same,
    ):
        for producer in (till, same):
            await producer.send(Message(topic="t", body=b"x"))
        ids = [one.client_id for one in await admin.connections("producer")]
        assert ids == [till.client_id, same.client_id]
        assert {one.partition("/")[0] for one in ids} == {"till-3"}
        # Each gets its own replies.
        assert ids[0] != ids[1]

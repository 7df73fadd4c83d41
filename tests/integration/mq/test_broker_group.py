"""Real brokers of one group, with their record in PostgreSQL or etcd: they lose their leader again and again."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from asyncpg import connect
from typer.testing import CliRunner, Result

from headrace.cli import _command_line
from headrace_mq.admin.client import AdminClient
from headrace_mq.client.consumer.pull_consumer import PullConsumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.sync.reader import BlockingReader
from headrace_mq.cluster.election import LEASE_MS
from headrace_mq.errors import SendTimeout
from headrace_mq.message import Message, QueueRef
from headrace_mq.settings import ProducerSettings
from tests.integration.mq.broker_group import (
    PATIENT,
    PATIENT_S,
    QUEUES,
    TOPIC,
    Group,
    Member,
    Senders,
    a_moment,
    bodies_of,
    running,
)

# With a start and a failover on a busy machine; see `PATIENT_S`.
pytestmark = pytest.mark.timeout(320)

A_MINUTE_AGO = (
    "UPDATE headrace_cluster_replicas SET reported_at = clock_timestamp() - interval '1 minute'"
    " WHERE replica = ANY($1::text[])"
)


def trio(folder: Path, free_port: Callable[[], int], record: str, *options: str) -> Group:
    """Three brokers, not started."""
    members = [
        Member(folder / name, f"127.0.0.1:{free_port()}", record, *options) for name in "abc"
    ]
    return Group(members, record)


@pytest.fixture
def record(request: pytest.FixtureRequest) -> str:
    """Where the record of the group is; in PostgreSQL if a test asks for nothing else."""
    url: str = request.getfixturevalue(getattr(request, "param", "postgres_database"))
    return url


@pytest.fixture
async def group(tmp_path: Path, free_port: Callable[[], int], record: str) -> AsyncIterator[Group]:
    async with running(trio(tmp_path, free_port, record)) as made:
        yield made


def count_of(address: str) -> int:
    with BlockingReader(address) as reader:
        return sum(one.end for one in reader.ranges([TOPIC]))


@pytest.fixture
async def senders(group: Group) -> AsyncIterator[Senders]:
    async with AdminClient(group.address, timeout_ms=PATIENT_S * 1_000) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES)
    made = Senders(group.address)
    yield made
    await made.end(group)


@pytest.mark.parametrize("record", ["postgres_database", "etcd_url"], indirect=True)
async def test_acknowledged_messages_survive_the_kill_of_every_leader(
    group: Group, senders: Senders
) -> None:
    times: list[float] = []
    for _ in range(4):
        await senders.more(200)
        await group.in_sync()
        leader = await group.leader()
        killed = time.monotonic()
        await leader.end()
        # The other producers may have had an answer on its way.
        await senders.more(8)
        times.append(time.monotonic() - killed)
        await leader.start()
    # A second or so: connections to a process that is gone are refused, so no one waits for a lease.
    assert min(times) < LEASE_MS / 1_000


async def test_leaders_that_hand_over_under_load_lose_nothing(
    group: Group, senders: Senders
) -> None:
    """Each is asked to, or stopped in order; producers go on within a second or so."""
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(6):
        await senders.more(200)
        await group.in_sync()
        leader = await group.leader()
        begun = time.monotonic()
        if turn % 2:
            await leader.end(signal.SIGTERM)
            await leader.start()
        else:
            async with AdminClient(group.address, timeout_ms=PATIENT_S * 1_000) as admin:
                await admin.hand_over()
            async with asyncio.timeout(PATIENT_S):
                while (await group.record.read()).leader == leader.address:
                    await a_moment()
        await senders.more(8)
        times[turn % 2].append(time.monotonic() - begun)
        assert await group.leader() is not leader
    # No one waits for a lease.
    assert max(map(min, times)) < LEASE_MS / 1_000


async def test_a_leader_that_was_paused_acknowledges_nothing_and_cuts_what_it_took(
    group: Group, senders: Senders
) -> None:
    await senders.more(100)
    leader = await group.leader()
    settings = ProducerSettings(send_timeout_ms=8_000)
    async with Producer(leader.address, settings=settings) as late:
        await late.send(Message(topic=TOPIC, body=b"9 0", key="k0"))
        senders.acknowledged.append(b"9 0")
        leader.take(signal.SIGSTOP)
        # It finds these in its sockets when it goes on, and appends them before it knows of the other one.
        sent = [late.send_soon(Message(topic=TOPIC, body=b"late", key="k0")) for _ in range(50)]
        await senders.more(100)
        leader.take(signal.SIGCONT)
        outcomes = await asyncio.gather(*sent, return_exceptions=True)
    assert {type(one) for one in outcomes} == {SendTimeout}
    await group.in_sync()
    assert await group.leader() is not leader
    await senders.more(100)
    # What it has now is what all have.
    async with AdminClient(group.address, timeout_ms=PATIENT_S * 1_000) as admin:
        await admin.hand_over(leader.address)
    async with asyncio.timeout(PATIENT_S):
        while (await group.record.read()).leader != leader.address:
            await a_moment()
    await senders.more(100)


async def test_all_brokers_come_back_with_everything_after_all_were_killed(
    group: Group, senders: Senders
) -> None:
    await senders.more(200)
    for member in group.members:
        member.take(signal.SIGKILL)
    for member in group.members:
        await member.end()
        await member.start()
    await senders.more(100)
    await group.in_sync()


async def test_topics_and_offsets_are_there_after_a_failover(group: Group) -> None:
    queue = QueueRef(TOPIC, 1)
    async with AdminClient(group.address, timeout_ms=PATIENT_S * 1_000) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES)
        await admin.create_topic("empty", queues=3)
    async with Producer(group.address, settings=PATIENT) as producer:
        for number in range(20):
            await producer.send(Message(topic=TOPIC, body=b"%d" % number))
    async with PullConsumer(group.address, group="g") as consumer:
        await consumer.assign([queue])
        await consumer.fetch(1_000, timeout_ms=60_000)
        position = consumer.position(queue)
        await consumer.commit()
    assert await asyncio.to_thread(count_of, group.address) == 20
    leader = await group.leader()
    # In order: what was committed reaches the replicas before it ends.
    await leader.end(signal.SIGTERM)
    async with AdminClient(group.address, timeout_ms=PATIENT_S * 1_000) as admin:
        described = {one.topic: one.queues for one in await admin.topics()}
        assert (described[TOPIC], described["empty"]) == (2, 3)
    # Without an event loop, as Spark reads.
    assert await asyncio.to_thread(count_of, group.address) == 20
    async with PullConsumer(group.address, group="g") as consumer:
        await consumer.assign([queue])
        assert consumer.position(queue) == position > 0


async def test_a_broker_that_ran_alone_is_the_first_of_a_group_after_a_kill(
    tmp_path: Path, free_port: Callable[[], int], postgres_database: str
) -> None:
    group = trio(tmp_path, free_port, postgres_database)
    a, b, c = group.members
    async with AsyncExitStack() as stack:
        for member in group.members:
            stack.push_async_callback(member.end)
        stack.push_async_callback(group.record.aclose)
        await a.start(alone=True)
        async with AdminClient(a.address, timeout_ms=PATIENT_S * 1_000) as admin:
            await admin.create_topic(TOPIC, queues=QUEUES)
        senders = Senders(group.address)
        await senders.more(500)
        # Its producers go on with the group, each with the messages that have no answer yet.
        await a.end()
        await a.start()
        await senders.more(200)
        await b.start()
        await c.start()
        await group.in_sync()
        assert await group.leader() is a
        await a.end()
        await senders.more(200)
        await senders.end(group)


def cluster(verb: str, *arguments: str) -> Result:
    return CliRunner().invoke(_command_line(), ["cluster", verb, *arguments])


async def be_silent(record: str, *members: Member) -> None:
    """Lets brokers that were killed have reported a minute ago."""
    hand = await connect(record)
    await hand.execute(A_MINUTE_AGO, [one.address for one in members])
    await hand.close()


async def test_a_broker_is_promoted_with_loss_and_a_member_that_comes_back_cuts_what_it_has_more(
    group: Group, postgres_database: str
) -> None:
    where = ("--record", postgres_database)
    leader = await group.leader()
    late, other = (one for one in group.members if one is not leader)

    async def send(*bodies: bytes) -> None:
        async with Producer(group.address, settings=PATIENT) as producer:
            for body in bodies:
                await producer.send(Message(topic=TOPIC, key="k", body=body))

    async with AdminClient(group.address, timeout_ms=PATIENT_S * 1_000) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES)
    await send(b"kept")
    await late.end()
    await send(b"lost", b"lost as well")
    # At once, and the leader last: the other one would lead without it.
    for member in (other, leader):
        member.take(signal.SIGKILL)
    for member in (other, leader):
        await member.end()
    await late.start()
    await be_silent(postgres_database, leader, other)
    # As soon as it has reported.
    async with asyncio.timeout(PATIENT_S):
        while True:
            looked = await asyncio.to_thread(cluster, "promote", late.address, *where)
            if "nothing was changed" in str(looked.exception):
                break
            await a_moment()
    assert (await group.record.read()).leader == leader.address
    done = await asyncio.to_thread(cluster, "promote", late.address, "--accept-loss", *where)
    # On a busy machine it may not lead yet when the command ends; the next messages wait for it.
    said = f"{done.output}\n{done.exception}"
    assert f"\n{late.address} leads in epoch " in said or f"{late.address} is to lead" in said, said
    assert await group.leader() is late
    await send(b"new", b"newer", b"newest")
    await leader.start()
    await two_in_sync(group)
    settled = await asyncio.to_thread(cluster, "settle", *where)
    assert settled.exit_code == 0, settled.exception
    assert (await group.record.read()).unclean == 0
    removed = await asyncio.to_thread(cluster, "remove", other.address, *where)
    assert removed.exit_code == 0, removed.exception
    shown = await asyncio.to_thread(cluster, "status", *where)
    assert other.address not in shown.output
    # The one that came back has cut what only it had, and leads now.
    await two_in_sync(group)
    await late.end()
    assert await group.leader() is leader
    assert await bodies_of(group.address) == [b"kept", b"new", b"newer", b"newest"]


async def two_in_sync(group: Group) -> None:
    async with asyncio.timeout(PATIENT_S):
        while len((await group.record.read()).in_sync) < 2:
            await a_moment()


async def test_messages_wait_while_fewer_brokers_are_in_sync_than_must_be(
    tmp_path: Path, free_port: Callable[[], int], postgres_database: str
) -> None:
    group = trio(tmp_path, free_port, postgres_database, "--min-in-sync", "2")
    async with AsyncExitStack() as stack:
        for member in group.members:
            stack.push_async_callback(member.end)
        stack.push_async_callback(group.record.aclose)
        a, b, c = group.members
        for member in (a, b, c):
            await member.start()
        await group.leader()
        await group.in_sync()
        async with Producer(group.address, settings=PATIENT) as producer:
            await producer.send(Message(topic=TOPIC, body=b"1"))
            leader = await group.leader()
            for member in group.members:
                if member is not leader:
                    await member.end()
            alone = producer.send_soon(Message(topic=TOPIC, body=b"2"))
            # It is taken out of the set, and still nothing is acknowledged.
            async with asyncio.timeout(PATIENT_S):
                while len((await group.record.read()).in_sync) > 1:
                    await a_moment()
            assert not alone.done()
            await next(one for one in group.members if one is not leader).start()
            await alone

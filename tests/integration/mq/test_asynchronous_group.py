"""A group whose leader acknowledges alone: what a failover loses was told before, and is kept by the broker that comes back."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headrace.cli import _command_line
from headrace_mq._runtime.files import SystemFiles
from headrace_mq.admin.client import AdminClient
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.cluster.record import ACK_IN_SYNC, ACK_LEADER
from headrace_mq.message import Message
from headrace_mq.protocol.batch import decode_records
from headrace_mq.protocol.limits import LeaderDescription
from headrace_mq.store.replication.lost_messages import lost_batches, lost_files
from tests.integration.mq.broker_group import (
    PATIENT,
    PATIENT_S,
    QUEUES,
    TOPIC,
    Group,
    Member,
    a_moment,
    bodies_of,
    running,
)

# Several starts and failovers on a busy machine; see `PATIENT_S`.
pytestmark = pytest.mark.timeout(900)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENT_S):
        while not await holds():
            await a_moment()


async def ack(url: str, who: str) -> Result:
    words = ["cluster", "ack", who, "--yes", "--record", url]
    return await asyncio.to_thread(CliRunner().invoke, _command_line(), words)


async def leader_says(group: Group) -> LeaderDescription:
    async with AdminClient(group.address, timeout_ms=PATIENT_S * 1_000) as admin:
        (leads,) = (await admin.status()).leads
    return leads


async def send(group: Group, bodies: list[bytes]) -> None:
    """Sends one message after the other; each is acknowledged on return."""
    async with Producer(group.address, settings=PATIENT) as producer:
        for body in bodies:
            await producer.send(Message(topic=TOPIC, body=body, key="k"))


def kept_by(folder: Path) -> set[bytes]:
    """The messages that a broker had to cut, from the files in its folder."""
    data = folder / "data"
    return {
        record.body
        for file in lost_files(SystemFiles(), data)
        for _, batch in lost_batches(data, file.name)
        for record in decode_records(bytes(batch))
    }


def stands_still(member: Member) -> bool:
    process = member._process
    assert process is not None
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


async def is_elected(group: Group, old: Member, epoch: int) -> bool:
    """Whether another broker leads a later epoch; False: the old one is alone in the set, so none will."""
    async with asyncio.timeout(PATIENT_S):
        while True:
            found = await group.record.read()
            if found.epoch > epoch:
                return True
            if {one.name for one in found.in_sync} == {old.address}:
                return False
            await a_moment()


async def lose_the_leader(group: Group) -> tuple[Member, list[bytes], LeaderDescription]:
    """Kills a leader that has acknowledged messages which no other broker has.

    Replicas stand still meanwhile. Where that took so long that the leader took them out of the set, none of them can be
    elected and nothing is lost, so it is done again.
    """
    for turn in range(20):
        await group.in_sync()
        leader, epoch = await group.leader(), (await group.record.read()).epoch
        others = [one for one in group.members if one is not leader]
        first, *rest = (
            Message(topic=TOPIC, body=b"alone %d %d" % (turn, number), key="k")
            for number in range(20)
        )
        async with (
            Producer(group.address, settings=PATIENT) as producer,
            AdminClient(group.address, timeout_ms=PATIENT_S * 1_000) as admin,
        ):
            for one in others:
                one.take(signal.SIGSTOP)
            async with asyncio.timeout(PATIENT_S):
                while not all(map(stands_still, others)):
                    await asyncio.sleep(0)
            # The first one may still be on its way to a replica; of the rest none can be.
            await producer.send(first)
            await producer.send_many(rest)
            (told,) = (await admin.status()).leads
            await leader.end(signal.SIGKILL)
        for one in others:
            one.take(signal.SIGCONT)
        if await is_elected(group, leader, epoch):
            return leader, [one.body for one in (first, *rest)], told
        await leader.start()
    pytest.fail("replicas always stood still for longer than a leader waits")


async def let_alone(group: Group, url: str) -> None:
    """Returns when the leader acknowledges alone; each broker reports within seconds, and the leader reads the record."""

    async def is_changed() -> bool:
        return (await ack(url, "leader")).exit_code == 0

    async def knows() -> bool:
        return (await leader_says(group)).ack == ACK_LEADER

    await until(is_changed)
    await until(knows)


async def fail_over_with_loss(group: Group, read: list[bytes]) -> tuple[Member, set[bytes]]:
    """Returns the leader that was killed, and what was lost; consumers go on with the first new message."""

    async def consume(consumer: Consumer) -> None:
        while True:
            for record in await consumer.poll():
                read.append(record.body)
                consumer.ack(record)

    async with Consumer(group.address, group="g", topics=[TOPIC]) as consumer:
        consuming = asyncio.create_task(consume(consumer))
        await send(group, [b"before"])
        old, acknowledged, told = await lose_the_leader(group)
        assert told.loss_bytes > 0
        new = await group.leader()
        assert "messages may be lost: the leader before acknowledged alone" in new.log()
        found = set(await bodies_of(group.address))
        lost = set(acknowledged) - found
        assert b"before" in found
        assert set(acknowledged[1:]) <= lost
        fresh = [b"new %d" % number for number in range(50)]
        await send(group, fresh)

        async def is_read() -> bool:
            return consuming.done() or fresh[-1] in read

        await until(is_read)
        consuming.cancel()
        with suppress(asyncio.CancelledError):
            await consuming
    assert [body for body in dict.fromkeys(read) if body in fresh] == fresh
    return old, lost


async def test_a_broker_that_comes_back_keeps_what_it_acknowledged_alone(
    tmp_path: Path, free_port: Callable[[], int], postgres_database: str
) -> None:
    url = postgres_database
    folders = {f"127.0.0.1:{free_port()}": tmp_path / name for name in "abc"}
    members = [Member(folder, address, url) for address, folder in folders.items()]
    async with running(Group(members, url)) as group:
        await let_alone(group, url)
        async with Producer(group.address, settings=PATIENT) as producer:
            await producer.create_topic(TOPIC, queues=QUEUES)
        old, lost = await fail_over_with_loss(group, [])
        await old.start()
        await group.in_sync()
        assert lost <= kept_by(folders[old.address])
        assert "messages were lost: the leader began without the end of this log" in old.log()

        async def together() -> bool:
            return (await ack(url, "in-sync")).exit_code == 0

        await until(together)
        assert (await group.record.read()).ack == ACK_IN_SYNC
        safe = [b"safe %d" % number for number in range(50)]
        await send(group, safe)
        assert (await leader_says(group)).loss_bytes == 0
        await (await group.leader()).end(signal.SIGKILL)
        assert set(safe) <= set(await bodies_of(group.address))
    for one in members:
        assert "Traceback" not in one.log()

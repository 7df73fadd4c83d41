"""Brokers of a group whose disk or clock is not as it should be: the group goes on, and nothing is lost."""

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.replicas.progress.progress import REPLICA_LAG_MS_MAX
from headrace_mq.cluster.election import LEASE_MS
from tests.integration.mq.broker_group import (
    PATIENT_S,
    QUEUES,
    TOPIC,
    Group,
    Member,
    Senders,
    a_moment,
)
from tests.integration.mq.metrics import scrape

# With a start and a failover on a busy machine; see `PATIENT_S`.
pytestmark = pytest.mark.timeout(320)
PROGRAM = str(Path(__file__).with_name("troubled_broker.py"))
HOUR_MS = 3_600_000
SLOW_S = 0.2
# A clock namespace in which the machine has run for an hour longer.
LATER = ["unshare", "--time", "--monotonic", "3600", "--boottime", "3600"]


def prefixes() -> list[list[str]]:
    """One broker's leases are by a clock that is an hour ahead, where the machine can do that."""
    tried = subprocess.run([*LATER, "true"], check=False, capture_output=True)
    return [[], LATER if tried.returncode == 0 else [], []]


async def slow_ones(member: Member) -> tuple[float, float]:
    """How many of a broker's flushes and acknowledgements took longer than a tenth of a second."""
    port = int(member.option("--metrics").rpartition(":")[2])
    found = await scrape(port)
    return (
        found["flush_seconds_count",] - found["flush_seconds_bucket", "0.1"],
        found["append_seconds_count",] - found["append_seconds_bucket", "0.1"],
    )


@pytest.fixture
async def group(
    tmp_path: Path, free_port: Callable[[], int], postgres_database: str
) -> AsyncIterator[Group]:
    members = [
        Member(
            tmp_path / name, f"127.0.0.1:{free_port()}", postgres_database,
            "--metrics", f"127.0.0.1:{free_port()}",
            prefix=prefix, program=[PROGRAM, str(tmp_path / name)],
        )
        for name, prefix in zip("abc", prefixes(), strict=True)
    ]  # fmt: skip
    made = Group(members, postgres_database)
    async with AsyncExitStack() as stack:
        for member in members:
            stack.push_async_callback(member.end)
        stack.push_async_callback(made.record.aclose)
        for member in members:
            await member.start()
        await made.in_sync()
        yield made


@pytest.fixture
async def senders(group: Group) -> AsyncIterator[Senders]:
    async with AdminClient(group.address, timeout_ms=30_000) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES)
    made = Senders(group.address)
    yield made
    await made.end(group)


async def test_a_replica_with_a_slow_disk_leaves_the_set_and_comes_back(
    group: Group, senders: Senders
) -> None:
    await senders.more(200)
    leader, before = await group.leader(), await group.record.read()
    slow = next(one for one in group.members if one is not leader)
    began = time.monotonic()
    slow.trouble("sync_s", 2 * REPLICA_LAG_MS_MAX / 1_000)
    async with asyncio.timeout(PATIENT_S):
        while slow.address in {one.name for one in (await group.record.read()).in_sync}:
            await a_moment()
    assert time.monotonic() - began > REPLICA_LAG_MS_MAX / 1_000 - 1
    await senders.go_on_for(1)
    assert len((await group.record.read()).in_sync) == 2
    slow.trouble("sync_s", 0)
    await group.in_sync()
    await senders.more(100)
    assert (await group.record.read()).epoch == before.epoch


async def test_a_leader_with_a_slow_disk_goes_on_slowly_and_says_so_until_another_one_leads(
    group: Group, senders: Senders
) -> None:
    """Each of the four producers waits for a flush with each message."""
    await senders.more(200)
    leader, before = await group.leader(), await group.record.read()
    flushes, acknowledgements = await slow_ones(leader)
    leader.trouble("sync_s", SLOW_S)
    began = time.monotonic()
    await senders.more(40)
    assert time.monotonic() - began > 5 * SLOW_S
    # The rules of alarms for slow flushes and acknowledgements look at these.
    more_flushes, more_acknowledgements = await slow_ones(leader)
    assert more_flushes - flushes > 5
    assert more_acknowledgements - acknowledgements > 5
    assert (await group.record.read()).epoch == before.epoch
    async with AdminClient(group.address, timeout_ms=30_000) as admin:
        await admin.hand_over()
    async with asyncio.timeout(PATIENT_S):
        while (await group.record.read()).leader == leader.address:
            await a_moment()
    # A replica that is slow, and not too slow for the set.
    await senders.more(20)
    leader.trouble("sync_s", 0)
    await group.in_sync()
    await senders.more(100)


async def test_a_leader_whose_disk_stands_still_for_seconds_loses_nothing(
    group: Group, senders: Senders
) -> None:
    """Twice as long as a lease: it goes on afterwards, or another one leads meanwhile."""
    await senders.more(200)
    leader = await group.leader()
    leader.trouble("sync_s", 2 * LEASE_MS / 1_000)
    await senders.more(8)
    leader.trouble("sync_s", 0)
    await senders.more(100)
    await group.in_sync()
    await senders.more(100)


async def test_brokers_whose_clocks_jump_elect_no_leader_but_for_one_that_is_lost(
    group: Group, senders: Senders
) -> None:
    await senders.more(200)
    leader, before = await group.leader(), await group.record.read()
    others = [one for one in group.members if one is not leader]
    for member, ahead_ms in zip([leader, *others], [HOUR_MS, -HOUR_MS, HOUR_MS], strict=True):
        member.trouble("ahead_ms", ahead_ms)
    await senders.go_on_for(LEASE_MS / 1_000 + 1)
    # And back again.
    leader.trouble("ahead_ms", -HOUR_MS)
    await senders.go_on_for(1)
    assert await group.record.read() == before
    await leader.end()
    await senders.more(200)
    assert (await group.record.read()).epoch > before.epoch
    await leader.start()
    await group.in_sync()

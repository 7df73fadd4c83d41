"""Brokers of a group on machines whose network is cut: nothing is lost, and producers go on.

Each broker is in a network of its own. The record stays reachable: it is behind a Unix socket.
"""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from headrace_mq.admin.client import AdminClient
from tests.integration.mq.broker_group import QUEUES, TOPIC, Group, Member, Senders
from tests.integration.mq.networks import Networks, unavailable

NAMES = "abc"
PORT = 9876
# Four seconds on a quiet machine: a lease of three, and clients look for a leader four times a second.
SECONDS_MAX = 15


@pytest.fixture
def networks() -> Iterator[Networks]:
    reason = unavailable()
    if reason:
        pytest.skip(reason)
    with Networks(NAMES) as made:
        yield made


@pytest.fixture
async def group(networks: Networks, tmp_path: Path, postgres_database: str) -> AsyncIterator[Group]:
    members = [
        Member(
            tmp_path / name, f"{address}:{PORT}", postgres_database,
            "--host", address, "--insecure", prefix=networks.prefix(name),
        )
        for name, address in networks.addresses.items()
    ]  # fmt: skip
    made = Group(members, postgres_database)
    async with AsyncExitStack() as stack:
        for member in members:
            stack.push_async_callback(member.end)
        stack.push_async_callback(made.record.aclose)
        for member in members:
            await member.start()
            await made.leader()
        await made.in_sync()
        yield made


@pytest.fixture
async def senders(group: Group) -> AsyncIterator[Senders]:
    async with AdminClient(group.address, timeout_ms=30_000) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES)
    made = Senders(group.address)
    yield made
    await made.end(group)


def name_of(networks: Networks, member: Member) -> str:
    return next(name for name, at in networks.addresses.items() if member.address == f"{at}:{PORT}")


@pytest.mark.parametrize(
    "lost",
    [{"out": True, "into": True}, {"out": True, "into": False}, {"out": False, "into": True}],
    ids=["both ways", "what it sends", "what it is sent"],
)
async def test_producers_go_on_when_the_leaders_network_is_cut(
    networks: Networks,
    group: Group,
    senders: Senders,
    lost: dict[str, bool],
) -> None:
    await senders.more(200)
    leader = await group.leader()
    begun = time.monotonic()
    networks.cut(name_of(networks, leader), **lost)
    # Each producer may have had one answer on its way.
    await senders.more(8)
    assert time.monotonic() - begun < SECONDS_MAX
    networks.heal()
    await group.in_sync()
    assert await group.leader() is not leader
    await senders.more(100)


async def test_producers_go_on_when_a_replica_is_cut_off_from_its_leader(
    networks: Networks, group: Group, senders: Senders
) -> None:
    await senders.more(200)
    leader = await group.leader()
    replica = next(one for one in group.members if one is not leader)
    begun = time.monotonic()
    networks.part(name_of(networks, leader), name_of(networks, replica))
    await senders.more(8)
    assert time.monotonic() - begun < SECONDS_MAX
    networks.heal()
    await group.in_sync()
    await senders.more(100)

"""Brokers of a group on machines whose network is cut: nothing is lost, and producers go on.

Each broker is in a network of its own, and so is the group's record: what listens there passes on to PostgreSQL, or to
etcd.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
from sqlalchemy import URL, make_url

from headrace_mq.admin.client import AdminClient
from headrace_mq.cluster.election import LEASE_MS
from tests.etcd_server import EtcdServer
from tests.integration.mq.broker_group import QUEUES, TOPIC, Group, Member, Senders
from tests.integration.mq.networks import Networks, unavailable

# With a start and a failover on a busy machine; see `PATIENT_S`.
pytestmark = pytest.mark.timeout(320)
NAMES = "abc"
RECORD = "r"
PORT = 9876
RECORD_PORT = 5432
# Where a record is that a test cuts off.
RECORDS = ["postgres_database", "etcd"]
# Cuts of what a place sends, and of what it is sent.
BOTH, SENT, RECEIVED = (True, True), (True, False), (False, True)
# Four seconds on a quiet machine: a lease of three, and clients look for a leader four times a second. Without that look
# they would wait for a minute, until the system gives a connection up.
SECONDS_MAX = 100
# By then a replica would lead.
LEASE_S = LEASE_MS / 1_000 + 1


@pytest.fixture
def networks() -> Iterator[Networks]:
    reason = unavailable()
    if reason:
        pytest.skip(reason)
    with Networks([*NAMES, RECORD]) as made:
        yield made


class Relay:
    """Passes bytes on between connections that it accepts and the server of a record."""

    def __init__(self, url: URL) -> None:
        self._url = url
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await self._open()
        self._writers += [writer, back]
        await asyncio.gather(self._pass_on(reader, back), self._pass_on(there, writer))

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._url.port is None:
            return await asyncio.open_unix_connection(f"{self._url.query['host']}/.s.PGSQL.5432")
        return await asyncio.open_connection(self._url.host, self._url.port)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
        writer.close()

    def end(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@pytest.fixture
def direct(networks: Networks, request: pytest.FixtureRequest) -> str:
    """The URL of the record past all cuts; in PostgreSQL if a test asks for nothing else.

    An etcd starts after the networks: it listens in that of the test alone.
    """
    found = request.getfixturevalue(getattr(request, "param", "postgres_database"))
    return found.url if isinstance(found, EtcdServer) else str(found)


@pytest.fixture
async def record(networks: Networks, direct: str) -> AsyncIterator[str]:
    """The URL of the record, as brokers reach it."""
    parts = make_url(direct)
    relay = Relay(parts)
    listener = networks.listen(RECORD, RECORD_PORT)
    server = await asyncio.start_server(relay.serve, sock=listener)
    there = f"{networks.addresses[RECORD]}:{RECORD_PORT}"
    if parts.database:
        yield f"postgresql://postgres@{there}/{parts.database}"
    else:
        yield f"etcd://{there}"
    server.close()
    relay.end()


@pytest.fixture
async def group(
    networks: Networks, tmp_path: Path, direct: str, record: str
) -> AsyncIterator[Group]:
    places = {name: networks.addresses[name] for name in NAMES}
    members = [
        Member(
            tmp_path / name, f"{address}:{PORT}", record,
            "--host", address, "--insecure", prefix=networks.prefix(name),
        )
        for name, address in places.items()
    ]  # fmt: skip
    # The test itself reads the record past all cuts.
    made = Group(members, direct)
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


def name_of(networks: Networks, member: Member) -> str:
    return next(name for name, at in networks.addresses.items() if member.address == f"{at}:{PORT}")


@pytest.mark.parametrize(
    ("direct", "cuts"),
    [("postgres_database", [BOTH, SENT, RECEIVED]), ("etcd", [BOTH])],
    indirect=["direct"],
)
async def test_producers_go_on_when_the_leaders_network_is_cut(
    networks: Networks, group: Group, senders: Senders, cuts: list[tuple[bool, bool]]
) -> None:
    """In both directions, of what it sends alone, and of what it is sent alone."""
    for out, into in cuts:
        await senders.more(200)
        leader = await group.leader()
        begun = time.monotonic()
        networks.cut(name_of(networks, leader), out=out, into=into)
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


@pytest.mark.parametrize("direct", RECORDS, indirect=True)
async def test_a_group_without_its_record_goes_on_and_elects_when_the_record_is_back(
    networks: Networks, group: Group, senders: Senders
) -> None:
    await senders.more(200)
    leader, before = await group.leader(), await group.record.read()
    # Away from the leader alone: the others could elect one, and hear the leader.
    networks.part(name_of(networks, leader), RECORD)
    await senders.go_on_for(LEASE_S)
    networks.heal()
    # Away from all.
    networks.cut(RECORD, out=True, into=True)
    await senders.go_on_for(LEASE_S)
    for member in group.members:
        assert "the group's record cannot be read" in member.log()
    assert await group.record.read() == before
    assert await group.leader() is leader
    # The leader is lost meanwhile: what was on its way may be acknowledged, and then nothing.
    await leader.end()
    await senders.stand_still_for(LEASE_S)
    assert await group.record.read() == before
    networks.heal()
    await senders.more(100)
    assert (await group.record.read()).epoch > before.epoch
    assert await group.leader() is not leader
    await leader.start()
    await group.in_sync()


@pytest.mark.parametrize("direct", RECORDS, indirect=True)
async def test_producers_leave_a_leader_that_reaches_only_them(
    networks: Networks, group: Group, senders: Senders
) -> None:
    await senders.more(200)
    leader = await group.leader()
    name = name_of(networks, leader)
    begun = time.monotonic()
    for other in {*networks.addresses} - {name}:
        networks.part(name, other)
    await senders.more(8)
    assert time.monotonic() - begun < SECONDS_MAX
    networks.heal()
    await group.in_sync()
    assert await group.leader() is not leader
    await senders.more(100)

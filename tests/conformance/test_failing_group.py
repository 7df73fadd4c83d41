"""The transport keeps the port's promises while the group of brokers under it loses its leader every few seconds."""

import asyncio
import socket
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import make_url

from headrace.testing.conformance import transport as suite
from headrace.testing.conformance.transport import TransportConformance
from headrace.transports.base import Transport
from headrace.transports.queue import QueueTransport
from headrace_mq.admin.client import AdminClient
from headrace_mq.errors import MessageQueueError
from headrace_mq.testing.conformance.deployment import QUICK
from tests.conftest import connect
from tests.integration.mq.broker_group import Group, Member

# Between two changes of the leader, once all are in sync.
CALM_S = 0.5
# A leader that is killed may take offsets of the last second with it, so that a message comes twice: no leader goes during
# these.
COUNT_ON_OFFSETS = {
    "test_the_members_of_a_group_share_its_messages",
    "test_a_member_that_leaves_hands_over_what_it_has_not_done",
    "test_what_was_done_does_not_come_again",
    "test_a_group_that_keeps_its_offsets_decides_where_it_begins",
    "test_a_queue_without_an_offset_begins_where_the_topic_begins",
    "test_a_group_is_told_how_far_it_is",
}


class FailingGroup:
    """Three brokers, on a thread of their own, that are made to change their leader again and again."""

    def __init__(self, folder: Path, server: str) -> None:
        self._folder = folder
        # They stay free for the brokers, which come back to them.
        self._holders = [socket.socket() for _ in range(3)]
        for holder in self._holders:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("127.0.0.1", 0))
        ports = self._ports = [int(one.getsockname()[1]) for one in self._holders]
        self._server = server
        self.address = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.changes = 0
        # While it is held, no leader goes.
        self.calm = threading.Lock()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(120)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        for holder in self._holders:
            holder.close()

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        database = f"failing_{uuid.uuid4().hex}"
        connection = await connect(self._server)
        await connection.execute(f"CREATE DATABASE {database}")
        record = make_url(self._server).set(database=database).render_as_string()
        members = [
            Member(self._folder / str(port), f"127.0.0.1:{port}", record) for port in self._ports
        ]
        group = Group(members, record)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(connection.close)
            for member in members:
                stack.push_async_callback(member.end)
            stack.push_async_callback(group.record.aclose)
            for member in members:
                await member.start()
            await group.in_sync()
            await self._trouble(group)
        assert self._stop.is_set()

    async def _trouble(self, group: Group) -> None:
        """Asks the leader to hand over, or kills it and starts it again, in turn."""
        while not self._stop.is_set():
            await group.in_sync()
            self._ready.set()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), CALM_S)
            await asyncio.to_thread(self.calm.acquire)
            try:
                await self._change(group)
            finally:
                self.calm.release()
            self.changes += 1

    async def _change(self, group: Group) -> None:
        leader = await group.leader()
        if self.changes % 2:
            await leader.end()
            await leader.start()
        else:
            async with AdminClient(group.address, timeout_ms=30_000) as admin:
                await admin.hand_over()


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory, postgres_url: str) -> Iterator[FailingGroup]:
    made = FailingGroup(tmp_path_factory.mktemp("group"), postgres_url)
    made.start()
    yield made
    made.close()
    assert made.changes > 1


async def connected(group: FailingGroup) -> QueueTransport:
    transport = QueueTransport(group.address, consumer=QUICK)
    await transport.start()
    return transport


class TestQueueTransportOverFailingLeaders(TransportConformance):
    @pytest.fixture(autouse=True)
    def _patient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A change of the leader takes longer than the suite's own delay."""
        monkeypatch.setattr(suite, "AHEAD", timedelta(seconds=3))

    @pytest.fixture(autouse=True)
    def _calm(self, request: pytest.FixtureRequest, group: FailingGroup) -> Iterator[None]:
        calm = request.node.name in COUNT_ON_OFFSETS
        if calm:
            group.calm.acquire()
        yield
        if calm:
            group.calm.release()

    @pytest.fixture
    async def transport(self, group: FailingGroup) -> AsyncIterator[Transport]:
        transport = await connected(group)
        yield transport
        with suppress(MessageQueueError):
            await transport.aclose()

    @pytest.fixture
    async def twin(self, group: FailingGroup) -> AsyncIterator[Transport]:
        twin = await connected(group)
        yield twin
        with suppress(MessageQueueError):
            await twin.aclose()

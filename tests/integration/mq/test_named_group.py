"""Real brokers and real name servers: clients go on while each of them is killed, and when none is left that they knew."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.admin.name_servers import ask_name_servers
from headrace_mq.protocol.names.routes import LEADER, REPLICA, RoutesAnswer
from tests.integration.mq.broker_group import (
    PATIENT_S,
    QUEUES,
    TOPIC,
    Group,
    Member,
    Senders,
    a_moment,
)

# With a start and a failover on a busy machine; see `PATIENT_S`.
pytestmark = pytest.mark.timeout(320)


class NameServerProcess:
    """One name server."""

    def __init__(self, address: str, log: Path) -> None:
        self.address = address
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "headrace", "nameserver", "--port", self.address.rpartition(":")[2],
                stdout=log, stderr=log,
            )  # fmt: skip

    async def end(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


class NamedGroup(Group):
    """A group whose clients know two name servers, and none of its brokers."""

    def __init__(self, folder: Path, free_port: Callable[[], int], record: str) -> None:
        self.names = [
            NameServerProcess(f"127.0.0.1:{free_port()}", folder / f"names{number}")
            for number in range(2)
        ]
        self.servers = ",".join(one.address for one in self.names)
        a, b, self.later = (
            Member(folder / name, f"127.0.0.1:{free_port()}", record, "--nameservers", self.servers)
            for name in "abc"
        )
        super().__init__([a, b], record)
        self.address = f"nameserver://{self.servers}/default"

    async def known(self, *roles: str) -> None:
        """Returns when each name server knows brokers with these roles."""
        async with asyncio.timeout(PATIENT_S):
            while True:
                found = await ask_name_servers(self.servers, timeout_ms=30_000)
                told = [one for one in found.values() if isinstance(one, RoutesAnswer)]
                if len(told) == len(self.names) and all(
                    one.ready and [each.role for each in one.brokers] == list(roles) for one in told
                ):
                    return
                await a_moment()


@pytest.fixture
async def group(
    tmp_path: Path, free_port: Callable[[], int], postgres_database: str
) -> AsyncIterator[NamedGroup]:
    made = NamedGroup(tmp_path, free_port, postgres_database)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(made.record.aclose)
        for each in (*made.names, *made.members, made.later):
            stack.push_async_callback(each.end)
        # All at once: which of them leads does not matter.
        for each in (*made.names, *made.members):
            await each.start()
        await made.in_sync()
        yield made


async def test_clients_go_on_when_all_that_they_knew_is_killed_or_gone(group: NamedGroup) -> None:
    await group.known(LEADER, REPLICA)
    async with AdminClient(group.address, timeout_ms=PATIENT_S * 1_000) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES)
    senders = Senders(group.address)
    await senders.more(40)

    killed = await group.leader()
    await killed.end()
    await group.later.start()
    await senders.more(40)
    await killed.start()
    old, group.members = group.members, [*group.members, group.later]
    await group.in_sync()

    await group.names[0].end()
    await senders.more(40)
    await group.names[0].start()
    await group.known(LEADER, REPLICA, REPLICA)

    await group.in_sync()
    for member in old:
        await member.end(signal.SIGTERM)
    await senders.more(40)
    assert await group.leader() is group.later
    await senders.end(group)

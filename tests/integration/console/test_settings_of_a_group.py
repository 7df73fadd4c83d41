"""The settings of a group of brokers: each broker tells its own, also a replica, and what differs is marked."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from headrace.figures.settings import settings_shown
from headrace_mq import AdminClient
from headrace_mq.broker.replicated_broker import ReplicatedBroker
from headrace_mq.settings import BrokerSettings, GroupSettings, StoreSettings

# A busy machine.
WAIT_MS = 120_000


@pytest.fixture
async def addresses(
    tmp_path: Path, free_port: Callable[[], int], postgres_database: str
) -> AsyncIterator[list[str]]:
    """Two brokers of a group, which were given another limit by two sources."""
    async with AsyncExitStack() as stack:
        made: list[ReplicatedBroker] = []
        for number, name in enumerate("ab"):
            settings = BrokerSettings(
                store=StoreSettings(directory=tmp_path / name), port=free_port(),
                group=GroupSettings(record=postgres_database), connections_max=1_000 + number,
            )  # fmt: skip
            made.append(ReplicatedBroker(settings, sources={"connections_max": f"{name}.toml"}))
            await made[-1].start()
            stack.push_async_callback(made[-1].aclose)
            async with AdminClient(made[0].address, timeout_ms=WAIT_MS) as admin:
                await admin.create_topic(f"of-{name}", 1)
        yield [one.address for one in made]


async def test_a_replica_tells_its_settings_and_the_difference_is_marked(
    addresses: list[str], postgres_database: str
) -> None:
    async with AdminClient(",".join(addresses), timeout_ms=WAIT_MS) as admin:
        async with asyncio.timeout(WAIT_MS / 1_000):
            while (found := await settings_shown(admin)).silent:
                pass
    assert list(found.brokers) == addresses
    differing = {one.name: one for one in found.settings if one.differs}
    assert differing.keys() == {"connections_max"}
    told = [(one.broker, one.value, one.source) for one in differing["connections_max"].brokers]
    assert told == [(addresses[0], "1000", "a.toml"), (addresses[1], "1001", "b.toml")]
    (record,) = (one for one in found.settings if one.name == "group.record")
    assert "@" not in record.brokers[0].value
    assert record.brokers[0].value.startswith("postgresql")
    assert postgres_database.partition("://")[0] in record.brokers[0].value

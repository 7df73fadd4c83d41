"""
A real broker, or a name server, in the test's own process: on a free port, with its files in memory.

    async with broker() as address, Producer(address) as producer:
        await producer.send(Message(topic="orders", body=b"..."))

The broker ends with its block, and its files are gone with its disk. Used by your tests.
"""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from headrace_mq._runtime.clock import Clock
from headrace_mq.broker.server import Broker
from headrace_mq.name_settings import NameServerSettings
from headrace_mq.nameserver.name_server import NameServer
from headrace_mq.settings import BrokerSettings, StoreSettings
from headrace_mq.testing.simulated_disk import SimulatedDisk

__all__ = ["broker", "memory_disk", "name_server"]

DIRECTORY = Path("/broker")
# Enough for a test's messages; reserving a whole segment of the usual size would take 1 GiB.
SEGMENT_BYTES = 1 << 20


def memory_disk() -> SimulatedDisk:
    """A disk in memory that is quick and never full; give it to two brokers for a restart."""
    disk = SimulatedDisk(random.Random(0))  # noqa: S311 - repeatable on purpose
    disk.cold, disk.sync_us = 0.0, (0, 0)
    return disk


@asynccontextmanager
async def broker(
    settings: BrokerSettings | None = None,
    *,
    clock: Clock | None = None,
    disk: SimulatedDisk | None = None,
) -> AsyncIterator[str]:
    """Runs a broker for an `async with` block, and gives its address.

    Args:
        settings: of the broker; the port is ignored, and nothing of the store touches the disk.
        clock: the broker's time, for instance a `ManualClock`; without it the machine's.
        disk: where its files are; one that another block used holds what that one stored.
    """
    store = StoreSettings(
        directory=DIRECTORY, segment_bytes=SEGMENT_BYTES, compact_segment_bytes=SEGMENT_BYTES
    )
    chosen = settings or BrokerSettings(store=store)
    values = {name: getattr(chosen, name) for name in chosen.__struct_fields__}
    disk = disk or memory_disk()
    running = Broker(
        BrokerSettings(**(values | {"port": 0})), clock=clock, disk=disk, files=disk.mount()
    )
    await running.start()
    try:
        yield running.address
    finally:
        await running.aclose()


@asynccontextmanager
async def name_server(
    *, port: int = 0, clock: Clock | None = None, **settings: Any
) -> AsyncIterator[NameServer]:
    """Runs a name server for an `async with` block; it is ready at once unless `not_ready_ms` says otherwise.

    Args:
        port: 0 takes a free one.
        clock: its time; without it the machine's.
        settings: others of `NameServerSettings`.
    """
    server = NameServer(
        NameServerSettings(port=port, **{"not_ready_ms": 0, **settings}), clock=clock
    )
    await server.start()
    try:
        yield server
    finally:
        await server.aclose()

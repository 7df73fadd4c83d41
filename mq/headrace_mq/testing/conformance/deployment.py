"""
What the suite needs of a broker: an address, a way to stop, to crash and to start it, and time.

Used by the suite; implemented for each kind of deployment.
"""

import asyncio
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from headrace_mq._runtime.clock import Clock
from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.server import Broker
from headrace_mq.cluster.records.keeper import keeper_of
from headrace_mq.settings import BrokerSettings, ConsumerSettings, StoreSettings
from headrace_mq.testing.clock import ManualClock
from headrace_mq.testing.embedded import DIRECTORY, SEGMENT_BYTES, memory_disk
from headrace_mq.testing.simulated_disk import MountedFiles

__all__ = [
    "QUICK",
    "Deployment",
    "EmbeddedDeployment",
    "GroupDeployment",
    "ProcessDeployment",
    "fresh",
    "refused",
]

# What a consumer of the suite waits for as little as it may.
QUICK = ConsumerSettings(
    heartbeat_ms=50, topics_refresh_ms=50, commit_interval_ms=50, reconnect_ms_max=100
)
# A leader that was ended is followed by another one within seconds, and is in sync again soon after its start.
GROUP_MS_MAX = 60_000
# How often the group's record is read until they are.
LOOK_MS = 20

_CODE = """
import sys
from pathlib import Path
from headrace_mq.broker.process import run
from headrace_mq.settings import BrokerSettings, GroupSettings, StoreSettings

directory, port, record = sys.argv[1:]
settings = BrokerSettings(
    store=StoreSettings(directory=Path(directory), segment_bytes=8 << 20),
    port=int(port),
    group=GroupSettings(record=record) if record else None,
)
run(settings, ready=lambda address: print("ready", address, flush=True))
"""


def fresh(what: str) -> str:
    """Makes a name that no other test uses: a deployment may serve many of them."""
    return f"{what}-{uuid.uuid4().hex[:12]}"


@contextmanager
def refused(error: type[Exception]) -> Iterator[None]:
    """Fails unless the block raises an error of this type."""
    try:
        yield
    except error:
        return
    raise AssertionError(f"what should have raised {error.__name__} went through")


class Deployment(Protocol):
    """A running broker that stores what it acknowledges, and creates topics by itself."""

    @property
    def address(self) -> str:
        """Where clients connect; may be another one after a start."""
        ...

    async def restart(self) -> None:
        """Stops it in order, and starts it on what it stored."""
        ...

    async def crash(self) -> None:
        """Ends it with no chance to do anything more, and starts it on what it stored."""
        ...

    async def pass_ms(self, milliseconds: int) -> None:
        """Lets at least so much of the broker's time pass."""
        ...


class EmbeddedDeployment:
    """A broker in this process whose files are in memory and whose time a test moves.

    A crash takes its power: of what was not synced any part may be lost.
    """

    def __init__(self) -> None:
        self.clock = ManualClock()
        self._disk = memory_disk()
        self._running: tuple[Broker, MountedFiles] | None = None

    @property
    def address(self) -> str:
        """Where clients connect."""
        return self._running[0].address if self._running else ""

    async def start(self) -> None:
        """Starts it. Raises MessageQueueError: it cannot."""
        clock: Clock = self.clock
        files = self._disk.mount()
        store = StoreSettings(directory=DIRECTORY, segment_bytes=SEGMENT_BYTES)
        broker = Broker(
            BrokerSettings(store=store, port=0), clock=clock, disk=self._disk, files=files
        )
        await broker.start()
        self._running = broker, files

    async def aclose(self) -> None:
        """Stops it in order."""
        if self._running is not None:
            broker, self._running = self._running[0], None
            await broker.aclose()

    async def restart(self) -> None:
        """Stops it in order, and starts it on the same disk."""
        await self.aclose()
        await self.start()

    async def crash(self) -> None:
        """Cuts its power and starts it again."""
        assert self._running is not None
        broker, files = self._running
        # From here on it is a ghost: nothing that it does reaches the disk.
        files.abandon()
        self._disk.cut_power()
        self._running = None
        await broker.aclose()
        await self.start()

    async def pass_ms(self, milliseconds: int) -> None:
        """Moves its clock."""
        self.clock.advance(milliseconds)


class ProcessDeployment:
    """A broker in a process of its own; `start` and `close` need no event loop.

    Args:
        directory: of its files.
        port: where it listens; 0: at any free one.
        record: the URL of the record of its group; empty: it is alone.
    """

    def __init__(self, directory: Path, *, port: int = 0, record: str = "") -> None:
        self._arguments = [str(directory), str(port), record]
        self._process: subprocess.Popen[str] | None = None
        self.address = ""

    def start(self) -> None:
        """Starts it. Raises RuntimeError: it ended before it was ready."""
        command = [sys.executable, "-P", "-c", _CODE, *self._arguments]
        process = self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("ready "):
                self.address = line.split()[1]
                return
        status = process.wait()
        self.close()
        raise RuntimeError(f"the broker ended with status {status}; see its log")

    def close(self, number: int = signal.SIGTERM) -> None:
        """Ends it with a signal and waits for its end."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    async def restart(self) -> None:
        """SIGTERM, and a new process on the same files."""
        await asyncio.to_thread(self.close)
        await asyncio.to_thread(self.start)

    async def crash(self) -> None:
        """SIGKILL, and a new process on the same files."""
        await asyncio.to_thread(self.close, signal.SIGKILL)
        await asyncio.to_thread(self.start)

    async def pass_ms(self, milliseconds: int) -> None:
        """Waits."""
        await asyncio.sleep(milliseconds / 1_000)


class GroupDeployment:
    """Brokers of a group, each in a process of its own; `start` and `close` need no event loop.

    What is restarted, and what crashes, is the leader: another one takes over, and it comes back as a replica.

    Args:
        directory: of the brokers' folders.
        ports: of the brokers, which stay free for them.
        record: the URL of the group's record, which they make.
    """

    def __init__(self, directory: Path, ports: Sequence[int], record: str) -> None:
        self._record = record
        self._brokers = {
            f"127.0.0.1:{port}": ProcessDeployment(directory / str(port), port=port, record=record)
            for port in ports
        }
        self.address = ",".join(self._brokers)

    def start(self) -> None:
        """Starts the brokers. Raises RuntimeError: one ended before it was ready; TimeoutError: they are not in sync."""
        try:
            for broker in self._brokers.values():
                broker.start()
            asyncio.run(self._in_sync())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends them in order."""
        for broker in self._brokers.values():
            broker.close()

    async def restart(self) -> None:
        """Lets the leader hand over and stop, and start again."""
        await (await self._leader()).restart()
        await self._in_sync()

    async def crash(self) -> None:
        """Kills the leader, and starts it again."""
        await (await self._leader()).crash()
        await self._in_sync()

    async def pass_ms(self, milliseconds: int) -> None:
        """Waits."""
        await asyncio.sleep(milliseconds / 1_000)

    async def _leader(self) -> ProcessDeployment:
        async with AdminClient(self.address, timeout_ms=GROUP_MS_MAX) as admin:
            return self._brokers[(await admin.describe()).broker]

    async def _in_sync(self) -> None:
        """Returns when one leads, and all are in the set."""
        await self._leader()
        record = keeper_of(self._record, cluster="default", group="g1", timeout_ms=GROUP_MS_MAX)
        try:
            async with asyncio.timeout(GROUP_MS_MAX / 1_000):
                while len((await record.read()).in_sync) < len(self._brokers):  # noqa: ASYNC110 - no event tells
                    await asyncio.sleep(LOOK_MS / 1_000)
        finally:
            await record.aclose()

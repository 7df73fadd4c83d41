"""
What the suite needs of a broker: an address, a way to stop, to crash and to start it, and time.

Used by the suite; implemented for each kind of deployment.
"""

import asyncio
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from headrace_mq._runtime.clock import Clock
from headrace_mq.broker.server import Broker
from headrace_mq.settings import BrokerSettings, ConsumerSettings, StoreSettings
from headrace_mq.testing.clock import ManualClock
from headrace_mq.testing.embedded import DIRECTORY, SEGMENT_BYTES, memory_disk
from headrace_mq.testing.simulated_disk import MountedFiles

__all__ = ["QUICK", "Deployment", "EmbeddedDeployment", "ProcessDeployment", "fresh", "refused"]

# What a consumer of the suite waits for as little as it may.
QUICK = ConsumerSettings(
    heartbeat_ms=50, topics_refresh_ms=50, commit_interval_ms=50, reconnect_ms_max=100
)

_CODE = """
import sys
from pathlib import Path
from headrace_mq.broker.process import run
from headrace_mq.settings import BrokerSettings, StoreSettings

store = StoreSettings(directory=Path(sys.argv[1]), segment_bytes=8 << 20)
run(BrokerSettings(store=store, port=0), ready=lambda address: print("ready", address, flush=True))
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
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None
        self.address = ""

    def start(self) -> None:
        """Starts it. Raises RuntimeError: it ended before it was ready."""
        command = [sys.executable, "-P", "-c", _CODE, str(self._directory)]
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

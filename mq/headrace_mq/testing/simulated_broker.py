"""
A broker on a simulated machine of its own: started, stopped, killed, or without power.

Used by simulations. Like a supervisor it only knows how to start a broker and how it ends.
"""

import asyncio
import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from headrace_mq.broker.server import Broker
from headrace_mq.errors import MessageQueueError
from headrace_mq.settings import BrokerSettings, StoreSettings
from headrace_mq.testing.clock import SimulatedClock
from headrace_mq.testing.processes import Process
from headrace_mq.testing.simulation import Simulation

__all__ = ["SimulatedBroker"]

HOST = "broker"
# Small, so that a start reads little and a run has many segments.
SEGMENT_BYTES = 64 << 10


class SimulatedBroker:
    """A broker's machine.

    Args:
        sim: the world.
        settings: the broker's; the host is the machine's name in the simulated network.
        died: called when it was killed or lost its power.

    Attributes:
        clock: the machine's clock.
    """

    def __init__(
        self,
        sim: Simulation,
        settings: BrokerSettings | None = None,
        *,
        died: Callable[[], None] = lambda: None,
    ) -> None:
        self._sim = sim
        self._settings = settings or BrokerSettings(
            host=HOST,
            insecure=True,
            store=StoreSettings(directory=Path("/data"), segment_bytes=SEGMENT_BYTES),
        )
        self._died = died
        self._starts = 0
        self._running: tuple[Process, Broker] | None = None
        self.host = self._settings.host
        self.disk = sim.disk(self.host)
        self.clock: SimulatedClock = sim.clock()

    @property
    def address(self) -> str:
        """Where clients connect."""
        return f"{self.host}:{self._settings.port}"

    @property
    def is_alive(self) -> bool:
        """Whether its process runs, or stands still."""
        return self._running is not None and self._running[0].alive

    async def start(self) -> None:
        """Starts a broker on what the disk holds, with power if there was none.

        Raises:
            MessageQueueError: it cannot start, though it was not killed.
        """
        self._sim.power_on(self.host)
        self._starts += 1
        process, files = self._sim.start(f"{self.host}-{self._starts}", self.host)
        broker = Broker(self._settings, clock=self.clock, disk=self.disk, files=files)
        self._running = process, broker
        try:
            await process.spawn(broker.start())
        except (MessageQueueError, OSError, asyncio.CancelledError):
            if process.alive:
                raise

    async def stop(self) -> None:
        """SIGTERM: stops it in order."""
        if self._running is not None:
            process, broker = self._running
            await asyncio.wait([process.spawn(broker.aclose())])
            self._sim.kill(process)

    def kill(self) -> None:
        """SIGKILL."""
        if self._running is not None and self.is_alive:
            self._sim.kill(self._running[0])
            self._died()

    def freeze(self) -> None:
        """SIGSTOP: it stands still."""
        if self._running is not None:
            self._sim.stop(self._running[0])

    def thaw(self) -> None:
        """SIGCONT: it goes on."""
        if self._running is not None:
            self._sim.resume(self._running[0])

    def power_off(self) -> None:
        """The machine loses power, and what was not synced may be lost."""
        self.heal_disk()
        was_alive = self.is_alive
        self._sim.power_off(self.host)
        if was_alive:
            self._died()

    async def power_off_within(self, changes: int, seconds: float) -> None:
        """The power goes during one of the next changes of the disk, or after so many seconds."""
        left, off = changes, asyncio.Event()

        def count(_kind: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                off.set()
                self.power_off()

        self.disk.fault = count
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await off.wait()
        if not off.is_set():
            self.power_off()

    def fail_sync(self, number: int) -> None:
        """Lets the number-th sync from now on fail, counted from 1."""
        left = number

        def fail(kind: str) -> None:
            nonlocal left
            left -= kind == "sync"
            if kind == "sync" and left == 0:
                raise OSError(errno.EIO, "the disk failed")

        self.disk.fault = fail

    def heal_disk(self) -> None:
        """Nothing of the disk fails any more."""
        self.disk.fault = lambda _kind: None

"""
One simulated world: a loop with virtual time, a network, machines with disks, and faults.

Everything that happens follows from the seed: the same seed gives the same trace, byte for byte.

Used by tests, which start processes and make faults; wires the simulated parts. Knows nothing of
brokers and messages.
"""

import hashlib
import random
import secrets
import uuid
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

import structlog
from structlog.typing import EventDict, WrappedLogger

from headrace_mq.store.log import batch_reader, index_writer
from headrace_mq.testing.clock import SimulatedClock
from headrace_mq.testing.processes import PROCESS, Process
from headrace_mq.testing.simulated_disk import MountedFiles, SimulatedDisk
from headrace_mq.testing.simulated_loop import SimulatedLoop, elapse
from headrace_mq.testing.simulated_network import SimulatedNetwork
from headrace_mq.testing.simulated_stream import Packet

__all__ = ["InlineExecutor", "Simulation", "Trace", "repeatable"]

T = TypeVar("T")

# A packet on a local network takes between these, in seconds.
LATENCY_S = (0.000_1, 0.005)


UUID_VERSION = 4
UUID_BITS = 128


class InlineExecutor(Executor):
    """Runs every job when it is handed over."""

    def __init__(self, *_: object, **__: object) -> None:
        """Takes what a ThreadPoolExecutor takes."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Runs the job and returns its outcome."""
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - the caller gets it with the outcome
            done.set_exception(error)
        return done


@contextmanager
def repeatable(chosen: random.Random) -> Iterator[None]:
    """Lets everything that is drawn in the block come from one seeded generator."""

    def identity() -> uuid.UUID:
        return uuid.UUID(int=chosen.getrandbits(UUID_BITS), version=UUID_VERSION)

    with (
        patch.object(uuid, "uuid4", identity),
        patch.object(secrets, "randbits", chosen.getrandbits),
        patch.object(random, "SystemRandom", lambda: chosen),
        patch.object(index_writer, "ThreadPoolExecutor", InlineExecutor),
        patch.object(batch_reader, "ThreadPoolExecutor", InlineExecutor),
    ):
        yield


class Trace:
    """What happened, in order: lines for a person, and a hash of every byte that moved.

    Args:
        loop: whose time stands in front of the lines.
    """

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._hash = hashlib.blake2b(digest_size=16)
        self.lines: list[str] = []

    def __call__(self, what: str) -> None:
        """Adds a line."""
        line = f"{self._loop.time():11.6f}  {what}"
        self.lines.append(line)
        self._hash.update(line.encode())

    def packet(self, packet: Packet) -> None:
        """Adds bytes that moved, to the hash alone."""
        head = f"{self._loop.time():.9f} {packet.stream} {packet.source} {packet.arrives} "
        self._hash.update(head.encode())
        self._hash.update(packet.data)

    @property
    def digest(self) -> str:
        """The hash of everything so far."""
        return self._hash.hexdigest()


class Simulation:
    """A world that follows from a seed.

    Args:
        seed: any number.
        latency_s: shortest and usual longest way of a packet, in seconds.

    Attributes:
        chosen: the generator; what is drawn from it is repeated with the seed.
        loop: the event loop.
        network: the network; its `part`, `join` and `drop_one` are faults.
        trace: what happened.
    """

    def __init__(self, seed: int, *, latency_s: tuple[float, float] = LATENCY_S) -> None:
        self.chosen = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self.loop = SimulatedLoop(self.chosen)
        self.network = SimulatedNetwork(self.loop, self.chosen, latency_s=latency_s)
        self.loop.network = self.network
        self.trace = Trace(self.loop)
        self.network.taps.append(self.trace.packet)
        self._disks: dict[str, SimulatedDisk] = {}
        self._processes: list[tuple[Process, MountedFiles]] = []

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine until it ends, and returns what it returns.

        Raises:
            SimulationStalled: it waits for what can never happen.
        """
        with repeatable(self.chosen), self._logs_traced():
            try:
                return self.loop.run_until_complete(main)
            finally:
                self._end_everything()

    def clock(self, ahead_ms: int = 0) -> SimulatedClock:
        """A machine's clock, which may go wrong by some milliseconds."""
        return SimulatedClock(self.loop, ahead_ms)

    def disk(self, host: str) -> SimulatedDisk:
        """The disk of a machine."""
        if host not in self._disks:
            self._disks[host] = SimulatedDisk(self.chosen)
        return self._disks[host]

    def start(self, name: str, host: str) -> tuple[Process, MountedFiles]:
        """Starts a process on a machine; returns it, and the machine's disk as it sees it."""
        process, files = Process(name, host), self.disk(host).mount()
        self._processes.append((process, files))
        return process, files

    # --- faults ---------------------------------------------------------------------------------

    def kill(self, process: Process) -> None:
        """SIGKILL: the process is gone, what it wrote stays."""
        if process.alive:
            self.trace(f"kill {process.name}")
            self._end(process)
            self.network.kill(process)

    def power_off(self, host: str) -> None:
        """The machine loses power: its processes are gone, and what was not synced may be."""
        self.trace(f"power off {host}")
        self.network.power_off(host)
        for process in [process for process, _ in self._processes if process.host == host]:
            self._end(process)
        self.disk(host).cut_power()

    def power_on(self, host: str) -> None:
        """The machine is back, with no process; nothing happens where it has power."""
        if self.network.power_on(host):
            self.trace(f"power on {host}")

    async def elapse(self, seconds: float) -> None:
        """Lets simulated time pass."""
        await elapse(seconds)

    def stop(self, process: Process) -> None:
        """SIGSTOP: the process stands still while time goes on."""
        if process.alive:
            self.trace(f"stop {process.name}")
            process.stopped = True

    def resume(self, process: Process) -> None:
        """SIGCONT: the process goes on, with everything that waited for it."""
        if process.stopped:
            self.trace(f"resume {process.name}")
            self.loop.resume(process)

    # --- the end --------------------------------------------------------------------------------

    def _end(self, process: Process) -> None:
        for known, files in self._processes:
            if known is process and process.alive:
                files.abandon()
                process.end()
                # A ghost has to run to end.
                self.loop.resume(process)
        self._processes = [entry for entry in self._processes if entry[0] is not process]

    def _end_everything(self) -> None:
        for process, _ in list(self._processes):
            self._end(process)
            self.network.kill(process)
        self.loop.run_out()
        self.loop.close()

    @contextmanager
    def _logs_traced(self) -> Iterator[None]:
        def note(_logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
            process = PROCESS.get()
            if process is None or process.alive:
                event.pop("exc_info", None)
                fields = " ".join(f"{name}={value}" for name, value in sorted(event.items()))
                self.trace(f"{process.name if process else '-'} {method}: {fields}")
            raise structlog.DropEvent

        # In place: loggers that are bound already keep this very list.
        processors = structlog.get_config()["processors"]
        kept, configured = list(processors), structlog.is_configured()
        processors[:] = [note]
        # Where the program said nothing of it, lines go to `logging` and not here.
        structlog.configure(processors=processors)
        try:
            yield
        finally:
            processors[:] = kept
            if not configured:
                structlog.reset_defaults()

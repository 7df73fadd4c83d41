"""
What the benchmark asks of a system: a server that runs, and a driver that sends and takes.

A system is a module of `benchmarks.peers.systems` with `MODES` (what an acknowledgement promises,
by name), `serve` and `Driver`, and with `WARM_UPS` where one run is not enough to be at its best.
Everything else, the work and how it is measured, is the same code for all of them.
"""

import importlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable
from zlib import crc32

__all__ = ["Driver", "Pouring", "Serving", "Sharing", "System", "queue_of", "system"]

# Queues of the one topic that everything goes through, unless the command line says otherwise.
QUEUES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A server that is ready.

    Args:
        address: what a driver needs to find it.
        pids: its processes; what they start in turn is counted with them.
        version: its version, as it tells itself.
        settings: what was set otherwise than by default, for the reader of a figure.
    """

    address: str
    pids: tuple[int, ...]
    version: str
    settings: str


class Driver(Protocol):
    """One client process's way to the server, by the system's own client library."""

    async def open(self) -> None:
        """Connects."""

    async def aclose(self) -> None:
        """Disconnects."""

    async def send_many(self, bodies: Sequence[bytes], keys: Sequence[str]) -> None:
        """Sends messages together; returns when the server has acknowledged all."""

    async def send(self, body: bytes, key: str) -> None:
        """Sends one message; returns when the server has acknowledged it."""

    async def join(self) -> None:
        """Begins to consume, at the beginning of what the group has not taken yet."""

    async def leave(self) -> None:
        """Ceases to consume; `join` goes on where it ended."""

    async def take(self) -> Sequence[bytes]:
        """Waits for messages and returns their bodies; none where it has waited long."""

    async def done(self) -> None:
        """Acknowledges, durably where the system does so, what `take` has returned so far."""


@runtime_checkable
class Pouring(Protocol):
    """A driver that can hand over messages without waiting for what becomes of each."""

    async def pour(self, bodies: Sequence[bytes], keys: Sequence[str]) -> None:
        """Hands messages over; returns when they are written to the connection."""

    async def waiting(self) -> int:
        """How many messages the server has that nobody took."""


@runtime_checkable
class Sharing(Protocol):
    """A driver of a system that deals out queues to the members of a group."""

    def held(self) -> int:
        """How many queues it has."""


class DriverFactory(Protocol):
    """Makes a driver."""

    def __call__(self, address: str, queues: int) -> Driver:
        """Makes a driver for a server and its number of queues."""


class System(Protocol):
    """A module of `systems`."""

    MODES: Mapping[str, str]
    Driver: DriverFactory

    @staticmethod
    def serve(folder: Path, mode: str, queues: int) -> AbstractAsyncContextManager[Serving]:
        """Starts a server with an empty topic and stops it again."""


def system(name: str) -> System:
    """Finds a system by its module's name.

    Raises:
        ImportError: its client library is missing; `make peers` installs it.
    """
    module: System = importlib.import_module(f"benchmarks.peers.systems.{name}")  # type: ignore[assignment]  # a module of this shape
    return module


def queue_of(key: str, queues: int) -> int:
    """The queue of a key, for systems whose producers choose it."""
    return crc32(key.encode()) % queues

"""
What reading a queue takes: messages, bytes, and how long they were waited for.

Used by `fold` and `event_reader`, which read slices on an executor; feeds the report of a rebuild.
"""

import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Protocol, TypeVar

import msgspec

from headrace._runtime.clock import Clock, SystemClock
from headrace_mq.spark.offsets import QueueSlice

__all__ = ["Meter", "ProgressPlace", "TaskWord"]

T = TypeVar("T")

# From one datagram about a slice to the next: a person sees no difference, and sending costs nothing.
_TOLD_MS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressPlace:
    """Where a task tells how far it is, by UDP; the token keeps strangers' words apart."""

    host: str
    port: int
    token: str


class TaskWord(msgspec.Struct, frozen=True, kw_only=True):
    """How many records and bytes of a piece a task has read."""

    token: str
    piece: str
    records: int
    size: int


@cache
def _resolved(host: str, port: int) -> tuple[int, Any] | None:
    """Looks a name up once in a process, as that may wait; None: there is no such name here."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    except OSError:
        return None
    return family, address


class HasBody(Protocol):
    """A message, as far as it is measured."""

    @property
    def body(self) -> bytes:
        """Its content."""
        ...


class Meter:
    """What reading a slice takes; given to `read_messages`, asked when the slice is done.

    Args:
        piece: the slice.
        clock: measures.
    """

    def __init__(self, piece: QueueSlice, clock: Clock | None = None) -> None:
        self._piece = piece
        self._told_ms = 0
        self._place: ProgressPlace | None = None
        self._clock = clock or SystemClock()
        self._name = f"{piece.queue.topic}/{piece.queue.queue_id}"
        self._began_ms = self._clock.monotonic_ms()
        self._read_ms = self._messages = self._bytes = self._foreign = 0

    def reading(self, parts: Iterable[T]) -> Iterator[T]:
        """Yields the parts, with the time that each of them took to come."""
        waiting, before = iter(parts), self._clock.monotonic_ms()
        for part in waiting:
            self._read_ms += self._clock.monotonic_ms() - before
            yield part
            before = self._clock.monotonic_ms()

    def count(self, messages: Iterable[HasBody]) -> None:
        """Counts messages and the bytes of their bodies."""
        self.count_bodies([message.body for message in messages])

    def count_bodies(self, bodies: Sequence[bytes]) -> None:
        """Counts messages by their bodies, and the bytes of these."""
        self._messages += len(bodies)
        self._bytes += sum(map(len, bodies))

    def count_foreign(self, count: int) -> None:
        """Counts messages that were not believed, of those that were counted."""
        self._foreign += count

    def reached(self, place: ProgressPlace | None, offset: int) -> None:
        """Tells the driver that all before an offset was read, now and then; never raises, nor waits for an answer."""
        if place is None:
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._told_ms >= _TOLD_MS:
            self._place, self._told_ms = place, now_ms
            self._tell(place, offset)

    def _tell(self, place: ProgressPlace, offset: int) -> None:
        told = TaskWord(
            token=place.token,
            piece=f"{self._name} {self._piece.start}",
            records=offset - self._piece.start,
            size=self._bytes,
        )
        found = _resolved(place.host, place.port)
        if found is None:
            return
        family, address = found
        # No way there, or a full buffer: the next word says the same and more.
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as sending:
            sending.settimeout(0)
            sending.sendto(msgspec.json.encode(told), address)

    def told(self) -> Iterator[tuple[str, int]]:
        """Yields what was measured and how much of it, at the slice's end."""
        if self._place is not None:
            self._tell(self._place, self._piece.end)
        whole_ms = self._clock.monotonic_ms() - self._began_ms
        yield f"{self._name} messages", self._messages
        yield f"{self._name} bytes", self._bytes
        yield f"{self._name} read_ms", self._read_ms
        yield f"{self._name} work_ms", whole_ms - self._read_ms
        if self._foreign:
            yield f"{self._name} foreign", self._foreign

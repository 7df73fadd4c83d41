"""
What reading a queue takes: messages, bytes, and how long they were waited for.

Used by `fold` and `event_reader`, which read slices on an executor; feeds the report of a rebuild.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from headrace._runtime.clock import Clock, SystemClock
from headrace_mq.spark.offsets import QueueSlice

__all__ = ["Meter"]

T = TypeVar("T")


class HasBody(Protocol):
    """A message, as far as it is measured."""

    @property
    def body(self) -> bytes:
        """Its content."""
        ...


class Meter:
    """What reading a slice takes; given to `read_messages`, asked when the slice is done."""

    def __init__(self, piece: QueueSlice, clock: Clock | None = None) -> None:
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

    def told(self) -> Iterator[tuple[str, int]]:
        """Yields what was measured and how much of it."""
        whole_ms = self._clock.monotonic_ms() - self._began_ms
        yield f"{self._name} messages", self._messages
        yield f"{self._name} bytes", self._bytes
        yield f"{self._name} read_ms", self._read_ms
        yield f"{self._name} work_ms", whole_ms - self._read_ms
        if self._foreign:
            yield f"{self._name} foreign", self._foreign

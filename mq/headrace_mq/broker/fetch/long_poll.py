"""
Fetches that found nothing and wait for an append, the disk, or their time to run out.

What becomes durable, or comes from the disk, serves a fetch at once and once, however many of its
queues grew; only those that did are looked at. Where many fetches wait, all but the first few are
served behind the acknowledgements. A fetch whose client does not read its answers stays parked until
the client has caught up.

Used by `handlers.fetch`, which parks fetches and knows how to answer. `assembly` calls it with the queues
that have something to read. It never knows files or offsets.
"""

import sys
from collections.abc import Callable, Collection, Hashable, Mapping
from itertools import islice
from typing import Protocol, TypeVar

from headrace_mq._net.server import Connection
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import Fetch

__all__ = [
    "PARKED_PER_CONNECTION_MAX",
    "SERVED_AT_ONCE_MAX",
    "SERVED_IN_TURN_MAX",
    "LongPoll",
    "ParkedFetch",
    "Timers",
]

# Fetches that are served before senders hear of a few batches: at some 70 us each, the longest that
# an acknowledgement waits for them.
SERVED_AT_ONCE_MAX = 4
# Fetches that are served in one turn of the loop, for some five milliseconds.
SERVED_IN_TURN_MAX = 64
# A consumer has one or two of them, and a process has some consumers on a connection.
PARKED_PER_CONNECTION_MAX = 1_024

K = TypeVar("K", bound=Hashable)


class Cancellable(Protocol):
    """A timer that may be stopped."""

    def cancel(self) -> None:
        """Stops it."""
        ...


class Timers(Protocol):
    """What of an event loop is needed here."""

    def call_soon(self, callback: Callable[[], object]) -> Cancellable:
        """Calls in this tick or the next one."""
        ...

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: object
    ) -> Cancellable:
        """Calls after `delay` seconds."""
        ...


class ParkedFetch:
    """One fetch that waits; `offsets` says from where it reads each of its queues."""

    __slots__ = ("connection", "correlation", "offsets", "request", "timer")

    def __init__(
        self,
        connection: Connection,
        correlation: int,
        request: Fetch,
        offsets: Mapping[QueueRef, int],
    ) -> None:
        self.connection = connection
        self.correlation = correlation
        self.request = request
        self.offsets = offsets
        self.timer: Cancellable


class LongPoll:
    """All parked fetches of a broker.

    Args:
        timers: the event loop.
        parked_max: fetches that may wait at a time.
        places_max: queues that they may wait at, each counted for each fetch.
        serve: answers a fetch if one of the given queues has something to read now, and says
            whether it did.
        expire: answers a fetch with nothing.
    """

    def __init__(
        self,
        timers: Timers,
        *,
        parked_max: int,
        places_max: int = sys.maxsize,
        serve: Callable[[ParkedFetch, Collection[QueueRef]], bool],
        expire: Callable[[ParkedFetch], None],
    ) -> None:
        self._timers = timers
        self._parked_max = parked_max
        self._places_max = places_max
        self._places = 0
        self._serve = serve
        self._expire = expire
        # Dicts as ordered sets: who waited longest is served first.
        self._by_queue: dict[QueueRef, dict[ParkedFetch, None]] = {}
        self._by_connection: dict[Connection, dict[ParkedFetch, None]] = {}
        self._dirty: dict[ParkedFetch, dict[QueueRef, None]] = {}
        self._count = 0
        self._is_soon = False

    def __len__(self) -> int:
        return self._count

    def park(self, fetch: ParkedFetch, wait_ms: int) -> bool:
        """Lets a fetch wait; returns False where no more may wait."""
        of_connection = self._by_connection.get(fetch.connection, ())
        if (
            self._count >= self._parked_max
            or len(of_connection) >= PARKED_PER_CONNECTION_MAX
            or self._places + len(fetch.offsets) > self._places_max
        ):
            return False
        self._count += 1
        self._places += len(fetch.offsets)
        for queue in fetch.offsets:
            self._by_queue.setdefault(queue, {})[fetch] = None
        self._by_connection.setdefault(fetch.connection, {})[fetch] = None
        fetch.timer = self._timers.call_later(wait_ms / 1_000, self._run_out, fetch)
        return True

    def wake(self, queues: Collection[QueueRef]) -> None:
        """Looks again, later in this tick, at the fetches that wait for one of the queues."""
        for queue in queues:
            waiting = self._by_queue.get(queue)
            if waiting:
                for fetch in waiting:
                    self._mark(fetch, (queue,))

    def serve(self, queues: Collection[QueueRef]) -> None:
        """Looks now at the fetches that wait for one of the queues: they have just grown.

        At the first few of them; at the others later in this tick, as `wake` does.
        """
        # Marked first, so that a fetch is looked at once for all of its queues.
        dirty: dict[ParkedFetch, dict[QueueRef, None]] = {}
        for queue in queues:
            for fetch in self._by_queue.get(queue, ()):
                dirty.setdefault(fetch, {})[queue] = None
        for number, (fetch, grown) in enumerate(dirty.items()):
            if number < SERVED_AT_ONCE_MAX:
                self._look(fetch, grown)
            else:
                self._mark(fetch, grown)

    def wake_connection(self, connection: Connection) -> None:
        """Looks again at the fetches of a connection that can take answers again."""
        for fetch in self._by_connection.get(connection, ()):
            self._mark(fetch, fetch.offsets)

    def wake_group(self, group: str) -> None:
        """Looks again at the fetches of a group that may be given messages again."""
        for waiting in self._by_connection.values():
            for fetch in waiting:
                if fetch.request.group == group:
                    self._mark(fetch, fetch.offsets)

    def drop(self, connection: Connection) -> None:
        """Forgets the fetches of a connection that is gone."""
        for fetch in list(self._by_connection.get(connection, ())):
            self._remove(fetch)

    def release(self) -> list[ParkedFetch]:
        """Takes out all fetches, for the caller to answer."""
        fetches = [fetch for waiting in self._by_connection.values() for fetch in waiting]
        for fetch in fetches:
            self._remove(fetch)
        return fetches

    def _mark(self, fetch: ParkedFetch, queues: Collection[QueueRef]) -> None:
        self._serve_soon()
        self._dirty.setdefault(fetch, {}).update(dict.fromkeys(queues))

    def _serve_dirty(self) -> None:
        self._is_soon = False
        # A few at a time: as many as may wait could hold up everything else for seconds.
        for fetch in [*islice(self._dirty, SERVED_IN_TURN_MAX)]:
            queues = self._dirty.pop(fetch, None)
            if queues is not None:
                self._look(fetch, queues)
        if self._dirty:
            self._serve_soon()

    def _serve_soon(self) -> None:
        if not self._is_soon:
            self._is_soon = True
            self._timers.call_soon(self._serve_dirty)

    def _look(self, fetch: ParkedFetch, queues: Collection[QueueRef]) -> None:
        waits = fetch in self._by_connection.get(fetch.connection, ())
        if waits and not fetch.connection.congested and self._serve(fetch, queues):
            self._remove(fetch)

    def _run_out(self, fetch: ParkedFetch) -> None:
        self._remove(fetch)
        self._expire(fetch)

    def _remove(self, fetch: ParkedFetch) -> None:
        self._count -= 1
        self._places -= len(fetch.offsets)
        fetch.timer.cancel()
        self._dirty.pop(fetch, None)
        for queue in fetch.offsets:
            _take(self._by_queue, queue, fetch)
        _take(self._by_connection, fetch.connection, fetch)


def _take(index: dict[K, dict[ParkedFetch, None]], key: K, fetch: ParkedFetch) -> None:
    waiting = index[key]
    del waiting[fetch]
    if not waiting:
        del index[key]

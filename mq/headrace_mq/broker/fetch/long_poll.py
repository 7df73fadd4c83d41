"""
Fetches that found no messages and wait for an append, the disk, or their timeout.

When messages become durable, or have been read from the disk, their fetches are served at once. A fetch is
served only once, and only its queues that grew are checked. If many fetches wait, all but the first few are served
after the acknowledgements. If a client does not read its answers, its fetch stays parked until it has caught up.

Used by `handlers.fetch`, which parks fetches and knows how to answer. `assembly` calls it with the queues
that have messages to read. It must not know files or offsets.
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

# Fetches served before the acknowledgements of a small group: at some 70 us each, they bound the delay of an
# acknowledgement.
SERVED_AT_ONCE_MAX = 4
# Fetches served in one turn of the loop, which takes some five milliseconds.
SERVED_IN_TURN_MAX = 64
# A consumer has one or two parked fetches, and a process has a few consumers on a connection.
PARKED_PER_CONNECTION_MAX = 1_024

K = TypeVar("K", bound=Hashable)


class Cancellable(Protocol):
    """A timer that can be cancelled."""

    def cancel(self) -> None:
        """Cancels the timer."""
        ...


class Timers(Protocol):
    """The methods of an event loop that this module uses."""

    def call_soon(self, callback: Callable[[], object]) -> Cancellable:
        """Calls `callback` in this turn of the loop or the next one."""
        ...

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: object
    ) -> Cancellable:
        """Calls `callback` after `delay` seconds."""
        ...


class ParkedFetch:
    """One waiting fetch; `offsets` holds the next offset of each of its queues."""

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
        parked_max: the most parked fetches.
        places_max: the most queues of all parked fetches, counted once for each fetch.
        serve: answers a fetch if one of the given queues has messages now; returns whether it did.
        expire: sends a fetch an empty answer.
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
        # Dicts as ordered sets: the fetch that waited the longest is served first.
        self._by_queue: dict[QueueRef, dict[ParkedFetch, None]] = {}
        self._by_connection: dict[Connection, dict[ParkedFetch, None]] = {}
        self._dirty: dict[ParkedFetch, dict[QueueRef, None]] = {}
        self._count = 0
        self._is_soon = False

    def __len__(self) -> int:
        return self._count

    def park(self, fetch: ParkedFetch, wait_ms: int) -> bool:
        """Parks a fetch; returns False if the limits allow no more."""
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
        """Checks the fetches that wait for one of the queues, later in this turn of the loop."""
        for queue in queues:
            waiting = self._by_queue.get(queue)
            if waiting:
                for fetch in waiting:
                    self._mark(fetch, (queue,))

    def serve(self, queues: Collection[QueueRef]) -> None:
        """Checks the fetches that wait for one of the queues, which have just grown.

        Checks the first few now, and the others later in this turn, as `wake` does.
        """
        # Mark them first, so that a fetch is checked once for all of its queues.
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
        """Checks the fetches of a connection that can receive answers again."""
        for fetch in self._by_connection.get(connection, ()):
            self._mark(fetch, fetch.offsets)

    def wake_group(self, group: str) -> None:
        """Checks the fetches of a group that may get messages again."""
        for waiting in self._by_connection.values():
            for fetch in waiting:
                if fetch.request.group == group:
                    self._mark(fetch, fetch.offsets)

    def drop(self, connection: Connection) -> None:
        """Drops the fetches of a closed connection."""
        for fetch in list(self._by_connection.get(connection, ())):
            self._remove(fetch)

    def release(self) -> list[ParkedFetch]:
        """Removes and returns all fetches; the caller answers them."""
        fetches = [fetch for waiting in self._by_connection.values() for fetch in waiting]
        for fetch in fetches:
            self._remove(fetch)
        return fetches

    def _mark(self, fetch: ParkedFetch, queues: Collection[QueueRef]) -> None:
        self._serve_soon()
        self._dirty.setdefault(fetch, {}).update(dict.fromkeys(queues))

    def _serve_dirty(self) -> None:
        self._is_soon = False
        # A few at a time: serving all of them could block the loop for seconds.
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

"""
Requests that wait until a quota or a full backlog lets them through, in their order.

Each line is first in, first out, and lines take turns. A request is not overtaken by others that wait for
the same obstacle, so large requests get their turn too. No request waits longer than `wait_ms_max`: it is
refused, and the client may repeat it. The broker goes on reading the connections, so held requests do not
delay heartbeats and commits.

Used by `handlers.throttle`, which adds requests; uses the clock. It does not know what a request is, or why
it must wait.
"""

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, Protocol

from headrace_mq._runtime.clock import Clock
from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.fetch.long_poll import Cancellable, Timers
from headrace_mq.errors import BrokerError

__all__ = ["Held", "Obstacle", "Throttle", "WaitLine"]

# The interval between two log lines about one connection.
_TELL_EVERY_MS = 10_000

_log = get_logger(__name__)


class Obstacle(Protocol):
    """A reason for a request to wait, such as a quota."""

    @property
    def key(self) -> Hashable:
        """The same for all requests that wait for the same reason."""
        ...

    def wait_ms(self, now_ms: int) -> int:
        """Returns the wait until the request may pass, or until the next check; 0: now."""
        ...

    def waited(self, now_ms: int, waited_ms: int) -> None:
        """Notes that a request was held."""
        ...

    def refusal(self, waited_ms: int) -> BrokerError:
        """Returns the error for a request that may not wait any longer."""
        ...


class WaitLine(NamedTuple):
    """Requests of a connection that must keep their order; `client` is for the log."""

    connection: Hashable
    number: int
    client: str = ""


class Held(NamedTuple):
    """One held request.

    `go` serves it when it may pass, `refuse` answers it otherwise; both get the time that it waited.
    """

    obstacles: Sequence[Obstacle]
    go: Callable[[int], None]
    refuse: Callable[[BrokerError, int], None]


class _Waiting(NamedTuple):
    held: Held
    since_ms: int


class Throttle:
    """All held requests of a broker.

    Args:
        timers: the event loop.
        clock: measures the waits.
        wait_ms_max: the longest wait of a request.
        held_max: the most held requests; more are refused at once.

    Attributes:
        requests: how many requests have been held so far.
    """

    def __init__(self, timers: Timers, clock: Clock, *, wait_ms_max: int, held_max: int) -> None:
        self._timers = timers
        self._clock = clock
        self._wait_ms_max = wait_ms_max
        self._held_max = held_max
        self._lines: dict[WaitLine, deque[_Waiting]] = {}
        self._count = 0
        # The obstacles that other requests wait for already.
        self._short: set[Hashable] = set()
        self._timer: Cancellable | None = None
        self._due_ms = 0
        self._told_at_ms: dict[Hashable, int] = {}
        self.requests = 0

    def __len__(self) -> int:
        return self._count

    def hold(self, line: WaitLine, held: Held) -> bool:
        """Holds a request if it must wait; returns False if it may be served now.

        Raises:
            BrokerError: too many requests wait already.
        """
        now_ms = self._clock.monotonic_ms()
        short = [one for one in held.obstacles if one.wait_ms(now_ms) or one.key in self._short]
        if not short and line not in self._lines:
            return False
        if self._count >= self._held_max:
            if not short:
                short = list(self._lines[line][0].held.obstacles)
            raise short[0].refusal(0)
        self._count += 1
        self.requests += 1
        self._lines.setdefault(line, deque()).append(_Waiting(held, now_ms))
        self._short.update(one.key for one in short)
        self._tell(line, short, now_ms)
        waits = [wait for one in short if (wait := one.wait_ms(now_ms))]
        self._look_within(min(self._wait_ms_max, *waits) if waits else self._wait_ms_max, now_ms)
        return True

    def look(self) -> None:
        """Serves the requests that may pass now, and refuses those that waited too long."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now_ms = self._clock.monotonic_ms()
        self._short.clear()
        next_ms = self._wait_ms_max
        turns = deque(self._lines)
        while turns:
            line = turns.popleft()
            queue = self._lines.get(line)
            # Serving a request may end connections, even its own.
            if not queue:
                continue
            wait_ms = self._try(queue, now_ms)
            if wait_ms:
                next_ms = min(next_ms, wait_ms)
                continue
            # A served client goes to the end of the turns.
            self._lines.pop(line, None)
            if queue:
                self._lines[line] = queue
                turns.append(line)
        if self._lines:
            self._look_within(next_ms, now_ms)

    def drop(self, connection: Hashable) -> None:
        """Drops the requests of a closed connection."""
        for line in [line for line in self._lines if line.connection == connection]:
            queue = self._lines.pop(line)
            self._count -= len(queue)
            queue.clear()
        self._told_at_ms.pop(connection, None)

    def release(self, error: BrokerError) -> None:
        """Refuses all held requests, because the broker stops."""
        now_ms = self._clock.monotonic_ms()
        lines, self._lines = self._lines, {}
        self._count = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for queue in lines.values():
            for waiting in queue:
                waiting.held.refuse(error, now_ms - waiting.since_ms)

    def _try(self, queue: deque[_Waiting], now_ms: int) -> int:
        """Serves or refuses the first request; returns its remaining wait, or 0 if it is done."""
        held, since_ms = queue[0]
        left_ms = since_ms + self._wait_ms_max - now_ms
        short = [
            (one, wait_ms)
            for one in held.obstacles
            if (wait_ms := one.wait_ms(now_ms)) or one.key in self._short
        ]
        if short and left_ms > 0:
            self._short.update(one.key for one, _ in short)
            return min([left_ms, *(wait_ms for _, wait_ms in short if wait_ms)])
        queue.popleft()
        self._count -= 1
        waited_ms = now_ms - since_ms
        for one in held.obstacles:
            one.waited(now_ms, waited_ms)
        if short:
            held.refuse(short[0][0].refusal(waited_ms), waited_ms)
        else:
            held.go(waited_ms)
        return 0

    def _look_within(self, wait_ms: int, now_ms: int) -> None:
        due_ms = now_ms + wait_ms
        if self._timer is not None:
            if self._due_ms <= due_ms:
                return
            self._timer.cancel()
        self._due_ms = due_ms
        self._timer = self._timers.call_later(wait_ms / 1_000, self.look)

    def _tell(self, line: WaitLine, short: Sequence[Obstacle], now_ms: int) -> None:
        told_at_ms = self._told_at_ms.get(line.connection)
        if short and (told_at_ms is None or now_ms - told_at_ms >= _TELL_EVERY_MS):
            self._told_at_ms[line.connection] = now_ms
            _log.warning("client held back", client=line.client, reason=str(short[0].refusal(0)))

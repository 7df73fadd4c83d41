"""
Requests that wait until a quota or a full backlog lets them through, in their order.

Each lane is first in, first out, and lanes take turns; who waits for something is not overtaken by
others that want the same, so that a large request comes to its turn too. No request waits longer than
`wait_ms_max`: who would is refused, and may come again. Connections go on being read, so heartbeats
and commits are not held up by what waits here.

Used by `handlers.throttle`, which leaves requests here; uses the clock. It never knows what a request is,
or why it may not pass yet.
"""

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, Protocol

from headrace_mq._runtime.clock import Clock
from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.fetch.long_poll import Cancellable, Timers
from headrace_mq.errors import BrokerError

__all__ = ["Held", "Obstacle", "Throttle", "WaitLine"]

# For each lane: how often a log line says that it waits.
_TELL_EVERY_MS = 10_000

_log = get_logger(__name__)


class Obstacle(Protocol):
    """Something that a request may have to wait for."""

    @property
    def key(self) -> Hashable:
        """The same for all that wait for the same thing."""
        ...

    def wait_ms(self, now_ms: int) -> int:
        """How long until it lets the request through, or is to be asked again; 0: now."""
        ...

    def waited(self, now_ms: int, waited_ms: int) -> None:
        """Notes that a request was held up."""
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
    """One request: what it waits for, and what becomes of it.

    `go` serves it once it may pass, `refuse` answers it otherwise; each gets how long it waited.
    """

    obstacles: Sequence[Obstacle]
    go: Callable[[int], None]
    refuse: Callable[[BrokerError, int], None]


class _Waiting(NamedTuple):
    held: Held
    since_ms: int


class Throttle:
    """All requests of a broker that wait.

    Args:
        timers: the event loop.
        clock: the time.
        wait_ms_max: how long one may wait.
        held_max: how many may wait at a time; further ones are refused at once.

    Attributes:
        requests: how many had to wait so far.
    """

    def __init__(self, timers: Timers, clock: Clock, *, wait_ms_max: int, held_max: int) -> None:
        self._timers = timers
        self._clock = clock
        self._wait_ms_max = wait_ms_max
        self._held_max = held_max
        self._lanes: dict[WaitLine, deque[_Waiting]] = {}
        self._count = 0
        # What other requests wait for already.
        self._short: set[Hashable] = set()
        self._timer: Cancellable | None = None
        self._due_ms = 0
        self._told_at_ms: dict[Hashable, int] = {}
        self.requests = 0

    def __len__(self) -> int:
        return self._count

    def hold(self, lane: WaitLine, held: Held) -> bool:
        """Keeps a request if it must wait; False: it may be served now.

        Raises:
            BrokerError: too many wait already.
        """
        now_ms = self._clock.monotonic_ms()
        short = [one for one in held.obstacles if one.wait_ms(now_ms) or one.key in self._short]
        if not short and lane not in self._lanes:
            return False
        if self._count >= self._held_max:
            if not short:
                short = list(self._lanes[lane][0].held.obstacles)
            raise short[0].refusal(0)
        self._count += 1
        self.requests += 1
        self._lanes.setdefault(lane, deque()).append(_Waiting(held, now_ms))
        self._short.update(one.key for one in short)
        self._tell(lane, short, now_ms)
        waits = [wait for one in short if (wait := one.wait_ms(now_ms))]
        self._look_within(min(self._wait_ms_max, *waits) if waits else self._wait_ms_max, now_ms)
        return True

    def look(self) -> None:
        """Lets through what may pass now, and refuses what waited too long."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now_ms = self._clock.monotonic_ms()
        self._short.clear()
        next_ms = self._wait_ms_max
        turns = deque(self._lanes)
        while turns:
            lane = turns.popleft()
            queue = self._lanes.get(lane)
            # What is served may end connections, its own among them.
            if not queue:
                continue
            wait_ms = self._try(queue, now_ms)
            if wait_ms:
                next_ms = min(next_ms, wait_ms)
                continue
            # The client that went goes to the end of the line.
            self._lanes.pop(lane, None)
            if queue:
                self._lanes[lane] = queue
                turns.append(lane)
        if self._lanes:
            self._look_within(next_ms, now_ms)

    def drop(self, connection: Hashable) -> None:
        """Forgets the requests of a connection that is gone."""
        for lane in [lane for lane in self._lanes if lane.connection == connection]:
            queue = self._lanes.pop(lane)
            self._count -= len(queue)
            queue.clear()
        self._told_at_ms.pop(connection, None)

    def release(self, error: BrokerError) -> None:
        """Refuses everything that waits: the broker stops."""
        now_ms = self._clock.monotonic_ms()
        lanes, self._lanes = self._lanes, {}
        self._count = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for queue in lanes.values():
            for waiting in queue:
                waiting.held.refuse(error, now_ms - waiting.since_ms)

    def _try(self, queue: deque[_Waiting], now_ms: int) -> int:
        """Serves or refuses the first one; returns how long it has to wait, or 0: it is gone."""
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

    def _tell(self, lane: WaitLine, short: Sequence[Obstacle], now_ms: int) -> None:
        told_at_ms = self._told_at_ms.get(lane.connection)
        if short and (told_at_ms is None or now_ms - told_at_ms >= _TELL_EVERY_MS):
            self._told_at_ms[lane.connection] = now_ms
            _log.warning("client held back", client=lane.client, reason=str(short[0].refusal(0)))

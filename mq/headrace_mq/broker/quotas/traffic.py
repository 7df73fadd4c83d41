"""
How much went through lately: messages and bytes over the last second and the last ten. PURE.

Whole seconds are counted, those that are over: a rate does not fall to nothing at the beginning of
a second, and two who ask within one second are told the same.

Sits between: the handlers of PRODUCE and FETCH, which count each batch, and those that tell. Time
is passed in; it must never go back.
"""

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from headrace_mq.protocol.administration import NO_TRAFFIC, Traffic

__all__ = ["METERS_MAX", "Meter", "Meters"]

# Seconds of the longer window.
WINDOW_S = 10
# Over all keys: a meter in use takes about 1 KiB. Beyond it nothing new is counted.
METERS_MAX = 65_536

K = TypeVar("K", bound=Hashable)


class Meter:
    """Counts one flow.

    Attributes:
        last: the second that is counted now, with its messages and bytes.
    """

    __slots__ = ("_seconds", "last")

    def __init__(self) -> None:
        # [second, messages, bytes] of each second in which something came, and of the current one.
        self._seconds: deque[list[int]] = deque(maxlen=WINDOW_S + 1)
        self.last = [-1, 0, 0]

    def add(self, now_ms: int, messages: int, size: int) -> None:
        """Counts what went through now."""
        if self.last[0] != now_ms // 1_000:
            self.begin(now_ms // 1_000)
        self.last[1] += messages
        self.last[2] += size

    def begin(self, second: int) -> list[int]:
        """Counts another second from now on; returns it with its messages and bytes."""
        last = self.last = [second, 0, 0]
        self._seconds.append(last)
        return last

    def read(self, now_ms: int) -> Traffic:
        """Returns what went through in the last whole second, and in the last ten."""
        now = now_ms // 1_000
        one = [0, 0]
        ten = [0, 0]
        for second, messages, size in self._seconds:
            if now - WINDOW_S <= second < now:
                ten[0] += messages
                ten[1] += size
                if second == now - 1:
                    one = [messages, size]
        return Traffic(*one, *ten)

    def is_idle(self, now_ms: int) -> bool:
        """Whether nothing is left to tell."""
        return not self._seconds or self._seconds[-1][0] < now_ms // 1_000 - WINDOW_S


class Meters(Generic[K]):
    """Meters by key; a key that was never counted had no traffic.

    Args:
        meters_max: how many keys are counted at a time.
    """

    def __init__(self, meters_max: int = METERS_MAX) -> None:
        self._meters_max = meters_max
        self._meters: dict[K, Meter] = {}
        self._total = Meter()

    def __len__(self) -> int:
        return len(self._meters)

    def add(self, key: K, now_ms: int, messages: int, size: int) -> None:
        """Counts what went through for a key; a new key is left out when there are too many."""
        second = now_ms // 1_000
        # What `Meter.add` does, without two calls for each batch.
        count = self._total.last
        if count[0] != second:
            count = self._total.begin(second)
        count[1] += messages
        count[2] += size
        meter = self._meters.get(key)
        if meter is None:
            if len(self._meters) >= self._meters_max:
                return
            meter = self._meters[key] = Meter()
        count = meter.last
        if count[0] != second:
            count = meter.begin(second)
        count[1] += messages
        count[2] += size

    def read(self, key: K, now_ms: int) -> Traffic:
        """Returns a key's traffic."""
        meter = self._meters.get(key)
        return meter.read(now_ms) if meter else NO_TRAFFIC

    def total(self, now_ms: int) -> Traffic:
        """Returns the traffic over all keys, those left out included."""
        return self._total.read(now_ms)

    def forget_idle(self, now_ms: int) -> None:
        """Drops the keys that nothing was counted for lately; call it now and then."""
        idle = [key for key, meter in self._meters.items() if meter.is_idle(now_ms)]
        for key in idle:
            del self._meters[key]

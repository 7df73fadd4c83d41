"""
Measures traffic: messages and bytes over the last second, the last ten, and since the start. PURE.

It counts only whole seconds that are over. So a rate does not drop to zero at the beginning of a second, and
two clients that ask within one second get the same answer.

Used by the handlers of PRODUCE and FETCH, which count each batch, and by those that describe the traffic.
Time is passed in; it must never go back.
"""

from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from headrace_mq.protocol.administration import NO_TRAFFIC, Traffic

__all__ = ["METERS_MAX", "Meter", "Meters", "Total"]

# Seconds of the longer window.
WINDOW_S = 10
# Meters over all keys, about 1 KiB each, and names. Above it, new ones are not counted.
METERS_MAX = 65_536

K = TypeVar("K", bound=Hashable)


class Total(NamedTuple):
    """All messages and bytes since the start."""

    messages: int
    bytes: int


class Meter:
    """Counts one flow.

    Attributes:
        last: the current second, with its messages and bytes.
        named: messages and bytes since the start of all meters of the same name.
    """

    __slots__ = ("_bytes", "_messages", "_seconds", "last", "named")

    def __init__(self, named: list[int] | None = None) -> None:
        self.named = [0, 0] if named is None else named
        # [second, messages, bytes] of each second with traffic, and of the current one.
        self._seconds: deque[list[int]] = deque(maxlen=WINDOW_S + 1)
        self.last = [-1, 0, 0]
        # What came before the current second.
        self._messages = self._bytes = 0

    def add(self, now_ms: int, messages: int, size: int) -> None:
        """Counts messages and bytes in the current second."""
        if self.last[0] != now_ms // 1_000:
            self.begin(now_ms // 1_000)
        self.last[1] += messages
        self.last[2] += size

    def begin(self, second: int) -> list[int]:
        """Begins a new second; returns it with its messages and bytes."""
        last = self.last
        self._messages += last[1]
        self._bytes += last[2]
        last = self.last = [second, 0, 0]
        self._seconds.append(last)
        return last

    def since_start(self) -> Total:
        """Returns all that this meter has counted."""
        return Total(self._messages + self.last[1], self._bytes + self.last[2])

    def read(self, now_ms: int) -> Traffic:
        """Returns the traffic of the last whole second, and of the last ten."""
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
        """Whether there has been no recent traffic."""
        return not self._seconds or self._seconds[-1][0] < now_ms // 1_000 - WINDOW_S


class Meters(Generic[K]):
    """Meters by key; a key that was never counted had no traffic.

    Args:
        meters_max: how many keys are counted at a time.
        name_of: returns the name under which a key counts in `by_name`.
    """

    def __init__(
        self, meters_max: int = METERS_MAX, *, name_of: Callable[[K], str] | None = None
    ) -> None:
        self._meters_max = meters_max
        self._name_of = name_of
        self._meters: dict[K, Meter] = {}
        self._total = Meter()
        # Messages and bytes by name, counted as they come: to add them up later would take long.
        self._named: dict[str, list[int]] = {}

    def __len__(self) -> int:
        return len(self._meters)

    def add(self, key: K, now_ms: int, messages: int, size: int) -> None:
        """Counts messages and bytes of a key; ignores a new key if there are too many."""
        second = now_ms // 1_000
        # `Meter.add`, inlined: it saves two calls for each batch.
        count = self._total.last
        if count[0] != second:
            count = self._total.begin(second)
        count[1] += messages
        count[2] += size
        meter = self._meters.get(key)
        if meter is None:
            if len(self._meters) >= self._meters_max:
                return
            meter = self._meters[key] = Meter(self._named_of(key))
        count = meter.named
        count[0] += messages
        count[1] += size
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
        """Returns the traffic over all keys, including ignored ones."""
        return self._total.read(now_ms)

    def forget_idle(self, now_ms: int) -> None:
        """Drops the keys without recent traffic; call it now and then."""
        idle = [key for key, meter in self._meters.items() if meter.is_idle(now_ms)]
        for key in idle:
            del self._meters[key]

    def forget(self, is_gone: Callable[[K], bool]) -> None:
        """Drops the keys that are gone: what comes under such a key later begins at 0."""
        for key in [key for key in self._meters if is_gone(key)]:
            del self._meters[key]

    def forget_names(self, is_known: Callable[[str], bool]) -> None:
        """Drops the names that are not known any more, with their keys: they make room, and begin at 0 later."""
        gone = {name for name in self._named if not is_known(name)}
        if gone and (name_of := self._name_of) is not None:
            self.forget(lambda key: name_of(key) in gone)
        for name in gone:
            del self._named[name]

    def total_since_start(self) -> Total:
        """Returns what all keys had since the start, including ignored ones."""
        return self._total.since_start()

    def by_name(self) -> dict[str, Total]:
        """Returns what each name had since the start, or since it was forgotten, without what was ignored."""
        return {name: Total(*had) for name, had in self._named.items()}

    def _named_of(self, key: K) -> list[int] | None:
        """Returns what a key's name had; None: it has no name, or there are too many."""
        if self._name_of is None:
            return None
        name = self._name_of(key)
        had = self._named.get(name)
        if had is None and len(self._named) < self._meters_max:
            had = self._named[name] = [0, 0]
        return had

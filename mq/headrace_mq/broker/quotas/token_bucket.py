"""
A token bucket: how much may go through now, and when the next amount may. PURE.

What passed within any span of time is at most `rate * span + burst`; an amount above the burst
passes alone, from a full bucket, and its excess is paid off before anything else passes. Amounts
that are known only afterwards pass as one and are charged in full: then at most one of them more.
All numbers are whole thousandths of what is counted, so nothing is lost by rounding.

Used by `quotas`: each of its rates is a bucket. Time is passed in; it must never go back.
"""

__all__ = ["TokenBucket"]

_MILLI = 1_000


class TokenBucket:
    """One rate; full at first.

    Args:
        rate: what may pass in a second, at least 1.
        burst_ms: what may pass at once is what passes in this time, at least 1.
        now_ms: the time.
    """

    __slots__ = ("_level", "_now_ms", "burst", "rate")

    def __init__(self, rate: int, *, burst_ms: int, now_ms: int) -> None:
        self.rate = rate
        self.burst = max(1, rate * burst_ms // 1_000)
        self._level = self.burst * _MILLI
        self._now_ms = now_ms

    def wait_ms(self, now_ms: int, amount: int = 1) -> int:
        """How long until an amount may pass if nothing else does; 0: now."""
        self._fill(now_ms)
        missing = min(amount, self.burst) * _MILLI - self._level
        return max(0, -(-missing // self.rate))

    def charge(self, now_ms: int, amount: int) -> None:
        """Takes what passed."""
        self._fill(now_ms)
        self._level -= amount * _MILLI

    def room(self, now_ms: int) -> int:
        """What may pass now without owing anything."""
        self._fill(now_ms)
        return max(0, self._level // _MILLI)

    def owed_ms(self, now_ms: int) -> int:
        """How long until it has paid for all that passed."""
        self._fill(now_ms)
        return max(0, -(self._level // self.rate))

    def is_full(self, now_ms: int) -> bool:
        """Whether it is as good as a new one."""
        self._fill(now_ms)
        return self._level == self.burst * _MILLI

    def _fill(self, now_ms: int) -> None:
        # A thousandth of the rate for each millisecond: the same number.
        self._level = min(self.burst * _MILLI, self._level + (now_ms - self._now_ms) * self.rate)
        self._now_ms = now_ms

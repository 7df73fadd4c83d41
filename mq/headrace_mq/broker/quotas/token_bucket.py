"""
A token bucket: decides how much may pass now, and when the next amount may pass. PURE.

In any span of time at most `rate * span + burst` passes. An amount above the burst passes alone, from a full
bucket, and nothing else passes until its excess is paid off. If an amount is known only afterwards, it passes
as 1 and is charged in full: then at most one such amount more. All numbers are whole thousandths, so rounding
loses nothing.

Used by `quotas`: each of its rates is a bucket. Time is passed in; it must never go back.
"""

__all__ = ["TokenBucket"]

_MILLI = 1_000


class TokenBucket:
    """One rate; full at first.

    Args:
        rate: the amount per second, at least 1.
        burst_ms: the burst is the amount that the rate allows in this time; at least 1.
        now_ms: the time.
    """

    __slots__ = ("_level", "_now_ms", "burst", "rate")

    def __init__(self, rate: int, *, burst_ms: int, now_ms: int) -> None:
        self.rate = rate
        self.burst = max(1, rate * burst_ms // 1_000)
        self._level = self.burst * _MILLI
        self._now_ms = now_ms

    def wait_ms(self, now_ms: int, amount: int = 1) -> int:
        """Returns the wait until an amount may pass, if nothing else passes; 0: now."""
        self._fill(now_ms)
        missing = min(amount, self.burst) * _MILLI - self._level
        return max(0, -(-missing // self.rate))

    def charge(self, now_ms: int, amount: int) -> None:
        """Charges an amount that has passed."""
        self._fill(now_ms)
        self._level -= amount * _MILLI

    def room(self, now_ms: int) -> int:
        """Returns the amount that may pass now without a debt."""
        self._fill(now_ms)
        return max(0, self._level // _MILLI)

    def owed_ms(self, now_ms: int) -> int:
        """Returns the time until the debt is paid off."""
        self._fill(now_ms)
        return max(0, -(self._level // self.rate))

    def is_full(self, now_ms: int) -> bool:
        """Whether the bucket is full, like a new one."""
        self._fill(now_ms)
        return self._level == self.burst * _MILLI

    def _fill(self, now_ms: int) -> None:
        # A thousandth of the rate for each millisecond: the same number.
        self._level = min(self.burst * _MILLI, self._level + (now_ms - self._now_ms) * self.rate)
        self._now_ms = now_ms

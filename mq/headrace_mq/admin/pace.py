"""
How fast dead letters are sent again.

Sits between: `dead_letters`, which waits, and the rate that its caller chose. Pure.
"""

import msgspec

from headrace_mq._runtime.checks import require, require_types

__all__ = ["ResendRate", "ResendSettings"]


class ResendSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How fast letters are sent again, and how many at a time."""

    # Letters in a second, on average. What they failed on has just come back; ten thousand at once
    # would bring it down again, and what is new would wait behind them.
    per_second: int = 500
    # Letters that are sent at a time and then marked together: so many may be sent twice after a crash.
    together_max: int = 100

    def __post_init__(self) -> None:
        require_types(self)
        for name in self.__struct_fields__:
            require(getattr(self, name) >= 1, f"{name} must be at least 1")


class ResendRate:
    """So many a second, counted from a beginning, in portions.

    Args:
        settings: how many.
        now_s: the time now, in seconds of a clock that is never set.
    """

    def __init__(self, settings: ResendSettings, now_s: float) -> None:
        self._per_second = settings.per_second
        # Ten portions a second: at a rate of three they come one by one.
        self.portion = min(settings.together_max, max(1, settings.per_second // 10))
        self._begun_s = now_s
        self._done = 0

    def pause_s(self, done: int, now_s: float) -> float:
        """How long to wait, in seconds, after so many more."""
        self._done += done
        return max(0.0, self._begun_s + self._done / self._per_second - now_s)

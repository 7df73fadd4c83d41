"""
How many files and sockets this process may have open, all together.

Used by the broker, which divides them among connections and files; uses the operating system.
"""

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from headrace_mq._runtime.system_calls import OPEN_FLAGS

__all__ = ["Descriptors", "granted", "in_use"]

# More than any broker needs; some systems grant a thousand times as many, and some programs that are
# started close them one by one.
_MOST = 1 << 20


def granted() -> int:
    """Raises the limit of this process as far as it may itself, and returns it."""
    import resource  # Windows has none, and runs no broker

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft == unlimited:
        return _MOST
    most = _MOST if hard == unlimited else min(hard, _MOST)
    if soft < most:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    return soft


def in_use() -> int:
    """How many are open now; 0 where the system does not tell."""
    try:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError:
        return 0


class Descriptors(NamedTuple):
    """What this process may have open, divided among sockets and files.

    The system gives the lowest number that is free: where one is given, all below are taken.

    Attributes:
        limit: how many there may be.
        kept: of these, how many no connection gets.
    """

    limit: int
    kept: int

    @classmethod
    def divided(cls, kept: int) -> Self:
        """Divides what the system grants now; where that is little, by halves."""
        limit = granted()
        return cls(limit, min(kept, limit // 2))

    @property
    def first_kept(self) -> int:
        """The lowest number that no connection gets."""
        return self.limit - self.kept

    def missing(self) -> int:
        """How many connections must go, so that half of what is kept for files is free again."""
        try:
            lowest = os.open(os.devnull, os.O_RDONLY | OPEN_FLAGS)
        except OSError as error:
            if error.errno not in {errno.EMFILE, errno.ENFILE}:
                return 0
            return self.kept // 2
        os.close(lowest)
        return max(0, lowest - (self.limit - self.kept // 2))

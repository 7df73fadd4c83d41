"""
How many files and sockets this process may have open, all together.

Sits between: the broker, which divides them among connections and files, and the system.
"""

import resource
from contextlib import suppress
from pathlib import Path

__all__ = ["granted", "in_use"]

# More than any broker needs; some systems grant a thousand times as many, and some programs that are
# started close them one by one.
_MOST = 1 << 20


def granted() -> int:
    """Raises the limit of this process as far as it may itself, and returns it."""
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

"""
What this process takes of its machine: processor time, memory, and room on a disk.

Used by the broker, which tells it to those who look after it; uses the operating system. Where the system does not
tell, it says -1.
"""

import os
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["UNKNOWN", "Usage", "usage"]

UNKNOWN: Final = -1
# Linux counts the pages of each process here; the second number is of those in memory.
_STATM: Final = Path("/proc/self/statm")


class Usage(NamedTuple):
    """What a process takes, as of now.

    Attributes:
        cpu_ms: processor time since its start, in milliseconds.
        memory_bytes: what is in memory; where the system tells only the peak, the peak.
        disk_bytes: what this user may use of a disk, in all.
        disk_free_bytes: what is free of that.
    """

    cpu_ms: int
    memory_bytes: int
    disk_bytes: int
    disk_free_bytes: int


def usage(directory: Path) -> Usage:
    """Returns what this process takes of its machine, and the room on the disk of a directory."""
    return Usage(time.process_time_ns() // 1_000_000, _memory_bytes(), *_room(directory))


def _memory_bytes() -> int:
    try:
        pages = int(_STATM.read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return _peak_bytes()
    return pages * os.sysconf("SC_PAGE_SIZE")


def _peak_bytes() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return UNKNOWN
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS counts bytes, others kibibytes.
    return peak if sys.platform == "darwin" else peak << 10


def _room(directory: Path) -> tuple[int, int]:
    try:
        found = os.statvfs(directory)
    except (OSError, AttributeError):  # AttributeError: Windows
        return UNKNOWN, UNKNOWN
    free = found.f_bavail * found.f_frsize
    return (found.f_blocks - found.f_bfree) * found.f_frsize + free, free

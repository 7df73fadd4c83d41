"""
A broker of a group as a process whose disk and clock a test troubles, by files in a folder.

    python troubled_broker.py FOLDER broker --data …      as `headrace broker --data …`

    FOLDER/sync_s      each flush of the disk takes so many seconds longer
    FOLDER/ahead_ms    the clock on the wall is ahead by so much; below zero: behind
"""

import sys
import threading
import time
from pathlib import Path

from headrace.cli import main
from headrace_mq._runtime.clock import SystemClock
from headrace_mq._runtime.files import SystemFiles
from headrace_mq.broker import replicated_broker
from headrace_mq.broker.replicas.documents import WatchedFiles

_pause = threading.Event()


def trouble(name: str) -> float:
    """The number in a file of the folder; 0 where there is none."""
    try:
        return float((FOLDER / name).read_text() or 0)
    except FileNotFoundError:
        return 0.0


class SlowFiles(SystemFiles):
    """The machine's files, flushed slowly."""

    def sync(self, fd: int) -> int:
        began = time.monotonic_ns()
        _pause.wait(trouble("sync_s"))
        super().sync(fd)
        return (time.monotonic_ns() - began) // 1_000


class SlowWatchedFiles(SlowFiles, WatchedFiles):
    """Those of a broker that leads."""


class JumpingClock(SystemClock):
    """The machine's clocks, one of which was set."""

    def now_ms(self) -> int:
        return super().now_ms() + int(trouble("ahead_ms"))


if __name__ == "__main__":
    FOLDER = Path(sys.argv.pop(1))
    # In this process alone.
    vars(replicated_broker).update(
        SystemFiles=SlowFiles, WatchedFiles=SlowWatchedFiles, SystemClock=JumpingClock
    )
    main()

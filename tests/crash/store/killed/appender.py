"""
A process that appends to a store until it is killed; one line of JSON on standard input per life.

Each life runs in a fork, so that a kill costs milliseconds. Standard output says, line by line,
`life PID`, `ack QUEUE OFFSET LENGTH CRC` when a message is durable, `stopped` before a sync that
will never come, `failed` when the store fails, `steps N` when a life ends by itself, `end STATUS`.
"""

import asyncio
import json
import os
import random
import signal
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import structlog

from headrace_mq._runtime.files import SystemFiles
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore
from headrace_mq.store.segment import segment

T = TypeVar("T")


class DyingFiles(SystemFiles):
    """Kills the process at a step that changes something: before it, half-way or after it."""

    def __init__(self, kill_at: int, when: str, stop_at: int) -> None:
        self.steps = 0
        self._kill_at = kill_at
        self._when = when
        self._syncs_left = stop_at

    def make_directory(self, path: Path) -> None:
        self._step(lambda: super(DyingFiles, self).make_directory(path))

    def open(self, path: Path, *, create: bool = False) -> int:
        if not create:
            return super().open(path)
        return self._step(lambda: super(DyingFiles, self).open(path, create=True))

    def write(self, fd: int, at: int, parts: Sequence[bytes | memoryview]) -> int:
        if self.steps + 1 == self._kill_at and self._when == "half-way":
            whole = b"".join(parts)
            super().write(fd, at, [whole[: len(whole) // 2]])
            die()
        return self._step(lambda: super(DyingFiles, self).write(fd, at, parts))

    def allocate(self, fd: int, length: int) -> None:
        self._step(lambda: super(DyingFiles, self).allocate(fd, length))

    def truncate(self, fd: int, length: int) -> None:
        self._step(lambda: super(DyingFiles, self).truncate(fd, length))

    def sync(self, fd: int) -> int:
        self._syncs_left -= 1
        if self._syncs_left == 0:
            say("stopped")
            signal.pause()
        return self._step(lambda: super(DyingFiles, self).sync(fd))

    def rename(self, old: Path, new: Path) -> None:
        self._step(lambda: super(DyingFiles, self).rename(old, new))

    def remove(self, path: Path) -> None:
        self._step(lambda: super(DyingFiles, self).remove(path))

    def sync_directory(self, path: Path) -> None:
        self._step(lambda: super(DyingFiles, self).sync_directory(path))

    def _step(self, change: Callable[[], T]) -> T:
        self.steps += 1
        if self.steps == self._kill_at and self._when != "after":
            die()
        result = change()
        if self.steps == self._kill_at:
            die()
        return result


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def live(task: dict[str, Any]) -> None:
    """Appends groups of random batches and says what is durable.

    A task that asks for `early` says it before it is so: a defect that the checks have to find.
    """
    chosen = random.Random(task["seed"])
    files = DyingFiles(task["kill_at"], task["when"], task["stop_at"])
    settings = StoreSettings(
        directory=Path(task["directory"]),
        segment_bytes=task["segment_bytes"],
        flush=task["flush"],
    )
    store = MessageStore(settings, files=files)
    store.open()
    for _ in range(task["groups"]):
        told = []
        for _ in range(chosen.randint(1, 8)):
            queue = chosen.randint(0, 3)
            body = chosen.randbytes(chosen.randint(1, 6_000))
            columns = Columns([], [], [], [body], [])
            batch = encode_batch(QueueRef("t", queue), columns, born_first_ms=0)
            retention = "forever" if queue else "transient"
            offset = store.append(batch, retention=retention).base_offset
            told.append(("ack", queue, offset, len(body), zlib.crc32(body)))
        if not task["early"]:
            await store.durable()
        for words in told:
            say(*words)
        await store.durable()
    await store.aclose()
    say("steps", files.steps)


def main() -> None:
    # Segments of some KiB grow as large ones do: in several steps.
    segment.RESERVED_FIRST_BYTES, segment.RESERVED_STEP_BYTES = 8 << 10, 16 << 10
    segment.ZEROS_AHEAD_BYTES = 3 << 10
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                asyncio.run(live(json.loads(line)))
                os._exit(0)
            finally:
                # A life never becomes a second parent, and whoever kills it finds its pid taken.
                say("failed")
                signal.pause()
        say("life", child)
        _, status = os.waitpid(child, 0)
        say("end", status)


if __name__ == "__main__":
    main()

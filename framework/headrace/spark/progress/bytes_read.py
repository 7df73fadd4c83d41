"""
How much of its topic a job has read while it runs, how fast, and how long the rest will take.

    tasks ── a datagram twice a second ──▶ a socket of the driver ──▶ a line every five seconds

Spark brings a task's accumulators to the driver when the task ends, and a task may run for an hour. So tasks
tell by UDP, which waits for nothing: where no datagram comes through, a job runs as well, and its queues are
told as they are finished. Behind Spark Connect there is no driver to tell; the server says how many tasks are done.

Used by `rebuild`, which looks. It must not know a database.
"""

import asyncio
import secrets
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final

import msgspec
from pyspark.sql import SparkSession

from headrace._runtime.clock import Clock
from headrace.spark.executor.meter import ProgressPlace, TaskWord

__all__ = ["Pace", "ReadingProgress", "reading_progress", "told_meanwhile"]

# How often is looked for news; asking costs nothing.
_LOOK_S: Final = 0.2
# From one line to the next.
_LINE_MS: Final = 5_000
# The rate is that of the last so many ms: long enough to be steady, short enough to follow a change.
_WINDOW_MS: Final = 30_000
# A datagram has about 100 bytes.
_DATAGRAM_BYTES_MAX: Final = 1_024
_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")

_decode = msgspec.json.Decoder(TaskWord).decode


class Pace:
    """Turns what tasks tell into a line; pure.

    Args:
        records: how many records the job reads.
        now_ms: when it began.
    """

    def __init__(self, records: int, now_ms: int) -> None:
        self._all = records
        self._told: dict[str, tuple[int, int]] = {}
        self._window: deque[tuple[int, int]] = deque([(now_ms, 0)])
        self._line_ms = now_ms
        self._said = 0

    def note(self, piece: str, records: int, size: int) -> None:
        """Takes how many records and bytes of a piece were read; an earlier or repeated word changes nothing."""
        self._told[piece] = max(self._told.get(piece, (0, 0)), (records, size))

    @property
    def left(self) -> int:
        """How many records are still to be read."""
        return max(0, self._all - sum(records for records, _ in self._told.values()))

    def line(self, now_ms: int) -> str | None:
        """Returns what to say now; None: it was said a moment ago, or nothing is new."""
        size = sum(each for _, each in self._told.values())
        if now_ms - self._line_ms < _LINE_MS or size == self._said:
            return None
        self._line_ms, self._said = now_ms, size
        while len(self._window) > 1 and now_ms - self._window[0][0] > _WINDOW_MS:
            self._window.popleft()
        since_ms, before = self._window[0]
        self._window.append((now_ms, size))
        done = self._all - self.left
        whole = size * self._all / max(done, 1)
        rate = (size - before) * 1_000 / max(now_ms - since_ms, 1)
        left_s = (whole - size) / rate if rate > 0 else 0
        return (
            f"{min(done, self._all) * 100 // max(self._all, 1)} % read,"
            f" {_amount(size)} of about {_amount(whole)} at {_amount(rate)}/s, about {_span(left_s)} left"
        )


class ReadingProgress:
    """Where tasks tell what they have read.

    Args:
        place: what tasks need to know; None: they cannot tell.
        listening: receives their datagrams.
        clock: measures.
    """

    def __init__(
        self, place: ProgressPlace | None, listening: socket.socket | None, clock: Clock
    ) -> None:
        self.place = place
        self._listening = listening
        self._clock = clock
        self._pace = Pace(0, 0)
        self._tasks: tuple[int, int] | None = None

    def expect(self, records: int) -> None:
        """Begins: a job reads so many records from now on."""
        self._pace = Pace(records, self._clock.monotonic_ms())

    def heard_tasks(self, stages: Any, *_: Any, **__: Any) -> None:
        """Takes from a Connect server how many tasks are done."""
        done = sum(stage.num_completed_tasks for stage in stages)
        self._tasks = (done, sum(stage.num_tasks for stage in stages))

    def news(self) -> Iterator[tuple[str, int]]:
        """Yields a line, and how many records are left, where there is something to say."""
        self._receive()
        line = self._pace.line(self._clock.monotonic_ms())
        if line is not None:
            yield line, self._pace.left
        if self._tasks is not None:
            (done, count), self._tasks = self._tasks, None
            yield f"{done} of {count} tasks done", 0

    def _receive(self) -> None:
        if self._listening is None or self.place is None:
            return
        with suppress(OSError):  # nothing has come
            while True:
                data = self._listening.recv(_DATAGRAM_BYTES_MAX)
                with suppress(msgspec.MsgspecError):
                    told = _decode(data)
                    if secrets.compare_digest(told.token, self.place.token):
                        self._pace.note(told.piece, told.records, told.size)


@contextmanager
def reading_progress(session: SparkSession, clock: Clock) -> Iterator[ReadingProgress]:
    """Opens what tasks tell their progress to; nothing where that cannot be."""
    if not hasattr(session, "sparkContext"):
        remote: Any = session
        progress = ReadingProgress(None, None, clock)
        remote.registerProgressHandler(progress.heard_tasks)
        try:
            yield progress
        finally:
            remote.removeProgressHandler(progress.heard_tasks)
        return
    conf = session.sparkContext.getConf()
    host = conf.get("spark.driver.host") or "127.0.0.1"
    bound = conf.get("spark.driver.bindAddress") or host
    family = socket.AF_INET6 if ":" in bound else socket.AF_INET
    try:
        listening = socket.socket(family, socket.SOCK_DGRAM)
    except OSError:
        yield ReadingProgress(None, None, clock)
        return
    with listening:
        place = None
        with suppress(OSError):
            listening.settimeout(0)
            listening.bind((bound.strip("[]"), 0))
            port = listening.getsockname()[1]
            place = ProgressPlace(host=host.strip("[]"), port=port, token=secrets.token_hex(8))
        yield ReadingProgress(place, listening, clock)


@asynccontextmanager
async def told_meanwhile(
    tell: Callable[[str, int], None], *sources: Callable[[], Iterable[tuple[str, int]]]
) -> AsyncIterator[None]:
    """Looks for news while what is within runs, and once more at its end.

    Args:
        tell: takes each piece of news, and how many records are left.
        sources: each returns what is new since it was asked before.
    """

    def look() -> None:
        for source in sources:
            for what, left in source():
                tell(what, left)

    async def keep_looking() -> None:
        while True:
            look()
            await asyncio.sleep(_LOOK_S)

    looking = asyncio.create_task(keep_looking())
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        look()


def _amount(size: float) -> str:
    for unit in _UNITS[:-1]:
        if size < 1_024:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1_024
    return f"{size:,.1f} {_UNITS[-1]}"


def _span(seconds: float) -> str:
    whole = round(seconds)
    if whole < 3_600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3_600}:{whole // 60 % 60:02} h"

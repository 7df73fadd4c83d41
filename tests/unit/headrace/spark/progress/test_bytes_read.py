"""What tasks tell while they read becomes a line now and then."""

import asyncio
import itertools
import socket
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from headrace.spark.executor.meter import Meter, ProgressPlace
from headrace.spark.progress.bytes_read import Pace, reading_progress, told_meanwhile
from headrace_mq.message import QueueRef
from headrace_mq.spark.offsets import QueueSlice

MIB = 1 << 20


class HandClock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.ms = 0

    def now(self) -> datetime:
        raise AssertionError("only durations are measured")

    def monotonic_ms(self) -> int:
        return self.ms


def test_a_line_tells_share_bytes_rate_and_what_is_left() -> None:
    pace = Pace(1_000, 0)
    assert pace.line(5_000) is None, "nothing was read"
    pace.note("t/0 0", 100, 50 * MIB)
    pace.note("t/1 0", 100, 50 * MIB)
    assert pace.line(4_999) is None, "too early"
    told = "20 % read, 100.0 MiB of about 500.0 MiB at 10.0 MiB/s, about 0:40 min left"
    assert (pace.line(10_000), pace.left) == (told, 800)
    assert pace.line(20_000) is None, "nothing is new"
    pace.note("t/0 0", 500, 250 * MIB)
    pace.note("t/1 0", 500, 250 * MIB)
    assert pace.line(40_000) == (
        "100 % read, 500.0 MiB of about 500.0 MiB at 13.3 MiB/s, about 0:00 min left"
    )


def test_hours_are_told_as_hours() -> None:
    pace = Pace(100_000, 0)
    pace.note("t/0 0", 100, 1 << 30)
    assert (pace.line(10_000) or "").endswith("1,000.0 GiB at 102.4 MiB/s, about 2:46 h left")


@given(
    words=some.lists(some.tuples(some.sampled_from("ab"), some.integers(0, 50)), max_size=20),
    step_ms=some.integers(0, 60_000),
)
def test_words_may_come_twice_late_or_never(words: list[tuple[str, int]], step_ms: int) -> None:
    pace, furthest = Pace(100, 0), {"a": 0, "b": 0}
    for turn, (piece, records) in enumerate(words):
        pace.note(piece, records, records * 10)
        furthest[piece] = max(furthest[piece], records)
        assert pace.left == 100 - sum(furthest.values())
        line = pace.line(turn * step_ms)
        assert line is None or line.startswith(f"{sum(furthest.values())} % read")


def spark_on(host: str) -> Any:
    conf = {"spark.driver.host": host}
    return SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: conf))


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_a_task_tells_the_driver_and_a_stranger_does_not(host: str) -> None:
    clock = HandClock()
    piece = QueueSlice(queue=QueueRef("t", 0), start=10, end=110)
    with reading_progress(spark_on(host), clock) as progress:
        progress.expect(100)
        place = progress.place
        assert place is not None
        clock.ms = 6_000
        stranger = Meter(piece, clock)
        stranger.reached(ProgressPlace(host=place.host, port=place.port, token="x"), 110)
        with socket.socket(
            socket.AF_INET6 if ":" in place.host else socket.AF_INET, socket.SOCK_DGRAM
        ) as noise:
            noise.sendto(b"\xff", (place.host, place.port))
        assert list(progress.news()) == []
        meter = Meter(piece, clock)
        meter.count_bodies([bytes(MIB)] * 50)
        meter.reached(place, 60)
        # Within half a second there is one word.
        meter.reached(place, 61)
        told = "50 % read, 50.0 MiB of about 100.0 MiB at 8.3 MiB/s, about 0:06 min left"
        assert list(progress.news()) == [(told, 50)]
        meter.count_bodies([bytes(MIB)] * 50)
        assert dict(meter.told())["t/0 messages"] == 100
        clock.ms = 12_000
        assert [left for _, left in progress.news()] == [0]


def test_without_a_way_to_the_driver_tasks_run_as_well() -> None:
    clock = HandClock()
    clock.ms = 1_000
    with reading_progress(spark_on("192.0.2.1"), clock) as progress:
        assert progress.place is None, "no such address here"
        assert list(progress.news()) == []
    meter = Meter(QueueSlice(queue=QueueRef("t", 0), start=0, end=9), clock)
    meter.reached(None, 5)
    meter.reached(ProgressPlace(host="no.such.host.invalid", port=1, token="x"), 5)


def test_a_connect_server_tells_of_tasks() -> None:
    handlers: list[Any] = []
    session: Any = SimpleNamespace(
        registerProgressHandler=handlers.append, removeProgressHandler=handlers.remove
    )
    with reading_progress(session, HandClock()) as progress:
        stage = SimpleNamespace(num_completed_tasks=1, num_tasks=4)
        handlers[0]([stage, stage], 2, "operation", False)
        assert list(progress.news()) == [("2 of 8 tasks done", 0)]
        assert list(progress.news()) == []
    assert handlers == []


async def test_news_is_looked_for_meanwhile_and_at_the_end() -> None:
    told: list[tuple[str, int]] = []
    looked = asyncio.Event()
    numbers = itertools.count()

    def news() -> list[tuple[str, int]]:
        looked.set()
        return [(f"news {next(numbers)}", 0)]

    async with told_meanwhile(lambda what, left: told.append((what, left)), news):
        await looked.wait()
        before = len(told)
    assert before >= 1
    assert len(told) == before + 1

"""A meter tells what a slice took: waiting apart from everything else."""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from headrace.spark.executor.meter import Meter
from headrace_mq.message import QueueRef
from headrace_mq.spark.offsets import QueueSlice

PIECE = QueueSlice(queue=QueueRef("l.events", 3), start=0, end=9)


class Message(NamedTuple):
    body: bytes


class HandClock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.ms = 0

    def now(self) -> datetime:
        raise AssertionError("only durations are measured")

    def monotonic_ms(self) -> int:
        return self.ms


def test_waiting_for_parts_is_told_apart_from_working_on_them() -> None:
    clock = HandClock()
    meter = Meter(PIECE, clock)

    def parts() -> Iterator[int]:
        for took_ms in (7, 3):
            clock.ms += took_ms
            yield took_ms

    for _ in meter.reading(parts()):
        clock.ms += 100
    meter.count([Message(b"123"), Message(b"")])
    meter.count([Message(b"4")])
    assert dict(meter.told()) == {
        "l.events/3 messages": 3,
        "l.events/3 bytes": 4,
        "l.events/3 read_ms": 10,
        "l.events/3 work_ms": 200,
    }

"""When the next part is due, and what ends the work."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.exc import OperationalError, ProgrammingError

from headrace.errors import ProjectionError
from headrace.spark.archive import ExportedPart
from headrace.spark.history.pace import LOOK_MS, is_away, keep_sealed, waiting_bytes
from headrace.spark.history.seal import Sealing
from headrace_mq.errors import ConnectionLost
from headrace_mq.protocol.bodies import QueueRange


def part(end: int, *, messages: int, size: int) -> ExportedPart:
    return ExportedPart(
        number=1, app="a:app", topic="a.events", start={0: 0}, end={0: end}, messages=messages,
        bytes=size,
    )  # fmt: skip


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(1, 10**4))
def test_waiting_bytes_are_messages_times_what_the_last_part_took(
    end: int, more: int, size: int
) -> None:
    held = [QueueRange("a.events", 0, 0, end + more)]
    assert waiting_bytes([part(end, messages=10, size=10 * size)], held) == more * size
    assert waiting_bytes([part(end, messages=0, size=0)], held) >= more


def test_offsets_that_no_part_has_and_the_topic_lost_are_refused() -> None:
    held = [QueueRange("a.events", 0, 9, 12)]
    with pytest.raises(ProjectionError, match="were deleted before they were exported"):
        waiting_bytes([part(5, messages=5, size=5)], held)


class Stop(BaseException):
    pass


class Work:
    """Seals by a script, on a clock that pauses move."""

    def __init__(self, *outcomes: Any, waiting: list[Any] | None = None) -> None:
        self.outcomes = list(outcomes)
        self.sizes = waiting or []
        self.now_ms = 0
        self.sealed_at: list[int] = []

    def monotonic_ms(self) -> int:
        return self.now_ms

    def now(self) -> Any:
        raise AssertionError

    def seal(self) -> Sealing:
        if not self.outcomes:
            raise Stop
        self.sealed_at.append(self.now_ms)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def waiting(self) -> int:
        size = self.sizes.pop(0) if self.sizes else 0
        if isinstance(size, Exception):
            raise size
        return size

    def pause(self, pause_ms: int) -> None:
        self.now_ms += pause_ms

    def run(self, every_ms: int) -> Sealing:
        return keep_sealed(
            self.seal, waiting=self.waiting, every_ms=every_ms, part_bytes=100, clock=self,
            pause=self.pause,
        )  # fmt: skip


def away(message: str) -> ProjectionError:
    error = ProjectionError(message)
    error.__cause__ = ConnectionLost(message)
    return error


def test_a_part_is_written_after_the_time_or_earlier_once_enough_waits() -> None:
    work = Work(Sealing(), Sealing(), Sealing(), waiting=[0, 0, 0, 99, ConnectionLost("x"), 100])
    with pytest.raises(Stop):
        work.run(4 * LOOK_MS)
    assert work.sealed_at == [0, 4 * LOOK_MS, 6 * LOOK_MS]


def test_a_broker_that_is_away_is_asked_again_and_a_difference_ends_the_work() -> None:
    different = Sealing(differences=["it differs"])
    work = Work(away("gone"), away("gone"), Sealing(), different)
    assert work.run(LOOK_MS) is different
    assert work.sealed_at == [0, LOOK_MS, 2 * LOOK_MS, 3 * LOOK_MS]


def test_other_errors_end_the_work() -> None:
    with pytest.raises(ProjectionError, match="recreated"):
        Work(ProjectionError("the topic was recreated")).run(LOOK_MS)


def test_a_database_that_is_away_comes_back_and_a_wrong_statement_is_a_defect() -> None:
    assert is_away(OperationalError("", {}, Exception()))
    assert is_away(away("gone"))
    assert not is_away(ProgrammingError("", {}, Exception()))
    assert not is_away(ProjectionError("no"))

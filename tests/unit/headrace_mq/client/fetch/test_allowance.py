"""Never more is handed over and unfinished than the limits say, and nothing waits in vain."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace_mq.client.fetch.allowance import divided
from headrace_mq.client.fetch.assigned_queues import AssignedQueue, AssignedQueues, limits_of
from headrace_mq.client.fetch.process_queue import WindowLimits
from headrace_mq.client.fetch.record_columns import from_records
from headrace_mq.message import QueueRef, Record
from headrace_mq.settings import ConsumerSettings

MANY = 1 << 30
A = QueueRef("t", 0)


def records(first: int, end: int, body: bytes = b"") -> list[Record]:
    return [
        Record(
            queue=A, offset=offset, key="", tag="", headers={}, body=body,
            born_at_ms=0, stored_at_ms=0,
        )
        for offset in range(first, end)
    ]  # fmt: skip


def started(limits: WindowLimits) -> tuple[AssignedQueues, AssignedQueue]:
    shares = AssignedQueues(limits)
    shares.assign([A])
    shares.start(A, 0, known=False, committed=-1)
    share = shares.get(A)
    assert share is not None
    return shares, share


def offsets(delivered: list[Record]) -> list[int]:
    return [record.offset for record in delivered]


class HandedOver(RuleBasedStateMachine):
    """What is handed over and not finished, whatever a fetch brings and in whatever order it ends."""

    @initialize(
        count=st.integers(1, 40),
        size=st.sampled_from([1, 10, MANY]),
        span=st.integers(1, 60),
        in_columns=st.booleans(),
    )
    def begin(self, count: int, size: int, span: int, in_columns: bool) -> None:
        self.limits = WindowLimits(count, size, span)
        self.shares, self.share = started(self.limits)
        self.in_columns = in_columns
        self.shares.in_columns = in_columns
        self.end = 0
        self.came: list[int] = []
        self.out: list[int] = []
        self.handed: list[int] = []
        self.told = True

    @rule(gap=st.sampled_from([0, 1, 50]), count=st.sampled_from([1, 2, 30]))
    def fetch(self, gap: int, count: int) -> None:
        first, self.end = self.end + gap, self.end + gap + count
        found = records(first, self.end, b"x")
        if self.in_columns:
            self.shares.take_columns(self.share, *from_records(found))
        else:
            self.shares.take(self.share, found)
        self.came += range(first, self.end)
        self.told = True

    @rule()
    def poll(self) -> None:
        if self.in_columns:
            given = [one for run in self.shares.deliver_columns() for one in run.offsets]
        else:
            given = offsets(self.shares.deliver())
        self.handed += given
        self.out += given
        if not given:
            # From now on nobody looks before there is something to look for.
            self.told = False

    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        if self.out:
            offset = data.draw(st.sampled_from(self.out))
            self.out.remove(offset)
            self.told |= self.shares.finish(A, offset)

    @rule(share=st.integers(1, 40))
    def finish_many(self, share: int) -> None:
        done, self.out = self.out[:share], self.out[share:]
        self.told |= self.shares.finish_all(A, done)

    @invariant()
    def the_limits_are_kept_in_order_and_nothing_stands_still(self) -> None:
        if not hasattr(self, "shares"):
            return
        assert len(self.out) <= self.limits.count_max
        assert not self.out or max(self.out) - min(self.out) < self.limits.span_max
        assert self.handed == self.came[: len(self.handed)]
        assert self.told or self.out or self.handed == self.came
        assert self.shares.to_commit().get(A, 0) == min(
            [*self.out, *self.came[len(self.handed) :][:1]], default=self.end
        )


TestHandedOver = HandedOver.TestCase


@pytest.mark.parametrize("in_columns", [False, True])
def test_a_fetch_that_brings_more_than_the_limit_is_handed_over_in_parts(in_columns: bool) -> None:
    shares, share = started(limits_of(ConsumerSettings()))
    shares.take(share, records(0, 10_000))

    def given() -> list[int]:
        if in_columns:
            return [one for run in shares.deliver_columns() for one in run.offsets]
        return offsets(shares.deliver())

    assert given() == [*range(1_000)]
    assert given() == []
    # One of them is slow: so the span is a limit too, whatever else is finished.
    assert shares.finish_all(A, range(1, 1_000))
    assert given() == [*range(1_000, 1_999)]
    shares.finish_all(A, range(1_000, 1_999))
    assert given() == [1_999]
    assert not shares.finish(A, 1_999)
    assert shares.finish(A, 0)
    assert given() == [*range(2_000, 3_000)]


def test_records_further_apart_than_the_span_come_one_after_the_other() -> None:
    shares, share = started(WindowLimits(100, MANY, 100))
    shares.take(share, [records(one, one + 1)[0] for one in (0, 500, 1_000)])
    for offset in (0, 500, 1_000):
        assert offsets(shares.deliver()) == [offset]
        assert shares.deliver() == []
        assert shares.finish(A, offset) == (offset < 1_000)


def test_large_records_beyond_the_limit_are_told_of_while_they_alone_fill_the_window() -> None:
    shares, share = started(WindowLimits(16, 2, MANY))
    shares.take(share, records(0, 17, b"xx"))
    assert len(shares.deliver()) == 16
    assert shares.finish(A, 0)
    assert offsets(shares.deliver()) == [16]
    assert not shares.finish(A, 1)


def test_who_waits_is_not_woken_for_each_record() -> None:
    shares, share = started(WindowLimits(80, MANY, MANY))
    shares.take(share, records(0, 200))
    assert len(shares.deliver()) == 80
    told = [shares.finish(A, offset) for offset in range(10)]
    assert told == [False] * 9 + [True]
    assert offsets(shares.deliver()) == [*range(80, 90)]


def test_runs_are_divided_where_the_count_ends() -> None:
    runs = [*from_records(records(0, 3)), *from_records(records(5, 8))]
    for count in range(8):
        first, rest = divided(list(runs), count)
        both = [offset for run in (*first, *rest) for offset in run.offsets]
        assert both == [0, 1, 2, 5, 6, 7]
        assert sum(map(len, first)) == min(count, 6)
        assert all(map(len, (*first, *rest)))

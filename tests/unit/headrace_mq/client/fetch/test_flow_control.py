"""Never more is handed over and unfinished than the limits say, and nothing waits in vain."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from headrace_mq._net.link import Link
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.fetch.assigned_queues import AssignedQueue, AssignedQueues, limits_of
from headrace_mq.client.fetch.fetcher import ASKED_FIRST_RECORDS
from headrace_mq.client.fetch.flow_control import FEW_RECORDS, FetchDelay, divided
from headrace_mq.client.fetch.process_queue import WindowLimits
from headrace_mq.client.fetch.record_columns import from_records
from headrace_mq.filters.filter import Filter
from headrace_mq.message import QueueRef, Record
from headrace_mq.protocol.bodies import FetchAnswer, encode_fetch_answer
from headrace_mq.protocol.codes import RequestCode
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


def test_large_records_beyond_the_limit_are_announced_while_they_alone_fill_the_window() -> None:
    shares, share = started(WindowLimits(16, 2, MANY))
    shares.take(share, records(0, 17, b"xx"))
    assert len(shares.deliver()) == 16
    assert shares.finish(A, 0)
    assert offsets(shares.deliver()) == [16]
    assert not shares.finish(A, 1)


def test_a_waiting_poll_is_not_woken_for_each_record() -> None:
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


# Longer than the test may last.
LONG_MS = 3_600_000


@pytest.fixture
def fetched() -> list[str]:
    return []


async def test_a_fetch_after_few_records_waits_until_the_application_polls(
    fetched: list[str],
) -> None:
    gathering = FetchDelay(LONG_MS)
    assert gathering.hold(1, lambda: fetched.append("a"))
    assert gathering.hold(FEW_RECORDS - 1, lambda: fetched.append("b"))
    assert fetched == []
    gathering.end()
    assert fetched == ["a", "b"]
    gathering.end()
    assert fetched == ["a", "b"]


async def test_a_held_fetch_waits_for_its_time_at_most_and_is_then_sent_once(
    fetched: list[str],
) -> None:
    made = asyncio.Event()
    gathering = FetchDelay(1)
    assert gathering.hold(1, lambda: (fetched.append("a"), made.set())[0])
    await made.wait()
    gathering.end()
    assert fetched == ["a"]


@pytest.mark.parametrize("records", [0, FEW_RECORDS])
async def test_an_answer_of_many_records_or_none_is_followed_at_once(records: int) -> None:
    assert not FetchDelay(LONG_MS).hold(records, pytest.fail)


async def test_without_a_time_nothing_waits() -> None:
    assert not FetchDelay(0).hold(1, pytest.fail)


async def test_a_fetch_may_put_off_the_next_one(fetched: list[str]) -> None:
    gathering = FetchDelay(LONG_MS)

    def fetch() -> None:
        fetched.append("a")
        assert gathering.hold(1, lambda: fetched.append("b"))

    assert gathering.hold(1, fetch)
    gathering.end()
    assert fetched == ["a"]
    gathering.end()
    assert fetched == ["a", "b"]


async def test_records_of_an_early_fetch_are_polled_alone_and_the_next_poll_finds_all_that_came_since(
    broker: Any, make: Callable[..., Consumer], until: Callable[[Callable[[], object]], Any]
) -> None:
    broker.topics["t"] = 1
    queue = QueueRef("t", 0)
    broker.append(queue, [b"many"] * FEW_RECORDS)
    async with make(fetch_gather_ms=LONG_MS) as consumer:
        polled = await consumer.poll()
        assert len(polled) == FEW_RECORDS
        # So many are followed by a fetch at once, whose answer waits here for the next poll.
        broker.append(queue, [b"b"])
        beyond = replace(polled[0], offset=FEW_RECORDS)
        await until(lambda: consumer.holds(beyond))
        broker.append(queue, [b"c"])
        assert [record.body for record in await consumer.poll()] == [b"b"]
        # An answer, behind which a fetch of that poll would have been answered too.
        consumer.ack(polled[0])
        await consumer.commit()
        assert broker.count(RequestCode.FETCH) == 2
        broker.append(queue, [b"d"])
        assert [record.body for record in await consumer.poll()] == [b"c", b"d"]


@pytest.mark.parametrize(
    ("records", "filters", "order"),
    [
        (ASKED_FIRST_RECORDS - 1, {}, ["handled", "asked"]),
        (ASKED_FIRST_RECORDS, {}, ["asked", "handled"]),
        (1, {"t": Filter("_key IS NULL")}, ["asked", "handled"]),
    ],
)
async def test_records_that_take_long_to_handle_or_to_find_are_asked_for_first(
    broker: Any, watch: Any, link: Link, clock: Any, until: Callable[[Callable[[], object]], Any],
    records: int, filters: Any, order: list[str],
) -> None:  # fmt: skip
    broker.held, queue = {RequestCode.FETCH}, QueueRef("t", 0)
    watched = watch(link, clock)
    pulling, seen = watched.pulling, []
    pulling._filters = filters
    watched.start(queue)
    parked = await broker.next(RequestCode.FETCH)
    fetch, loop = pulling._fetch, asyncio.get_running_loop()

    def asking(shares: Any) -> None:
        seen.append("asked")
        fetch(shares)

    pulling._fetch = asking
    # An application that waits goes on in a later turn of the loop, as fetches do.
    pulling._on_records = lambda: loop.call_soon(seen.append, "handled")
    parked.answer(encode_fetch_answer(FetchAnswer([], [])), broker.append(queue, [b"a"] * records))
    await until(lambda: len(seen) >= 2)
    assert seen == order

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from headrace_mq.client.handlers.attempts import Attempts, Watchdog
from headrace_mq.client.handlers.failures import Again, Failure, Settled, Verdict
from headrace_mq.errors import HandlerTimeout
from headrace_mq.message import QueueRef, Record
from headrace_mq.settings import ConsumerSettings

Until = Callable[[Callable[[], object]], Any]


def record(offset: int) -> Record:
    return Record(
        queue=QueueRef("t", 0), offset=offset, key="k", tag="", headers={}, body=b"",
        born_at_ms=0, stored_at_ms=0,
    )  # fmt: skip


class Ledger:
    """Deliveries, and everything that was told to them."""

    def __init__(self) -> None:
        self.revoked: set[int] = set()
        self.told: list[tuple[str, int]] = []

    async def poll(self) -> list[Record]:
        raise AssertionError("attempts poll nothing")

    async def begin(self, record: Record) -> bool:
        if record.offset in self.revoked:
            return False
        self.told.append(("begin", record.offset))
        return True

    def end(self, record: Record, *, done: bool) -> None:
        self.told.append(("done" if done else "failed", record.offset))


class Policy:
    """Gives the verdicts of a list, the last one for ever, and keeps what it was asked."""

    def __init__(self, *verdicts: Verdict | Exception) -> None:
        self.verdicts = list(verdicts)
        self.asked: list[Failure] = []

    async def decide(self, failure: Failure) -> Verdict:
        self.asked.append(failure)
        verdict = self.verdicts.pop(0) if len(self.verdicts) > 1 else self.verdicts[0]
        if isinstance(verdict, Exception):
            raise verdict
        return verdict


class Handler:
    """Fails as often as it is told, then succeeds."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.calls: list[list[int]] = []

    async def handle(self, records: Sequence[Record]) -> None:
        self.calls.append([one.offset for one in records])
        if self.errors:
            raise self.errors.pop(0)


@pytest.fixture
async def ledger() -> Ledger:
    return Ledger()


def make(ledger: Ledger, handler: Any, policy: Policy, **settings: Any) -> Attempts:
    return Attempts(
        ledger,
        handler,
        ConsumerSettings(**settings),
        on_failure=policy,
        stopping=asyncio.Event(),
    )


async def test_success_is_reported_once(ledger: Ledger) -> None:
    handler = Handler()
    await make(ledger, handler.handle, Policy(Again(0))).complete([record(3)])
    assert ledger.told == [("begin", 3), ("done", 3)]


async def test_a_failed_record_is_handled_again_with_the_number_of_the_attempt(
    ledger: Ledger,
) -> None:
    errors = [LookupError("first"), asyncio.CancelledError("second")]
    handler, policy = Handler(*errors), Policy(Again(0))
    await make(ledger, handler.handle, policy).complete([record(3)])
    assert policy.asked == [Failure(record(3), errors[0], 1), Failure(record(3), errors[1], 2)]
    assert [what for what, _ in ledger.told] == ["begin", "failed"] * 2 + ["begin", "done"]


async def test_a_settled_record_is_done_without_another_attempt(ledger: Ledger) -> None:
    handler = Handler(LookupError())
    await make(ledger, handler.handle, Policy(Settled("retry topic"))).complete([record(3)])
    assert handler.calls == [[3]]
    assert ledger.told == [("begin", 3), ("done", 3)]


async def test_only_the_records_of_a_batch_that_are_not_settled_are_handled_again(
    ledger: Ledger,
) -> None:
    handler = Handler(LookupError())
    policy = Policy(Again(0), Settled("dead letters"), Again(0))
    await make(ledger, handler.handle, policy).complete([record(n) for n in range(3)])
    assert handler.calls == [[0, 1, 2], [0, 2]]
    assert ledger.told[3:6] == [("failed", 0), ("failed", 2), ("done", 1)]
    assert ledger.told[8:] == [("done", 0), ("done", 2)]


async def test_revoked_records_are_left_out(ledger: Ledger) -> None:
    handler = Handler()
    ledger.revoked = {0}
    attempts = make(ledger, handler.handle, Policy(Again(0)))
    await attempts.complete([record(0), record(1)])
    assert handler.calls == [[1]]
    ledger.revoked = {0, 1}
    await attempts.complete([record(0), record(1)])
    assert handler.calls == [[1]]


async def test_a_handler_that_takes_too_long_is_cancelled_and_has_failed(ledger: Ledger) -> None:
    cancelled: list[int] = []

    async def handle(records: Sequence[Record]) -> None:
        if cancelled:
            return
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(records[0].offset)
            raise

    policy = Policy(Again(0))
    await make(ledger, handle, policy, handler_timeout_ms=1).complete([record(3)])
    assert cancelled == [3]
    assert isinstance(policy.asked[0].error, HandlerTimeout)
    assert "queue t/0 at offset 3" in str(policy.asked[0].error)


async def test_a_handler_that_finishes_although_it_was_cancelled_has_done_its_work(
    ledger: Ledger,
) -> None:
    async def handle(records: Sequence[Record]) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    policy = Policy(Again(0))
    await make(ledger, handle, policy, handler_timeout_ms=1).complete([record(3)])
    assert ledger.told == [("begin", 3), ("done", 3)]
    assert policy.asked == []


async def test_a_handlers_own_timeout_is_its_own_failure(ledger: Ledger) -> None:
    error = TimeoutError("the database")
    policy = Policy(Again(0))
    await make(ledger, Handler(error).handle, policy).complete([record(3)])
    assert policy.asked[0].error is error


async def test_a_policy_that_fails_itself_costs_the_longest_pause(
    ledger: Ledger, until: Until
) -> None:
    handler = Handler(LookupError())
    policy = Policy(ConnectionError("no broker"), Again(0))
    attempts = make(ledger, handler.handle, policy, retry_ms_min=1, retry_ms_max=2)
    await attempts.complete([record(3)])
    assert handler.calls == [[3], [3]]
    assert ledger.told[1] == ("failed", 3)


async def test_the_end_begins_no_attempt_and_cuts_the_pause(ledger: Ledger, until: Until) -> None:
    handler, policy = Handler(LookupError()), Policy(Again(60_000))
    attempts = make(ledger, handler.handle, policy)
    task = asyncio.create_task(attempts.complete([record(3)]))
    await until(lambda: policy.asked)
    attempts._stopping.set()
    await task
    await attempts.complete([record(4)])
    assert handler.calls == [[3]]


async def test_a_cancelled_attempt_is_reported_as_not_done(ledger: Ledger, until: Until) -> None:
    async def handle(records: Sequence[Record]) -> None:
        await asyncio.Event().wait()

    policy = Policy(Again(0))
    task = asyncio.create_task(make(ledger, handle, policy).complete([record(3)]))
    await until(lambda: ledger.told)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert ledger.told == [("begin", 3), ("failed", 3)]
    assert policy.asked == []


class Loop:
    """The event loop with a clock that a test moves; timers fire when they are due by it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Any]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Any) -> object:
        self.timers.append((self.now + delay, callback))
        return callback

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [timer for timer in self.timers if timer[0] <= end]:
            first = min(due, key=lambda timer: timer[0])
            self.timers.remove(first)
            self.now = first[0]
            first[1]()
        self.now = end


class Attempt:
    """Waits under the watchdog until it is cancelled or let go."""

    def __init__(self, watchdog: Watchdog) -> None:
        self.gate = asyncio.Event()
        self.expired: bool | None = None
        self.cancelling = -1
        self.task = asyncio.create_task(self._run(watchdog))

    async def _run(self, watchdog: Watchdog) -> None:
        task = asyncio.current_task()
        assert task is not None
        watchdog.watch(task)
        with suppress(asyncio.CancelledError):
            await self.gate.wait()
        self.expired = watchdog.release(task)
        self.cancelling = task.cancelling()


@pytest.fixture
async def loop() -> Loop:
    return Loop()


@pytest.fixture
async def watchdog(loop: Loop) -> Watchdog:
    watchdog = Watchdog(16_000)
    watchdog._loop = loop  # type: ignore[assignment]  # as far as it is used
    return watchdog


async def test_an_attempt_within_its_time_is_left_alone(loop: Loop, watchdog: Watchdog) -> None:
    attempt = Attempt(watchdog)
    await asyncio.sleep(0)
    loop.pass_time(15.9)
    attempt.gate.set()
    await attempt.task
    assert attempt.expired is False
    loop.pass_time(60)
    assert loop.timers == []


async def test_each_attempt_is_cancelled_at_its_own_time_by_one_timer(
    loop: Loop, watchdog: Watchdog, until: Until
) -> None:
    first = Attempt(watchdog)
    await asyncio.sleep(0)
    loop.pass_time(8)
    second = Attempt(watchdog)
    await asyncio.sleep(0)
    assert len(loop.timers) == 1
    loop.pass_time(8)
    await first.task
    assert first.expired is True
    assert first.cancelling == 0
    assert second.expired is None
    loop.pass_time(8)
    await second.task
    assert second.expired is True
    assert loop.timers == []


async def test_a_task_that_was_cancelled_from_outside_too_stays_cancelled(
    loop: Loop, watchdog: Watchdog
) -> None:
    attempt = Attempt(watchdog)
    await asyncio.sleep(0)
    loop.pass_time(16)
    attempt.task.cancel()
    await attempt.task
    assert attempt.expired is True
    assert attempt.cancelling == 1

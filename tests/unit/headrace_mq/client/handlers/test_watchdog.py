import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from headrace_mq.client.handlers.watchdog import Watchdog

Until = Callable[[Callable[[], object]], Any]


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


async def test_a_task_that_somebody_else_cancelled_too_stays_cancelled(
    loop: Loop, watchdog: Watchdog
) -> None:
    attempt = Attempt(watchdog)
    await asyncio.sleep(0)
    loop.pass_time(16)
    attempt.task.cancel()
    await attempt.task
    assert attempt.expired is True
    assert attempt.cancelling == 1

"""The loop of a periodic command, on a clock that the test moves."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace import AggregateId, App, Command, CommandContext, Settings
from headrace.app import RunningApp
from headrace.bus import CommandBus
from headrace.errors import CommandRefused
from headrace.periodic.periodic_command import PeriodicCommand
from headrace.periodic.runner import PeriodicRunner
from headrace.periodic.schedule import CronSchedule
from headrace.testing.history import FakeClock

BEGIN = datetime(2026, 1, 31, 12, 1, tzinfo=UTC)
MINUTE = 60_000


class Close(Command):
    branch: AggregateId
    moment: datetime


class Shop:
    """A running application that notes what was handled, and a clock."""

    def __init__(self, running: RunningApp, handled: list[str]) -> None:
        self.running = running
        self.handled = handled
        self.clock = FakeClock(BEGIN)
        self.broken: set[str] = set()

    def make(self, moment: datetime) -> Command:
        if f"{moment:%H:%M}" in self.broken:
            raise ValueError("no such day")
        return Close(branch="main", moment=moment)

    async def run(self, steps: list[int], missed: Any = "latest", bus: Any = None) -> list[float]:
        """Starts a process again; the clock moves by these minutes in its waits. Returns the waits."""
        waits: list[float] = []

        async def wait(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) > len(steps):
                raise asyncio.CancelledError
            self.clock.advance(steps[len(waits) - 1] * MINUTE)

        runner = PeriodicRunner(
            PeriodicCommand(
                name="close", schedule=CronSchedule("*/5 * * * *"), make=self.make, missed=missed
            ),
            app_name="shop",
            bus=bus or self.running.bus,
            store=self.running.store,
            settings=Settings(retry_ms_min=1, retry_ms_max=1),
            clock=self.clock,
            wait=wait,
        )
        with pytest.raises(asyncio.CancelledError):
            await runner.run()
        # Commands of one aggregate are handled in order: behind this one all of them are.
        await self.running.bus.execute(
            Close(branch="main", moment=datetime.min.replace(tzinfo=UTC))
        )
        return waits


@pytest.fixture
async def shop() -> Any:
    app, handled = App("shop"), list[str]()

    @app.handles
    async def close(command: Close, context: CommandContext) -> None:
        if command.moment.year > 1:
            handled.append(f"{command.moment:%H:%M}")
        context.set_result(None)

    async with app.run_local() as running:
        yield Shop(running, handled)


async def test_a_first_start_makes_up_for_nothing_and_each_moment_comes_once(shop: Shop) -> None:
    waits = await shop.run([2, 2, 1, 4])  # 12:03, 12:05, 12:06, 12:10
    assert shop.handled == ["12:05", "12:10"]
    # No wait is longer than half a minute, because the clock may be set.
    assert waits == [30.0, 30.0, 30.0, 30.0, 30.0]


async def test_a_restart_repeats_nothing(shop: Shop) -> None:
    await shop.run([5])
    await shop.run([])
    await shop.run([1])
    assert shop.handled == ["12:05"]


async def test_a_second_process_has_no_effect(shop: Shop) -> None:
    begin = shop.clock
    await shop.run([5, 5])
    shop.clock = FakeClock(BEGIN)  # the other one sends at the same moments
    await shop.run([5, 5])
    assert shop.handled == ["12:05", "12:10"]
    assert shop.clock.now() == begin.now()


@pytest.mark.parametrize(
    ("missed", "made_up"),
    [("latest", ["12:20"]), ("all", ["12:10", "12:15", "12:20"]), ("skip", [])],
)
async def test_what_was_missed_while_nothing_ran_follows_the_policy(
    shop: Shop, missed: str, made_up: list[str]
) -> None:
    await shop.run([5], missed)
    shop.clock.advance(17 * MINUTE)  # 12:23
    await shop.run([2], missed)
    assert shop.handled == ["12:05", *made_up, "12:25"]


async def test_a_function_that_raises_is_told_and_the_next_moment_comes(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.broken = {"12:05"}
    await shop.run([5, 5])
    assert shop.handled == ["12:10"]
    assert "a periodic command is left out" in caplog.text
    assert "ValueError: no such day" in caplog.text


async def test_a_queue_that_is_away_is_tried_again(shop: Shop) -> None:
    class Away(CommandBus):
        refusals = 2

        def __init__(self, inner: CommandBus) -> None:
            self.inner = inner

        async def send_envelope(self, envelope: Any) -> None:
            if self.refusals:
                self.refusals -= 1
                raise CommandRefused("the broker is away")
            await self.inner.send_envelope(envelope)

    await shop.run([5], bus=Away(shop.running.bus))
    assert shop.handled == ["12:05"]


async def test_the_wait_ends_at_the_next_moment(shop: Shop) -> None:
    shop.clock = FakeClock(BEGIN + timedelta(minutes=3, seconds=50))
    assert await shop.run([]) == [10.0]

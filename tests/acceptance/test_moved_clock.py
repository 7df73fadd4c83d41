"""A whole application on a clock that the test moves: what falls due happens, in order, and is handled."""

from datetime import UTC, datetime, timedelta

import pytest

from headrace import (
    AggregateId,
    App,
    Command,
    CommandContext,
    Settings,
)
from headrace.errors import CommandExpired, HeadraceError
from headrace.testing.history import FakeClock
from samples.conference.application import make_app
from samples.conference.orders import PayOrder, PlaceOrder
from samples.conference.seats import AddSeats, PlanConference

BEGIN = datetime(2026, 1, 31, 12, 1, tzinfo=UTC)


class Note(Command):
    key: AggregateId
    text: str


class Diary:
    """An application that notes what it handles, and when on its clock."""

    def __init__(self) -> None:
        self.clock = FakeClock(BEGIN)
        self.notes: list[tuple[str, str]] = []
        self.app = App("diary")
        self.crashes = 0

        @self.app.handles
        async def note(command: Note, context: CommandContext) -> None:
            if self.crashes:
                self.crashes -= 1
                raise RuntimeError("a defect")
            self.notes.append((f"{self.clock.now():%d %H:%M}", command.text))
            context.set_result(None)


async def test_periodic_commands_come_at_each_moment_in_order_and_none_before() -> None:
    diary = Diary()

    @diary.app.periodic("0 6 * * *")
    def morning(moment: datetime) -> Command:
        return Note(key="day", text=f"morning {moment:%d}")

    @diary.app.periodic("0 18 * * *")
    def evening(moment: datetime) -> Command:
        return Note(key="night", text=f"evening {moment:%d}")

    async with diary.app.run_local(clock=diary.clock) as running:
        await running.quiet()
        assert diary.notes == []
        await diary.clock.elapse(timedelta(hours=42))
        assert diary.notes == [
            ("31 18:00", "evening 31"),
            ("01 06:00", "morning 01"),
            ("01 18:00", "evening 01"),
            ("02 06:00", "morning 02"),
        ]
        assert diary.clock.now() == BEGIN + timedelta(hours=42)


async def test_thirty_days_of_a_command_in_every_hour_pass_in_one_step() -> None:
    diary = Diary()

    @diary.app.periodic("0 * * * *")
    def hourly(moment: datetime) -> Command:
        return Note(key="hour", text=f"{moment:%d %H:%M}")

    async with diary.app.run_local(clock=diary.clock):
        await diary.clock.elapse(timedelta(days=30))
    assert len(diary.notes) == 30 * 24
    assert all(at == text for at, text in diary.notes)


async def test_an_order_that_is_not_paid_expires_when_its_time_is_over() -> None:
    clock = FakeClock(BEGIN)
    app = make_app()
    async with app.run_local(clock=clock) as running:
        await running.bus.execute(PlanConference(conference_id="py", seats=1))
        await running.bus.execute(AddSeats(conference_id="py", seats=1))
        for order in ("paid", "late"):
            placed = PlaceOrder(order_id=order, conference_id="py", seats=1)
            await running.bus.execute(placed)
        await running.quiet()
        await clock.elapse(timedelta(minutes=14))
        assert (await running.bus.execute(PayOrder(order_id="paid"))).ok
        await clock.elapse(timedelta(minutes=1))
        refused = await running.bus.execute(PayOrder(order_id="late"))
        assert not refused.ok
        assert "expired" in refused.sentence


async def test_a_deadline_counts_on_the_moved_clock() -> None:
    diary = Diary()
    async with diary.app.run_local(clock=diary.clock) as running:
        early = Note(key="a", text="early")
        assert (await running.bus.execute(early, deadline=timedelta(minutes=1))).ok
        over = diary.clock.now() + timedelta(minutes=1)
        await diary.clock.elapse(timedelta(minutes=2))
        late = await running.bus.execute(Note(key="a", text="late"), deadline=over)
        assert (late.status, late.error) == ("rejected", CommandExpired.__name__)
    assert [text for _, text in diary.notes] == ["early"]


async def test_quiet_waits_for_retries_and_counts_a_parked_command_as_handled() -> None:
    diary = Diary()
    settings = Settings(retry_ms_min=1, retry_ms_max=1, error_retries_max=2)
    async with diary.app.run_local(settings, clock=diary.clock) as running:
        diary.crashes = 2
        await running.bus.send(Note(key="a", text="retried"))
        await running.quiet()
        assert [text for _, text in diary.notes] == ["retried"]
        diary.crashes = 3
        await running.bus.send(Note(key="a", text="parked"))
        await running.quiet()
        [letter] = await running.letters.read()
        assert letter.parked_at == diary.clock.now()


async def test_an_application_that_never_gets_quiet_is_an_error() -> None:
    diary = Diary()
    settings = Settings(retry_ms_min=1, retry_ms_max=1, error_retries_max=1_000_000)
    async with diary.app.run_local(settings, clock=diary.clock) as running:
        diary.crashes = 1_000_000
        await running.bus.send(Note(key="a", text="never"))
        with pytest.raises(TimeoutError, match="still at work after 20 ms"):
            await running.quiet(timeout_ms=20)
        diary.crashes = 0
        await running.quiet()


async def test_quiet_names_the_way_out_where_a_projection_is_paused() -> None:
    clock = FakeClock(BEGIN)
    async with make_app().run_local(clock=clock) as running:
        await running.read_models.pause("conference_seats")
        plan = PlanConference(conference_id="py", seats=1)
        await running.bus.send(plan)
        with pytest.raises(TimeoutError, match="resume a projection that is paused"):
            await running.quiet(timeout_ms=500)
        await running.read_models.resume("conference_seats")
        await running.quiet()


async def test_quiet_needs_a_clock_of_the_test() -> None:
    async with Diary().app.run_local() as running:
        with pytest.raises(HeadraceError, match="run_local"):
            await running.quiet()

"""Readers of events are tested with a history: rows, commands, instances, calls."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from headrace import App, EventContext, Later, ProcessManager, Projection
from headrace.errors import DomainError, ProjectionError
from headrace.testing.history import FakeClock, History
from samples.bank.accounts import AccountOpened, Deposited, MoneySent, ReceiveMoney, SendMoney
from samples.bank.read_models import Balance, balances
from samples.bank.transfers import CancelTransfer, TransferRequested, transfers
from samples.conference.orders import (
    ExpireOrder,
    HoldOrder,
    OrderExpired,
    OrderPaid,
    OrderPlaced,
    RefuseOrder,
)
from samples.conference.registrations import Registration, make_registrations
from samples.conference.seats import ReleaseSeats, ReserveSeats, SeatsReserved, SellSeats

ANN = AccountOpened(owner="Ann", overdraft_limit=0)
PAID = Deposited(transaction_id="t", amount=5, balance=5)
registrations = make_registrations(timedelta(minutes=15))


def test_rows_are_those_that_a_projection_makes_of_all_that_happened() -> None:
    history = History().happened("ann", ANN, PAID).happened("bob", ANN).happened("ann", PAID)
    rows = history.rows(balances)
    assert {key: (row.balance, row.transactions) for key, row in rows.items()} == {
        "ann": (5, 2),
        "bob": (0, 0),
    }


def test_a_context_counts_versions_and_has_the_time_of_the_clock() -> None:
    manager, seen = ProcessManager("seen"), []

    @manager.on
    def note(event: AccountOpened | Deposited, context: EventContext) -> list[Later]:
        seen.append((context.aggregate_id, context.version, context.recorded_at, context.items))
        return []

    history = History(clock=FakeClock())
    begin = history.clock.now()
    history.happened("ann", ANN, PAID, items={"trace": "x"})
    history.clock.advance(1_000)
    history.happened("bob", ANN)
    assert history.commands(manager) == []
    later = begin + timedelta(seconds=1)
    trace = {"trace": "x"}
    assert seen == [("ann", 1, begin, trace), ("ann", 2, begin, trace), ("bob", 1, later, {})]


def test_commands_are_those_of_a_process_manager_in_order() -> None:
    sent = MoneySent(transfer_id="t", target="bob", amount=5, balance=0)
    send = SendMoney(account_id="ann", transfer_id="t", target="bob", amount=5)
    requested = TransferRequested(source="ann", target="bob", amount=5)
    history = History().happened("t", requested).happened("ann", sent)
    assert history.commands(transfers) == [
        send,
        ReceiveMoney(account_id="bob", transfer_id="t", source="ann", amount=5),
    ]
    history = History().rejected(send, DomainError("too little"))
    assert history.commands(transfers) == [CancelTransfer(transfer_id="t", reason="too little")]


def test_an_instance_remembers_sends_and_ends() -> None:
    history = History().happened("o-1", OrderPlaced(conference_id="py", seats=2))
    history.clock.advance(60_000)
    history.happened("py", SeatsReserved(order_id="o-1", seats=2))
    pay_by = history.clock.now() + timedelta(minutes=15)
    release = ReleaseSeats(conference_id="py", order_id="o-1")
    sent = (
        ReserveSeats(conference_id="py", order_id="o-1", seats=2),
        HoldOrder(order_id="o-1", pay_by=pay_by),
        Later(ExpireOrder(order_id="o-1"), at=pay_by),
    )
    waits = history.instances(registrations)["o-1"]
    assert waits.state == Registration(conference_id="py", seats=2, pay_by=pay_by)
    assert (waits.undo, waits.ended, waits.commands) == ((release,), False, sent)

    history.happened("o-1", OrderExpired(conference_id="py"))
    expired = history.instances(registrations)["o-1"]
    assert (expired.undo, expired.ended, expired.commands) == ((), True, (*sent, release))
    # An instance that has ended hears nothing more.
    history.happened("o-1", OrderPaid(conference_id="py"))
    assert history.instances(registrations)["o-1"] == expired


def test_a_rejection_reaches_the_instance_that_sent_the_command_and_no_other() -> None:
    history = History()
    for order in ("o-1", "o-2"):
        history.happened(order, OrderPlaced(conference_id="py", seats=2))
    refused = ReserveSeats(conference_id="py", order_id="o-2", seats=2)
    found = history.rejected(refused, DomainError("sold out")).instances(registrations)
    assert found["o-2"].commands[1:] == (RefuseOrder(order_id="o-2", reason="sold out"),)
    assert [one.ended for one in found.values()] == [False, True]
    assert SellSeats not in map(type, found["o-1"].commands)


async def test_event_handlers_are_called_by_priority_for_each_event() -> None:
    app, calls = App("mails"), []

    @app.on_event(processor="mail", priority=2)
    async def second(event: Deposited, context: EventContext) -> None:
        calls.append(("second", context.version))

    @app.on_event(processor="mail", priority=1)
    async def first(event: Deposited, context: EventContext) -> None:
        calls.append(("first", context.version))

    history = History().happened("ann", ANN, PAID, PAID)
    await history.handle(app.event_handlers("mail"))
    assert calls == [("first", 2), ("second", 2), ("first", 3), ("second", 3)]


def test_an_error_of_a_fold_names_the_event() -> None:
    broken = Projection("broken", row=Balance, key="account_id")

    @broken.fold
    def deposited(row: Balance | None, event: Deposited, context: EventContext) -> Balance:
        assert row is not None, "opened before"
        return row

    with pytest.raises(ProjectionError, match="ann/1/1"):
        History().happened("ann", PAID).rows(broken)


def test_a_fake_clock_stands_still_until_it_is_advanced() -> None:
    clock = FakeClock(datetime(2026, 2, 1, tzinfo=UTC))
    assert (clock.now(), clock.now()) == (datetime(2026, 2, 1, tzinfo=UTC),) * 2
    clock.advance(1_500)
    assert clock.now() == datetime(2026, 2, 1, tzinfo=UTC) + timedelta(seconds=1.5)
    assert clock.monotonic_ms() == 1_500


def test_time_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="does not go back"):
        FakeClock().advance(-1)


async def test_a_clock_calls_what_is_due_in_order_at_its_own_time_and_not_what_was_cancelled() -> (
    None
):
    clock, calls = FakeClock(), []

    def note(name: str) -> None:
        calls.append((name, clock.monotonic_ms()))

    clock.call_later(2, note, "second")
    clock.call_later(1, note, "first")
    clock.call_later(2, note, "third")
    clock.call_later(1, note, "never").cancel()
    clock.call_later(1, lambda: clock.call_later(0.5, note, "made on the way"))
    await clock.elapse(timedelta(milliseconds=1_999))
    assert calls == [("first", 1_000), ("made on the way", 1_500)]
    clock.advance(1_001)
    assert calls[2:] == [("second", 2_000), ("third", 2_000)]
    assert clock.monotonic_ms() == 3_000
    with pytest.raises(ValueError, match="does not go back"):
        await clock.elapse(timedelta(milliseconds=-1))


async def test_a_clock_waits_for_applications_wherever_it_stops() -> None:
    clock, stops = FakeClock(), list[tuple[int, int]]()

    async def quiet() -> None:
        await asyncio.sleep(0)
        stops.append((clock.monotonic_ms(), clock.sleepers))

    async def waits() -> None:
        await clock.wait(1)
        await clock.wait(1)

    sleeping = asyncio.create_task(waits())
    with clock.attended(quiet):
        await clock.elapse(timedelta(seconds=5))
    assert stops == [(0, 1), (1_000, 1), (2_000, 0), (5_000, 0)]
    await sleeping
    await clock.elapse(timedelta(seconds=5))
    assert len(stops) == 4


async def test_a_sleeper_that_is_cancelled_sleeps_no_more() -> None:
    clock = FakeClock()
    sleeping = asyncio.create_task(clock.wait(1))
    await asyncio.sleep(0)
    assert clock.sleepers == 1
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping
    assert clock.sleepers == 0
    await clock.elapse(timedelta(seconds=2))

"""One run of one handler, on a state of which the test is the owner."""

import asyncio
import contextlib
from dataclasses import replace
from datetime import timedelta

import pytest

from headrace._runtime import handler_deadline as deadline
from headrace.commands import decision as deciding
from headrace.commands.command_handlers import CommandContext, HandlerTable
from headrace.commands.decision import CommandDecider, Crashed, DecisionFailed, Recorded
from headrace.domain.aggregate import Aggregate, applies
from headrace.domain.message import AggregateId, Command, DomainEvent
from headrace.errors import AggregateExists, DomainError, SubjectKeysAway
from headrace.serialization import CommandEnvelope
from headrace.settings import Settings


class Try(Command):
    account_id: AggregateId


class State:
    """What a worker would say."""

    def __init__(self, accepted=None, *, taken=False):
        self.accepted = accepted
        self.taken = taken

    async def load(self, aggregate_type):
        return self.accepted

    async def is_taken(self):
        return self.taken


@pytest.fixture
def decide(world):
    """Runs a handler of Try, or the bank's handler of another command."""

    async def decide(handler_or_command, state, deadline=None):
        handlers, command = world.handlers, handler_or_command
        if not isinstance(handler_or_command, Command):
            handlers, command = HandlerTable(), Try(account_id="a-1")
            handlers.add(handler_or_command)
        decider = CommandDecider(handlers=handlers, serializer=world.serializer, clock=world.clock)
        envelope = CommandEnvelope(
            command=command,
            command_id="c-1",
            correlation_id="c-0",
            items={"trace": "t"},
            deadline=deadline,
        )
        return await decider.decide(envelope, state)

    return decide


@pytest.fixture
def account(bank):
    """An account that exists, with nothing recorded."""
    account = bank.Account.open("a-1", "Ann")
    account.accept()
    return account


async def test_recorded_events_become_the_stream_of_the_next_version(decide, bank, account, world):
    decision = await decide(bank.Deposit(account_id="a-1", amount=5), State(account))
    assert isinstance(decision, Recorded)
    stream = decision.stream
    assert (stream.aggregate_type, stream.aggregate_id, stream.version) == ("Account", "a-1", 2)
    assert (stream.command_id, stream.correlation_id) == ("c-1", "c-0")
    assert stream.events == (bank.Deposited(amount=5, balance=5),)
    assert (stream.items, stream.result) == ({"trace": "t"}, '{"balance":5}')
    assert stream.recorded_at == world.clock.now()
    assert world.serializer.decode_stream(decision.body) == stream
    assert (decision.aggregate, decision.dirty) == (account, False)
    # Accepting is the worker's business.
    assert account.version == 1


async def test_a_new_aggregate_becomes_the_stream_of_version_one(decide, bank):
    decision = await decide(bank.Open(account_id="a-1"), State())
    assert decision.stream.version == 1
    assert decision.aggregate.id == "a-1"


async def test_a_new_aggregate_whose_id_turns_out_to_be_taken_is_rejected(decide, bank):
    decision = await decide(bank.Open(account_id="a-1"), State(taken=True))
    assert decision.stream.rejection.error == "AggregateExists"
    assert decision.aggregate is None


@pytest.mark.parametrize("cached", [True, False])
async def test_a_taken_id_ends_alike_whether_its_aggregate_is_in_memory_or_not(
    decide, bank, account, cached
):
    heard = []

    async def handler(command: Try, context: CommandContext) -> None:
        new = bank.Account.open("a-1", "Bob")
        try:
            context.add(new)
        except AggregateExists:
            heard.append("too early")
        again = await context.get(bank.Account, "a-1")
        heard.append(again is new)

    state = State(account) if cached else State(taken=True)
    decision = await decide(handler, state)
    assert (decision.stream.rejection.error, decision.aggregate) == ("AggregateExists", None)
    assert heard == [True]
    # The one in memory was not touched, and stays.
    assert not decision.dirty


async def test_a_handler_that_records_nothing_leaves_its_result_and_the_version(
    decide, bank, account
):
    decision = await decide(bank.Look(account_id="a-1"), State(account))
    stream = decision.stream
    assert (stream.unchanged, stream.version, stream.seen_version) == (True, None, 1)
    assert stream.result == '{"balance":0}'


async def test_a_handler_that_touches_nothing_changes_nothing(decide):
    async def handler(command: Try, context: CommandContext) -> None:
        pass

    stream = (await decide(handler, State())).stream
    assert (stream.unchanged, stream.seen_version, stream.result) == (True, None, None)


async def test_a_domain_error_is_a_rejection_with_its_code_or_its_class_name(decide, bank, account):
    decision = await decide(bank.Withdraw(account_id="a-1", amount=5), State(account))
    assert decision.stream.rejection.error == "overdrawn"
    assert (decision.stream.version, decision.stream.aggregate_type) == (None, "Account")
    assert decision.dirty is False

    class Never(DomainError):
        pass

    async def handler(command: Try, context: CommandContext) -> None:
        raise Never("not in this house")

    decision = await decide(handler, State())
    assert decision.stream.rejection.error == "Never"
    assert decision.stream.rejection.sentence == "not in this house"
    assert decision.stream.aggregate_type == ""


async def test_a_rejection_after_recorded_events_says_that_the_memory_is_dirty(
    decide, bank, account
):
    decision = await decide(bank.DepositTwice(account_id="a-1", amount=5), State(account))
    assert decision.stream.rejection is not None
    assert decision.dirty is True


async def test_a_command_without_handler_fails_with_its_name(decide):
    class Unheard(Command):
        account_id: AggregateId

    decision = await decide(Unheard(account_id="a-1"), State())
    assert decision == DecisionFailed(
        error="NoHandler", sentence="no handler is registered for Unheard"
    )


async def test_an_unexpected_error_is_returned_and_not_raised(decide):
    error = KeyError("boom")

    async def handler(command: Try, context: CommandContext) -> None:
        raise error

    assert await decide(handler, State()) == Crashed(error)


async def test_a_command_that_touches_two_aggregates_fails_whatever_its_handler_does(
    decide, bank, account
):
    async def handler(command: Try, context: CommandContext) -> None:
        (await context.get(bank.Account, "a-1")).deposit(1)
        with contextlib.suppress(ValueError):
            (await context.get(bank.Account, "a-2")).deposit(1)

    decision = await decide(handler, State(account))
    assert isinstance(decision, DecisionFailed)
    assert decision.error == "ContextMisused"
    assert "'a-2'" in decision.sentence


async def test_events_that_do_not_encode_fail_the_command_before_anything_is_stored(
    decide, bank, account
):
    async def handler(command: Try, context: CommandContext) -> None:
        account = await context.get(bank.Account, "a-1")
        account.record(bank.Deposited.model_construct(amount=object(), balance=0))

    decision = await decide(handler, State(account))
    assert isinstance(decision, DecisionFailed)
    assert decision.error == "SerializationError"


async def test_a_stream_that_no_queue_would_take_fails_the_command(
    decide, bank, account, monkeypatch
):
    monkeypatch.setattr(deciding, "STREAM_BYTES_MAX", 100)
    decision = await decide(bank.Deposit(account_id="a-1", amount=5), State(account))
    assert isinstance(decision, DecisionFailed)
    assert decision.error == "StreamTooLarge"
    assert "100 is the limit" in decision.sentence


# Unexpected errors, and what a worker makes of them.


class Explode(Command):
    account_id: AggregateId


async def test_an_unexpected_error_is_retried_then_parked_and_later_commands_go_on(world, bank):
    world.settings = Settings(retry_ms_min=1, retry_ms_max=2, error_retries_max=2)
    runs = []

    async def explode(command: Explode, context) -> None:
        account = await context.get(bank.Account, command.account_id)
        account.deposit(1_000)
        runs.append(account.balance)
        raise KeyError("boom")

    world.handle(explode)
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    failed, later = await asyncio.gather(
        world.bus.execute(Explode(account_id="a-1"), command_id="x"),
        world.bus.execute(bank.Deposit(account_id="a-1", amount=1)),
    )
    assert (failed.status, failed.error, failed.sentence) == ("failed", "KeyError", "'boom'")
    # Each run began with a clean aggregate.
    assert runs == [1_000, 1_000, 1_000]
    assert later.value == {"balance": 1}
    (letter,) = world.letters.all
    assert (letter.error, letter.name) == ("KeyError", "Explode")
    assert world.serializer.decode_command(letter.body).command_id == "x"
    await world.stop()
    assert await world.unfinished() == []


async def test_what_a_failed_command_did_in_memory_leaves_no_trace(world, bank):
    async def explode(command: Explode, context) -> None:
        (await context.get(bank.Account, command.account_id)).deposit(1_000)
        await context.get(bank.Account, "another")

    world.handle(explode)
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    failed, later = await asyncio.gather(
        world.bus.execute(Explode(account_id="a-1")),
        world.bus.execute(bank.Deposit(account_id="a-1", amount=1)),
    )
    assert (failed.status, failed.error) == ("failed", "ContextMisused")
    assert later.value == {"balance": 1}
    await world.check("a-1")


async def test_a_stored_command_is_published_and_answered_though_its_handler_now_fails(world, bank):
    world.settings = Settings(retry_ms_min=1, retry_ms_max=2, error_retries_max=0)
    failing = []

    async def explode(command: Explode, context) -> None:
        if failing:
            raise KeyError("a new defect")
        context.add(bank.Account.open(command.account_id, "Ann"))

    world.handle(explode)
    world.start()
    gate = world.transport.before_publish["events"]
    gate.shut()
    call = asyncio.create_task(world.bus.execute(Explode(account_id="a-1")))
    await gate.reached.wait()
    await world.crash()
    failing.append(True)
    gate.open()
    world.start()
    assert ((await call).status, (await call).version) == ("executed", 1)
    assert world.letters.all == []
    await world.check("a-1")


async def test_an_unexpected_error_that_passes_leaves_no_trace(world, bank):
    runs = []

    async def explode(command: Explode, context) -> None:
        runs.append(1)
        if len(runs) < 4:
            raise OSError("the other system is away")
        (await context.get(bank.Account, command.account_id)).deposit(1)

    world.handle(explode)
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    assert (await world.bus.execute(Explode(account_id="a-1"))).status == "executed"
    assert world.letters.all == []


async def test_a_handler_that_is_cancelled_from_within_is_an_unexpected_error(world, bank):
    world.settings = Settings(retry_ms_min=1, retry_ms_max=2, error_retries_max=0)

    async def explode(command: Explode, context) -> None:
        raise asyncio.CancelledError

    world.handle(explode)
    world.start()
    result = await world.bus.execute(Explode(account_id="a-1"))
    assert (result.status, result.error) == ("failed", "CancelledError")
    assert (await world.bus.execute(bank.Open(account_id="a-1"))).status == "executed"


async def test_a_handler_that_takes_too_long_is_an_unexpected_error(world, monkeypatch):
    monkeypatch.setattr(deadline, "HANDLER_MS_MAX", 1)
    world.settings = Settings(retry_ms_min=1, retry_ms_max=2, error_retries_max=1)

    async def explode(command: Explode, context) -> None:
        await asyncio.Event().wait()

    world.handle(explode)
    world.start()
    result = await world.bus.execute(Explode(account_id="a-1"))
    assert (result.status, result.error) == ("failed", "TimeoutError")


async def test_waiting_for_the_database_does_not_count_as_the_handlers_time(
    world, bank, monkeypatch
):
    monkeypatch.setattr(deadline, "HANDLER_MS_MAX", 20)
    await world.store_behind(world.stream("a-1", 1, bank.Opened(owner="Ann"), command_id="other"))
    world.start()
    world.store.failures["read_stream"] = [OSError("away")] * 60
    taken = await world.bus.execute(bank.Open(account_id="a-1"))
    assert (taken.status, taken.error) == ("rejected", "AggregateExists")
    world.store.failures["read_stream"] = [OSError("away")] * 60
    result = await world.bus.execute(bank.Deposit(account_id="a-1", amount=1))
    assert result.status == "executed"


async def test_an_application_error_in_stored_events_fails_the_command_and_not_the_service(world):
    class Odd(DomainEvent):
        pass

    class Thing(Aggregate):
        @applies
        def _odd(self, event: Odd) -> None:
            raise ZeroDivisionError("apply is broken")

    class Use(Command):
        thing_id: AggregateId

    async def use(command: Use, context) -> None:
        await context.get(Thing, command.thing_id)

    world.settings = Settings(retry_ms_min=1, retry_ms_max=2, error_retries_max=1)
    world.handle(use)
    await world.store_behind(
        replace(world.stream("t-1", 1, Odd(), command_id="c"), aggregate_type="Thing")
    )
    world.start()
    result = await world.bus.execute(Use(thing_id="t-1"))
    assert (result.status, result.error) == ("failed", "ZeroDivisionError")


async def test_a_handler_that_is_running_in_a_crash_ends_and_its_command_comes_again(world, bank):
    runs, entered = [], asyncio.Event()

    class Slow(bank.Open):
        pass

    async def slow(command: Slow, context) -> None:
        runs.append("begun")
        entered.set()
        try:
            if len(runs) == 1:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            runs.append("cancelled")
            raise
        context.add(bank.Account.open(command.account_id, command.owner))

    world.handle(slow)
    world.start()
    call = asyncio.create_task(world.bus.execute(Slow(account_id="a-1")))
    await entered.wait()
    await world.crash()
    assert runs == ["begun", "cancelled"]
    world.start()
    assert (await call).status == "executed"


class Base(Command):
    account_id: AggregateId


class Child(Base):
    """Has a handler of its own."""


async def test_a_command_and_its_child_each_reach_the_handler_of_their_exact_type(world):
    async def break_down(command: Base, context: CommandContext) -> None:
        context.set_result("base")

    async def break_badly(command: Child, context: CommandContext) -> None:
        context.set_result("child")

    world.handle(break_down, break_badly)
    world.start()
    base = await world.bus.execute(Base(account_id="a-1"))
    child = await world.bus.execute(Child(account_id="a-1"))
    assert [(each.status, each.value) for each in (base, child)] == [
        ("unchanged", "base"),
        ("unchanged", "child"),
    ]


async def test_an_aggregate_of_a_class_that_inherits_is_created_updated_and_loaded(world, bank):
    class Savings(bank.Account):
        """Has everything of an account, and a rule of its own."""

        def withdraw(self, amount: int) -> None:
            raise bank.Overdrawn("a savings account is only filled")

    class OpenSavings(Command):
        account_id: AggregateId

    class Save(Command):
        account_id: AggregateId
        amount: int

    class Take(Command):
        account_id: AggregateId

    async def open_savings(command: OpenSavings, context: CommandContext) -> None:
        context.add(Savings.open(command.account_id, "Ann"))

    async def save(command: Save, context: CommandContext) -> None:
        savings = await context.get(Savings, command.account_id)
        savings.deposit(command.amount)
        context.set_result(savings.balance)

    async def take(command: Take, context: CommandContext) -> None:
        (await context.get(Savings, command.account_id)).withdraw(1)

    world.handle(open_savings, save, take)
    world.settings = world.settings.model_copy(update={"snapshot_events": 2})
    for restart in range(3):
        world.start()
        if not restart:
            created = await world.bus.execute(OpenSavings(account_id="s-1"))
            assert (created.status, created.version) == ("executed", 1)
        saved = await world.bus.execute(Save(account_id="s-1", amount=5))
        assert (saved.status, saved.version, saved.value) == (
            "executed",
            restart + 2,
            5 * (restart + 1),
        )
        assert (await world.bus.execute(Take(account_id="s-1"))).error == "overdrawn"
        # Exactly the class: a load could not tell which one to make.
        wrong = await world.bus.execute(bank.Deposit(account_id="s-1", amount=1))
        assert (wrong.status, wrong.error) == ("rejected", "AggregateNotFound")
        await world.stop()
    assert {each.aggregate_type for each in await world.stored("s-1") if each.events} == {"Savings"}


@pytest.mark.parametrize(("left_ms", "error"), [(1, None), (0, "CommandExpired")])
async def test_a_command_that_is_not_decided_by_its_deadline_is_rejected(
    decide, bank, account, world, left_ms, error
):
    by = world.clock.now() + timedelta(milliseconds=left_ms)
    decision = await decide(bank.Deposit(account_id="a-1", amount=5), State(account), by)
    rejection = decision.stream.rejection
    assert (rejection and rejection.error) == error
    assert bool(decision.stream.events) is (error is None)
    if error is not None:
        assert account.recorded == ()
        assert rejection.sentence.startswith(f"it was to be decided by {by.isoformat()}")


async def test_an_expired_command_whose_key_is_away_is_decided_later(
    decide, world, bank, monkeypatch
):
    def away(_):
        raise SubjectKeysAway("the keys are away")

    monkeypatch.setattr(world.serializer, "encode_stream", away)
    decision = await decide(bank.Look(account_id="a-1"), State(), world.clock.now())
    assert isinstance(decision, Crashed)
    assert isinstance(decision.error, SubjectKeysAway)

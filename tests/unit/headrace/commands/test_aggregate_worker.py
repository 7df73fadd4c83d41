"""One aggregate's way: duplicates, conflicts, pipelining, rejections."""

import asyncio

import pytest

from headrace._runtime.backoff import Backoff
from headrace._runtime.ids import new_id
from headrace.settings import Settings

# Duplicates.


async def test_the_same_create_command_twice_is_executed_once_and_answered_twice(world, bank):
    world.start()
    command = bank.Open(account_id="a-1")
    first = await world.bus.execute(command, command_id="c-1")
    second = await world.bus.execute(command, command_id="c-1")
    other = await world.bus.execute(bank.Open(account_id="a-1"), command_id="c-2")
    assert first == second
    assert (first.status, first.version) == ("executed", 1)
    assert (other.status, other.error) == ("rejected", "AggregateExists")
    assert (await world.account("a-1")).version == 1
    await world.check("a-1")


async def test_the_same_update_command_twice_answers_the_stored_result_and_publishes_again(
    world, bank
):
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    first = await world.bus.execute(bank.Deposit(account_id="a-1", amount=5), command_id="c-1")
    await world.bus.execute(bank.Deposit(account_id="a-1", amount=7))
    again = await world.bus.execute(bank.Deposit(account_id="a-1", amount=5), command_id="c-1")
    assert again == first
    assert again.value == {"balance": 5}
    assert (await world.account("a-1")).balance == 12
    # It was in memory, so that the store had only to be read.
    assert len(world.store.appends) == 3
    ids = [stream.command_id for stream in world.published("a-1")]
    assert ids.count("c-1") == 2
    await world.check("a-1")


async def test_a_duplicate_costs_no_append_and_loads_nothing(world, bank):
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"), command_id="c-0")
    for number in range(5):
        await world.bus.execute(
            bank.Deposit(account_id="a-1", amount=1), command_id=f"c-{number + 1}"
        )
    await world.stop()
    world.start()  # With nothing in memory.
    appends = len(world.store.appends)
    for number in range(5):
        again = await world.bus.execute(
            bank.Deposit(account_id="a-1", amount=1), command_id=f"c-{number + 1}"
        )
        assert again.value == {"balance": number + 1}
    assert len(world.store.appends) == appends
    assert world.store.reads == 0


async def test_a_duplicate_of_a_rejected_command_gets_the_same_rejection(world, bank):
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    withdraw = bank.Withdraw(account_id="a-1", amount=5)
    first = await world.bus.execute(withdraw, command_id="w-1")
    await world.bus.execute(bank.Deposit(account_id="a-1", amount=100))
    await world.stop()
    world.start()
    again = await world.bus.execute(withdraw, command_id="w-1")
    assert again == first
    assert (again.status, again.error) == ("rejected", "overdrawn")
    assert (await world.account("a-1")).balance == 100
    await world.check("a-1")


async def test_a_duplicate_whose_rerun_would_be_rejected_is_still_answered_as_executed(world, bank):
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    await world.bus.execute(bank.Deposit(account_id="a-1", amount=5))
    withdraw = bank.Withdraw(account_id="a-1", amount=5)
    first = await world.bus.execute(withdraw, command_id="w-1")
    await world.stop()
    world.start()
    again = await world.bus.execute(withdraw, command_id="w-1")
    assert again == first
    assert again.status == "executed"


@pytest.mark.parametrize("command", ["Close", "Withdraw", "Deposit"])
async def test_a_duplicate_whose_id_looks_new_runs_once_and_is_answered_as_before(
    world, bank, command
):
    """The clock of its caller is ahead of this one; its rerun changes nothing, fails, or repeats."""
    amount = {} if command == "Close" else {"amount": 5}
    wish = getattr(bank, command)(account_id="a-1", **amount)
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    await world.bus.execute(bank.Deposit(account_id="a-1", amount=5))
    command_id = new_id()
    first = await world.bus.execute(wish, command_id=command_id)
    await world.stop()
    world.start()
    again = await world.bus.execute(wish, command_id=command_id)
    assert again == first
    assert (again.status, again.version) == ("executed", 3)
    assert [stream.command_id for stream in world.published("a-1")].count(command_id) == 2
    # The state in memory is right again, too.
    later = await world.bus.execute(bank.Look(account_id="a-1"))
    assert later.value == {"balance": (await world.account("a-1")).balance}
    await world.check("a-1")


async def test_a_duplicate_that_arrives_before_the_first_is_settled_shares_its_outcome(world, bank):
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    world.store.before_append.shut()
    envelope_id = "c-1"
    first = asyncio.create_task(
        world.bus.execute(bank.Deposit(account_id="a-1", amount=5), command_id=envelope_id)
    )
    await world.store.before_append.reached.wait()
    await world.bus.send(bank.Deposit(account_id="a-1", amount=5), command_id=envelope_id)
    await world.settle()
    world.store.before_append.open()
    assert (await first).value == {"balance": 5}
    assert [stream.command_id for stream in world.published("a-1")].count("c-1") == 1
    await world.stop()
    # Both messages were acknowledged.
    assert await world.unfinished() == []


async def test_when_memory_is_wrong_about_a_command_the_store_decides(world, bank):
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    await world.bus.execute(bank.Deposit(account_id="a-1", amount=1), command_id="c-1")
    # As if the store had been restored to a moment before the deposit.
    del world.store._commands["a-1", "c-1"]
    world.store._versions["a-1"].pop()
    again = await world.bus.execute(bank.Deposit(account_id="a-1", amount=1), command_id="c-1")
    assert (again.status, again.version) == ("executed", 2)


# Conflicts.


async def test_updates_behind_a_foreign_write_are_all_executed_in_order(world, bank):
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    await world.store_behind(
        world.stream("a-1", 2, bank.Deposited(amount=100, balance=100), command_id="foreign")
    )
    results = await asyncio.gather(
        *(world.bus.execute(bank.Deposit(account_id="a-1", amount=1)) for _ in range(50))
    )
    assert {result.status for result in results} == {"executed"}
    assert [result.version for result in results] == list(range(3, 53))
    assert [result.value["balance"] for result in results] == list(range(101, 151))
    assert (await world.account("a-1")).version == 52


async def test_a_create_whose_own_stream_is_stored_already_succeeds_and_updates_follow(world, bank):
    await world.store_behind(world.stream("a-1", 1, bank.Opened(owner="Ann"), command_id="create"))
    world.start()
    created = await world.bus.execute(bank.Open(account_id="a-1"), command_id="create")
    assert (created.status, created.version) == ("executed", 1)
    results = await asyncio.gather(
        *(world.bus.execute(bank.Deposit(account_id="a-1", amount=1)) for _ in range(50))
    )
    assert [result.version for result in results] == list(range(2, 52))
    await world.check("a-1")


async def test_a_stored_create_sent_together_with_its_updates_succeeds_with_all_of_them(
    world, bank
):
    await world.store_behind(world.stream("a-1", 1, bank.Opened(owner="Ann"), command_id="create"))
    world.start()
    results = await asyncio.gather(
        world.bus.execute(bank.Open(account_id="a-1"), command_id="create"),
        *(world.bus.execute(bank.Deposit(account_id="a-1", amount=1)) for _ in range(50)),
    )
    assert {result.status for result in results} == {"executed"}
    assert [result.version for result in results] == list(range(1, 52))
    await world.check("a-1")


async def test_a_create_of_an_id_that_another_command_took_is_rejected(world, bank):
    await world.store_behind(world.stream("a-1", 1, bank.Opened(owner="Bob"), command_id="other"))
    world.start()
    created = await world.bus.execute(bank.Open(account_id="a-1"), command_id="create")
    assert (created.status, created.error) == ("rejected", "AggregateExists")
    # And a duplicate of it gets the same.
    assert await world.bus.execute(bank.Open(account_id="a-1"), command_id="create") == created
    assert (await world.account("a-1")).owner == "Bob"
    assert (await world.bus.execute(bank.Deposit(account_id="a-1", amount=1))).version == 2


async def test_a_foreign_write_during_a_run_makes_the_handler_run_again(world, bank):
    entered, go_on = asyncio.Event(), asyncio.Event()
    runs = []

    class Slow(bank.Deposit):
        pass

    async def slow(command: Slow, context) -> None:
        account = await context.get(bank.Account, command.account_id)
        runs.append(account.version)
        entered.set()
        await go_on.wait()
        account.deposit(command.amount)

    world.handle(slow)
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    call = asyncio.create_task(world.bus.execute(Slow(account_id="a-1", amount=1)))
    await entered.wait()
    await world.store_behind(
        world.stream("a-1", 2, bank.Deposited(amount=5, balance=5), command_id="foreign")
    )
    go_on.set()
    result = await call
    assert (result.status, result.version) == ("executed", 3)
    assert runs == [1, 2]
    assert (await world.account("a-1")).balance == 6


async def test_a_run_that_a_rewind_overtakes_counts_no_more_and_is_repeated(world, bank):
    entered, go_on = asyncio.Event(), asyncio.Event()
    seen = []

    class Slow(bank.Deposit):
        pass

    async def slow(command: Slow, context) -> None:
        account = await context.get(bank.Account, command.account_id)
        seen.append(account.balance)
        entered.set()
        await go_on.wait()
        account.deposit(command.amount)
        context.set_result(account.balance)

    world.handle(slow)
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    await world.store_behind(
        world.stream("a-1", 2, bank.Deposited(amount=100, balance=100), command_id="foreign")
    )
    world.store.before_append.shut()
    first = asyncio.create_task(world.bus.execute(bank.Deposit(account_id="a-1", amount=1)))
    second = asyncio.create_task(world.bus.execute(Slow(account_id="a-1", amount=10)))
    await entered.wait()
    # The second runs on the first one's undurable state when the store refuses the first.
    world.store.before_append.open()
    await world.settle()
    assert not first.done()
    go_on.set()
    assert [(await first).value, (await second).value] == [{"balance": 101}, 111]
    assert seen == [1, 101]


async def test_a_command_that_meets_a_conflict_every_time_fails_as_busy_and_is_kept(
    world, bank, monkeypatch
):
    pauses = []

    async def pause(backoff: Backoff, attempt: int) -> None:
        pauses.append(attempt)

    monkeypatch.setattr(Backoff, "pause", pause)
    world.settings = Settings(retry_ms_min=1, retry_ms_max=2, conflict_retries_max=3)
    runs = []

    class Contended(bank.Deposit):
        pass

    async def contended(command: Contended, context) -> None:
        account = await context.get(bank.Account, command.account_id)
        runs.append(account.version)
        version = account.version + 1
        await world.store_behind(
            world.stream(
                "a-1", version, bank.Deposited(amount=1, balance=1), command_id=f"f-{version}"
            )
        )
        account.deposit(command.amount)

    world.handle(contended)
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    results = await asyncio.gather(
        world.bus.execute(Contended(account_id="a-1", amount=1), command_id="busy"),
        world.bus.execute(bank.Deposit(account_id="a-1", amount=1)),
    )
    assert (results[0].status, results[0].error) == ("failed", "Busy")
    assert runs == [1, 2, 3, 4]
    # The first rerun came at once, the others after growing pauses.
    assert pauses == [1, 2]
    assert world.processor.work.conflicts == 4
    # Later commands go on, and the message is not lost.
    assert results[1].status == "executed"
    (letter,) = world.letters.all
    assert letter.error == "Busy"


# Pipelining.


async def test_the_next_command_runs_on_the_accepted_state_before_it_is_durable(world, bank):
    world.start()
    world.store.before_append.shut()
    calls = [
        asyncio.create_task(world.bus.execute(command))
        for command in (
            bank.Open(account_id="a-1"),
            bank.Deposit(account_id="a-1", amount=5),
            bank.Withdraw(account_id="a-1", amount=5),
        )
    ]
    await world.store.before_append.reached.wait()
    await world.settle()
    assert not any(call.done() for call in calls)
    assert world.transport.published["events"] == []
    world.store.before_append.open()
    assert [result.status for result in await asyncio.gather(*calls)] == ["executed"] * 3
    # Later commands did not wait for an append of their predecessors.
    assert len(world.store.appends) < 3


async def test_what_was_decided_on_a_refused_stream_is_never_appended(world, bank):
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    world.store.before_append.shut()
    first = asyncio.create_task(world.bus.execute(bank.Deposit(account_id="a-1", amount=1)))
    await world.store.before_append.reached.wait()
    # Decided as version 3 on top of version 2, and queued behind the append in flight.
    second = asyncio.create_task(world.bus.execute(bank.Deposit(account_id="a-1", amount=1)))
    await world.settle()
    # The foreign version 2 makes room for exactly such a version 3.
    await world.store_behind(
        world.stream("a-1", 2, bank.Deposited(amount=100, balance=100), command_id="foreign")
    )
    world.store.before_append.open()
    assert [(await first).value, (await second).value] == [{"balance": 101}, {"balance": 102}]
    world.check_sums(await world.stored("a-1"))


async def test_an_aggregate_is_read_back_only_when_what_was_accepted_is_durable(world, bank):
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    world.store.before_append.shut()
    calls = [
        asyncio.create_task(world.bus.execute(command))
        for command in (
            bank.Deposit(account_id="a-1", amount=5),
            # Leaves the aggregate in memory useless, so that the next one has to load it.
            bank.DepositTwice(account_id="a-1", amount=50),
            bank.Look(account_id="a-1"),
        )
    ]
    await world.store.before_append.reached.wait()
    await world.settle()
    assert world.store.reads == 0
    world.store.before_append.open()
    results = await asyncio.gather(*calls)
    assert [result.status for result in results] == ["executed", "rejected", "unchanged"]
    assert results[2].value == {"balance": 5}


async def test_a_run_that_waits_for_what_is_then_refused_begins_again(world, bank):
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    world.store.before_append.shut()
    calls = [
        asyncio.create_task(world.bus.execute(command))
        for command in (
            bank.Deposit(account_id="a-1", amount=5),
            bank.DepositTwice(account_id="a-1", amount=50),
            bank.Deposit(account_id="a-1", amount=1),
            bank.Look(account_id="a-1"),
        )
    ]
    await world.store.before_append.reached.wait()
    await world.settle()
    await world.store_behind(
        world.stream("a-1", 2, bank.Deposited(amount=100, balance=100), command_id="foreign")
    )
    world.store.before_append.open()
    results = await asyncio.gather(*calls)
    assert [result.value for result in results] == [
        {"balance": 105},
        None,
        {"balance": 106},
        {"balance": 106},
    ]
    world.check_sums(await world.stored("a-1"))


async def test_an_unchanged_command_waits_for_the_streams_that_it_saw(world, bank):
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    world.store.before_append.shut()
    deposit = asyncio.create_task(world.bus.execute(bank.Deposit(account_id="a-1", amount=5)))
    look = asyncio.create_task(world.bus.execute(bank.Look(account_id="a-1")))
    await world.store.before_append.reached.wait()
    await world.settle()
    assert not look.done()
    world.store.before_append.open()
    assert (await look).value == {"balance": 5}
    assert (await look).status == "unchanged"
    assert (await look).version == (await deposit).version == 2


async def test_a_rejection_that_rested_on_a_refused_stream_is_decided_again(world, bank):
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    await world.bus.execute(bank.Deposit(account_id="a-1", amount=10))
    # Behind the cache: ten more. Of these three, the cache lets the first alone succeed.
    await world.store_behind(
        world.stream("a-1", 3, bank.Deposited(amount=10, balance=20), command_id="foreign")
    )
    results = await asyncio.gather(
        *(world.bus.execute(bank.Withdraw(account_id="a-1", amount=10)) for _ in range(3))
    )
    assert [result.status for result in results] == ["executed", "executed", "rejected"]


async def test_commands_refused_by_the_store_are_not_published(world, bank):
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    await world.store_behind(
        world.stream("a-1", 2, bank.Deposited(amount=100, balance=100), command_id="foreign")
    )
    await asyncio.gather(
        *(world.bus.execute(bank.Deposit(account_id="a-1", amount=1)) for _ in range(10))
    )
    balances = [
        event.balance
        for stream in world.published("a-1")
        for event in stream.events
        if isinstance(event, bank.Deposited)
    ]
    assert balances == list(range(101, 111))


# Rejections.


async def test_a_domain_error_is_stored_published_and_answered_as_a_rejection(world, bank):
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    result = await world.bus.execute(
        bank.Withdraw(account_id="a-1", amount=5), command_id="w-1", items={"trace": "t"}
    )
    assert (result.status, result.error) == ("rejected", "overdrawn")
    assert result.sentence == "a-1 holds 0, 5 is too much"
    stream = (await world.stored("a-1"))[-1]
    assert (stream.version, stream.events, stream.aggregate_type) == (None, (), "Account")
    assert (stream.rejection.command_name, stream.rejection.command_data) == (
        "Withdraw",
        {"account_id": "a-1", "amount": 5},
    )
    assert stream.items == {"trace": "t"}
    message = world.transport.published["events"][-1]
    assert message.headers == {"kind": "rejection", "version": "", "command": "w-1"}
    assert world.published("a-1")[-1] == stream


async def test_a_command_to_an_unknown_aggregate_is_rejected_without_a_type(world, bank):
    world.start()
    result = await world.bus.execute(bank.Deposit(account_id="a-1", amount=5))
    assert (result.status, result.error) == ("rejected", "AggregateNotFound")
    assert "Account 'a-1'" in result.sentence
    (stream,) = await world.stored("a-1")
    assert stream.aggregate_type == ""


async def test_what_was_recorded_before_a_domain_error_leaves_no_trace(world, bank):
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    calls = [
        world.bus.execute(bank.Deposit(account_id="a-1", amount=1)),
        world.bus.execute(bank.DepositTwice(account_id="a-1", amount=50)),
        world.bus.execute(bank.Deposit(account_id="a-1", amount=1)),
    ]
    results = await asyncio.gather(*calls)
    assert [result.status for result in results] == ["executed", "rejected", "executed"]
    assert results[2].value == {"balance": 2}
    await world.check("a-1")

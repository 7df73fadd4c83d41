"""The command service end to end, on the memory store and the local transport."""

import asyncio

import pytest
from sqlalchemy.exc import DataError

from headrace.commands import processor as processor_module
from headrace.commands.command_handlers import CommandContext
from headrace.domain.message import AggregateId, Command
from headrace.errors import DamagedStream
from headrace.settings import Settings
from headrace.transports.base import Outgoing


async def test_a_created_and_updated_aggregate_has_version_two_and_the_new_state(world, bank):
    world.start()
    opened = await world.bus.execute(bank.Open(account_id="a-1", owner="Bob"))
    deposited = await world.bus.execute(bank.Deposit(account_id="a-1", amount=5))
    assert (opened.status, opened.version) == ("executed", 1)
    assert (deposited.status, deposited.version) == ("executed", 2)
    assert deposited.value == {"balance": 5}
    account = await world.account("a-1")
    assert (account.owner, account.balance, account.version) == ("Bob", 5, 2)
    await world.check("a-1")


async def test_a_hundred_concurrent_updates_of_one_aggregate_are_all_executed_in_order(world, bank):
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    results = await asyncio.gather(
        *(world.bus.execute(bank.Deposit(account_id="a-1", amount=1)) for _ in range(100))
    )
    assert [result.version for result in results] == list(range(2, 102))
    assert [result.value["balance"] for result in results] == list(range(1, 101))
    await world.check("a-1")


async def test_three_hundred_pairs_of_create_and_update_on_one_id_all_finish(world, bank):
    world.start()
    calls = []
    for number in range(300):
        calls.append(world.bus.execute(bank.Open(account_id="a-1", owner=str(number))))
        calls.append(world.bus.execute(bank.Deposit(account_id="a-1", amount=1)))
    results = await asyncio.gather(*calls)
    assert [result.status for result in results[0::2]] == ["executed"] + ["rejected"] * 299
    assert {result.error for result in results[2::2]} == {"AggregateExists"}
    assert {result.status for result in results[1::2]} == {"executed"}
    assert (await world.account("a-1")).version == 301
    await world.check("a-1")


async def test_ten_thousand_new_aggregates_cost_no_query_each(world, bank):
    world.start()
    await asyncio.gather(
        *(world.bus.execute(bank.Open(account_id=f"a-{number}")) for number in range(1_000))
    )
    assert (world.store.reads, world.store.finds) == (0, 0)
    # And what was just created is in memory.
    await world.bus.execute(bank.Deposit(account_id="a-7", amount=1))
    assert world.store.reads == 0


async def test_streams_of_many_aggregates_share_appends(world, bank):
    world.start()
    world.store.before_append.shut()
    calls = [asyncio.create_task(world.bus.execute(bank.Open(account_id="first")))]
    await world.store.before_append.reached.wait()
    calls += [
        asyncio.create_task(world.bus.execute(bank.Open(account_id=f"a-{number}")))
        for number in range(50)
    ]
    await world.settle()
    world.store.before_append.open()
    await asyncio.gather(*calls)
    # While the first append was in flight, everything else collected for the second.
    assert sum(len(batch) for batch in world.store.appends) == 51
    assert len(world.store.appends[1]) == 50


async def test_one_append_holds_at_most_the_streams_that_are_allowed(world, bank):
    world.settings = Settings(commit_streams_max=7)
    world.start()
    await asyncio.gather(
        *(world.bus.execute(bank.Open(account_id=f"a-{number}")) for number in range(50))
    )
    assert max(len(batch) for batch in world.store.appends) == 7


async def test_at_most_the_allowed_number_of_commands_is_accepted_at_a_time(world, bank):
    world.settings = Settings(commands_in_flight_max=10)
    world.start()
    world.store.before_append.shut()
    calls = [
        asyncio.create_task(world.bus.execute(bank.Open(account_id=f"a-{number}")))
        for number in range(30)
    ]
    await world.settle()
    world.store.before_append.open()
    await asyncio.gather(*calls)
    # Whatever waited behind the first append: it was not more than what had been let in.
    assert max(len(batch) for batch in world.store.appends) <= 10
    assert sum(len(batch) for batch in world.store.appends) == 30


async def test_other_aggregates_go_on_while_one_handler_takes_its_time(world, bank):
    entered, go_on = asyncio.Event(), asyncio.Event()

    class Wait(bank.Look):
        pass

    async def wait(command: Wait, context) -> None:
        entered.set()
        await go_on.wait()

    world.handle(wait)
    world.start()
    slow = asyncio.create_task(world.bus.execute(Wait(account_id="a-1")))
    await entered.wait()
    assert (await world.bus.execute(bank.Open(account_id="a-2"))).status == "executed"
    behind = asyncio.create_task(world.bus.execute(bank.Open(account_id="a-1")))
    await world.settle()
    assert not behind.done()
    go_on.set()
    assert (await slow).status == "unchanged"
    assert (await behind).status == "executed"


async def test_a_stopping_processor_takes_nothing_new_and_finishes_what_it_has(world, bank):
    world.start()
    world.store.before_append.shut()
    accepted = [
        asyncio.create_task(world.bus.execute(bank.Open(account_id=f"a-{number}")))
        for number in range(20)
    ]
    await world.store.before_append.reached.wait()
    await world.settle()
    stopping = asyncio.create_task(world.stop())
    await world.settle()
    late = asyncio.create_task(world.bus.execute(bank.Open(account_id="late")))
    await world.settle()
    assert not stopping.done()
    world.store.before_append.open()
    await stopping
    assert {result.status for result in await asyncio.gather(*accepted)} == {"executed"}
    # Everything accepted was acknowledged; what came late waits for the next processor.
    assert [message.key for message in await world.unfinished()] == ["late"]
    world.start()
    assert (await late).status == "executed"


async def test_stopping_is_bounded_and_what_is_unfinished_comes_again(world, bank, monkeypatch):
    monkeypatch.setattr(processor_module, "STOP_MS_MAX", 1)
    world.start()
    world.store.before_append.shut()
    call = asyncio.create_task(world.bus.execute(bank.Open(account_id="a-1")))
    await world.store.before_append.reached.wait()
    await world.stop()
    world.store.before_append.open()
    world.start()
    assert (await call).status == "executed"
    await world.check("a-1")


async def test_a_subscription_that_fails_is_replaced(world, bank):
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    for member in list(world.transport._groups["bank.commands"].members):
        await member.aclose()
    result = await world.bus.execute(bank.Deposit(account_id="a-1", amount=1))
    assert result.status == "executed"
    await world.check("a-1")


async def test_a_defect_in_the_command_side_ends_the_processor_and_acknowledges_nothing(
    world, bank
):
    async def broken(streams: object) -> list[object]:
        return []

    world.store.append = broken
    task = world.start()
    await world.bus.send(bank.Open(account_id="a-1"))
    with pytest.raises(ValueError, match="shorter"):
        await task
    world.processors.clear()
    assert [message.key for message in await world.unfinished()] == ["a-1"]


async def test_aggregates_in_memory_are_forgotten_when_a_queue_was_away(world, bank):
    # A rejection is not checked against a version: decided on a stale state it would stand.
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    refused = await world.bus.execute(bank.Withdraw(account_id="a-1", amount=5))
    assert refused.status == "rejected"
    (queue,) = {
        message.queue
        for messages in world.transport._topics["bank.commands"].queues
        for message in messages.messages
        if message.key == "a-1"
    }
    # Another member of the group handled the next command.
    await world.store_behind(
        world.stream("a-1", 2, bank.Deposited(amount=9, balance=9), command_id="elsewhere")
    )
    (member,) = world.transport._groups["bank.commands"].members
    # Without a turn of the event loop in between: this processor never sees the message.
    world.transport._append(Outgoing(topic="bank.commands", key="a-1", body=b"elsewhere"))
    member.seek(queue, world.transport.queue(queue).end)
    withdrawn = await world.bus.execute(bank.Withdraw(account_id="a-1", amount=5))
    assert (withdrawn.status, withdrawn.value) == ("executed", {"balance": 4})


# Failure injection: five failures, then it works.

FAILURES = [RuntimeError("unknown")] * 5 + [OSError("i/o")] * 5


async def test_a_store_that_fails_to_append_ten_times_loses_nothing(world, bank):
    world.start()
    world.store.failures["append"] = list(FAILURES)
    result = await world.bus.execute(bank.Open(account_id="a-1"))
    assert result.status == "executed"
    await world.check("a-1")


async def test_a_command_whose_events_the_store_always_refuses_is_parked_and_the_rest_goes_on(
    world, bank
):
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    refusal = DataError("INSERT", {}, ValueError("value too long"))
    world.store.refuses = lambda stream: stream.command_id == "poison" and refusal
    calls = [
        world.bus.execute(command, command_id=command_id)
        for command_id, command in (
            ("before", bank.Deposit(account_id="a-1", amount=1)),
            ("poison", bank.Deposit(account_id="a-1", amount=2)),
            ("after", bank.Deposit(account_id="a-1", amount=4)),
            ("other", bank.Open(account_id="a-2")),
        )
    ]
    before, poison, after, other = await asyncio.gather(*calls)
    assert (poison.status, poison.error) == ("failed", "StoreRefused")
    assert "value too long" in poison.sentence
    assert (before.value, after.value, other.status) == ({"balance": 1}, {"balance": 5}, "executed")
    (letter,) = world.letters.all
    assert letter.error == "StoreRefused"
    await world.check("a-1")
    await world.stop()
    assert await world.unfinished() == []


async def test_an_append_that_was_done_before_it_failed_is_recognised_when_repeated(world, bank):
    world.start()
    world.store.failures["after append"] = [OSError("the connection broke")]
    results = await asyncio.gather(
        world.bus.execute(bank.Open(account_id="a-1")),
        *(world.bus.execute(bank.Deposit(account_id="a-1", amount=1)) for _ in range(10)),
    )
    assert [result.version for result in results] == list(range(1, 12))
    assert results[-1].value == {"balance": 10}
    await world.check("a-1")


async def test_a_topic_that_fails_to_take_events_ten_times_loses_nothing(world, bank):
    world.start()
    world.transport.failures["events"] = list(FAILURES)
    results = await asyncio.gather(
        world.bus.execute(bank.Open(account_id="a-1")),
        *(world.bus.execute(bank.Deposit(account_id="a-1", amount=1)) for _ in range(10)),
    )
    assert {result.status for result in results} == {"executed"}
    assert world.transport.failures["events"] == []
    await world.check_readable("a-1")


async def test_a_topic_that_fails_to_take_a_rejection_ten_times_loses_nothing(world, bank):
    world.start()
    world.transport.failures["events"] = list(FAILURES)
    result = await world.bus.execute(bank.Deposit(account_id="a-1", amount=1))
    assert (result.status, result.error) == ("rejected", "AggregateNotFound")
    await world.check("a-1")


@pytest.mark.parametrize("method", ["read_stream", "find_stored"])
async def test_a_store_that_fails_to_read_ten_times_delays_and_changes_nothing(world, bank, method):
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    await world.stop()
    world.start()
    world.store.failures[method] = list(FAILURES)
    result = await world.bus.execute(bank.Look(account_id="a-1"))
    assert (result.status, result.value) == ("unchanged", {"balance": 0})


async def test_a_stored_outcome_that_does_not_decode_fails_its_duplicate_and_nothing_else(
    world, bank
):
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"), command_id="c-1")
    gone = DamagedStream(1, "a-1", 1, "c-1", "event 'Gone' is not registered")
    world.store.damaged = {("a-1", "c-1"): gone}
    duplicate, later = await asyncio.gather(
        world.bus.execute(bank.Open(account_id="a-1"), command_id="c-1"),
        world.bus.execute(bank.Deposit(account_id="a-1", amount=1)),
    )
    assert (duplicate.status, duplicate.error) == ("failed", "DamagedStream")
    assert later.status == "executed"


# Crashes.


async def test_a_lane_that_worked_while_its_queue_was_away_keeps_nothing_in_memory(world, bank):
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    world.store.before_append.shut()
    call = asyncio.create_task(world.bus.execute(bank.Deposit(account_id="a-1", amount=1)))
    await world.store.before_append.reached.wait()
    (member,) = world.transport._groups["bank.commands"].members
    for number in range(2):
        queue = ("bank.commands", number)
        world.transport._append(
            Outgoing(topic="bank.commands", key=f"{'ab'[number]}-1", body=b"elsewhere")
        )
        member.seek(queue, world.transport.queue(queue).end)
    later = [
        asyncio.create_task(world.bus.execute(bank.Look(account_id=each)))
        for each in ("b-1", "c-1")
    ]
    await world.settle()
    world.store.before_append.open()
    await call
    await asyncio.gather(*later)
    reads = world.store.reads
    await world.bus.execute(bank.Look(account_id="a-1"))
    assert world.store.reads == reads + 1


async def test_after_a_restart_an_aggregate_is_loaded_from_its_snapshot_and_later_events(
    world, bank
):
    world.settings = world.settings.model_copy(update={"snapshot_events": 5})
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1", owner="Bob"))
    for _ in range(6):
        await world.bus.execute(bank.Deposit(account_id="a-1", amount=1))
    await world.stop()
    snapshot = await world.store.find_snapshot("a-1")
    assert (snapshot.version, snapshot.body) == (5, '{"balance":4,"owner":"Bob","closed":false}')
    # Nobody reads what the snapshot covers: were it gone, nothing would change.
    world.store._versions["a-1"][:5] = [None] * 5
    world.start()
    result = await world.bus.execute(bank.Look(account_id="a-1"))
    assert (result.value, result.version) == ({"balance": 6}, 7)


async def test_a_snapshot_is_saved_only_when_its_events_are_durable(world, bank):
    world.settings = world.settings.model_copy(update={"snapshot_events": 1})
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    await world.settle()
    world.store.before_append.shut()
    deposit = asyncio.create_task(world.bus.execute(bank.Deposit(account_id="a-1", amount=1)))
    await world.store.before_append.reached.wait()
    await world.settle()
    assert (await world.store.find_snapshot("a-1")).version == 1
    await world.store_behind(
        world.stream("a-1", 2, bank.Deposited(amount=100, balance=100), command_id="foreign")
    )
    world.store.before_append.open()
    assert (await deposit).value == {"balance": 101}
    await world.settle()
    snapshot = await world.store.find_snapshot("a-1")
    # The state that was decided on a refused stream was never saved.
    assert (snapshot.version, '"balance":101' in snapshot.body) == (3, True)


async def test_a_store_that_does_not_take_snapshots_holds_nothing_up(world, bank):
    world.settings = world.settings.model_copy(update={"snapshot_events": 1})
    world.store.before_save.shut()
    world.store.failures["save_snapshots"] = [OSError("full")]
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    await world.store.before_save.reached.wait()
    assert (await world.bus.execute(bank.Deposit(account_id="a-1", amount=1))).ok
    world.store.before_save.open()
    await world.stop()
    await world.check("a-1")


async def test_one_aggregate_with_many_commands_lets_others_have_their_turn(world, bank):
    runs = []

    class Note(bank.Look):
        pass

    async def note(command: Note, context) -> None:
        runs.append(command.account_id)

    world.handle(note)
    calls = [
        asyncio.create_task(world.bus.execute(Note(account_id=account_id)))
        for account_id in ["busy"] * 200 + ["other"]
    ]
    await world.settle()
    world.start()
    await asyncio.gather(*calls)
    assert runs.index("other") < 100


# Topics of single command types.


class Import(Command, topic="imports"):
    account_id: AggregateId
    amount: int


@pytest.fixture
def two_topics(world, bank):
    """A world where imports have a topic of their own."""

    async def imports(command: Import, context: CommandContext) -> None:
        account = await context.get(bank.Account, command.account_id)
        account.deposit(command.amount)

    world.handle(imports)
    return world


async def test_a_command_type_with_a_topic_of_its_own_travels_through_that_one(two_topics, bank):
    two_topics.start()
    await two_topics.bus.execute(bank.Open(account_id="a-1"))
    first = await two_topics.bus.execute(Import(account_id="a-1", amount=5), command_id="i-1")
    again = await two_topics.bus.execute(Import(account_id="a-1", amount=5), command_id="i-1")
    assert (first.status, first.version) == ("executed", 2)
    assert again == first
    assert [each.key for each in two_topics.transport.published["commands.imports"]] == ["a-1"] * 2
    assert len(two_topics.transport.published["commands"]) == 1
    await two_topics.check("a-1")
    await two_topics.stop()
    group = two_topics.transport._groups["bank.commands"]
    assert {topic for topic, _ in group.offsets} == {"bank.commands", "bank.commands.imports"}


async def test_commands_of_both_topics_take_turns_on_one_aggregate(two_topics, bank):
    two_topics.start()
    await two_topics.bus.execute(bank.Open(account_id="a-1"))
    calls = [
        two_topics.bus.execute(kind(account_id="a-1", amount=1))
        for _ in range(50)
        for kind in (bank.Deposit, Import)
    ]
    results = await asyncio.gather(*calls)
    assert sorted(result.version for result in results) == list(range(2, 102))
    # Within each topic the order of the calls is kept.
    for place in (0, 1):
        versions = [result.version for result in results[place::2]]
        assert versions == sorted(versions)
    # Nobody waited for anybody: no run met a conflict.
    assert sum(len(batch) for batch in two_topics.store.appends) == 101
    await two_topics.check("a-1")


async def test_a_processor_for_one_topic_leaves_the_others_alone(two_topics, bank):
    two_topics.settings = two_topics.settings.model_copy(update={"command_topics": ("main",)})
    two_topics.start()
    await two_topics.bus.execute(bank.Open(account_id="a-1"))
    call = asyncio.create_task(two_topics.bus.execute(Import(account_id="a-1", amount=5)))
    assert (await two_topics.bus.execute(bank.Deposit(account_id="a-1", amount=1))).version == 2
    assert not call.done()
    two_topics.settings = two_topics.settings.model_copy(update={"command_topics": ("imports",)})
    two_topics.start()
    assert (await call).version == 3
    await two_topics.check("a-1")


async def test_what_is_decided_without_a_version_is_never_decided_on_what_another_changed(
    two_topics, bank
):
    two_topics.start()
    await two_topics.bus.execute(bank.Open(account_id="a-1"))
    refused = await two_topics.bus.execute(bank.Withdraw(account_id="a-1", amount=5))
    assert refused.error == "overdrawn"
    # The process that has the other topic's queue; nothing here tells of it.
    await two_topics.store_behind(
        two_topics.stream("a-1", 2, bank.Deposited(amount=9, balance=9), command_id="elsewhere")
    )
    look = await two_topics.bus.execute(bank.Look(account_id="a-1"))
    assert (look.version, look.value) == (2, {"balance": 9})
    await two_topics.store_behind(
        two_topics.stream("a-1", 3, bank.Deposited(amount=9, balance=18), command_id="elsewhere-2")
    )
    withdrawn = await two_topics.bus.execute(bank.Withdraw(account_id="a-1", amount=18))
    assert (withdrawn.status, withdrawn.version) == ("executed", 4)

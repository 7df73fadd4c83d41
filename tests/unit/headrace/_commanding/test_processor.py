"""The command service end to end, on the memory store and the local transport."""

import asyncio
import json
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace._commanding import processor as processor_module
from headrace.errors import UnknownMessageType
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


@pytest.mark.parametrize("method", ["read_stream", "find_command"])
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
    world.store.failures["find_command"] = [UnknownMessageType("event 'Gone' is not registered")]
    duplicate, later = await asyncio.gather(
        world.bus.execute(bank.Open(account_id="a-1"), command_id="c-1"),
        world.bus.execute(bank.Deposit(account_id="a-1", amount=1)),
    )
    assert (duplicate.status, duplicate.error) == ("failed", "UnknownMessageType")
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


GATES = {
    "before the append": lambda world: world.store.before_append,
    "after the append": lambda world: world.store.after_append,
    "before the publication": lambda world: world.transport.before_publish["events"],
    "after the publication": lambda world: world.transport.after_publish["events"],
    "before the reply": lambda world: world.transport.before_reply,
}


@pytest.mark.parametrize("where", GATES)
@pytest.mark.parametrize("cold", [True, False], ids=["nothing stored before", "accounts exist"])
async def test_after_a_crash_the_next_processor_finishes_everything_once(world, bank, where, cold):
    world.start()
    if not cold:
        for number in range(3):
            await world.bus.execute(bank.Open(account_id=f"a-{number}"), command_id="open")
    gate = GATES[where](world)
    gate.shut()
    calls = []
    for number in range(3):
        account_id = f"a-{number}"
        for command_id, command in (
            ("open", bank.Open(account_id=account_id)),
            ("d-1", bank.Deposit(account_id=account_id, amount=5)),
            ("d-2", bank.Deposit(account_id=account_id, amount=6)),
            ("w-1", bank.Withdraw(account_id=account_id, amount=100)),
            ("look", bank.Look(account_id=account_id)),
            ("w-2", bank.Withdraw(account_id=account_id, amount=2)),
        ):
            calls.append(asyncio.create_task(world.bus.execute(command, command_id=command_id)))
    await gate.reached.wait()
    await world.settle()
    await world.crash()
    gate.open()
    world.start()
    results = await asyncio.gather(*calls)
    expected = ["executed", "executed", "executed", "rejected", "unchanged", "executed"]
    assert [result.status for result in results] == expected * 3
    # The look leaves nothing behind to be remembered: it may see what came after it.
    deposits, withdrawal = results[1:3], results[5]
    assert [result.value["balance"] for result in (*deposits, withdrawal)] == [5, 11, 9]
    for number in range(3):
        account = await world.account(f"a-{number}")
        assert (account.balance, account.version) == (9, 4)
        await world.check(f"a-{number}")
    await world.stop()
    assert await world.unfinished() == []


commands = st.tuples(
    st.sampled_from(["open", "deposit", "withdraw", "look", "close", "deposit twice"]),
    st.sampled_from(["a-1", "a-2"]),
    st.integers(min_value=1, max_value=9),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), commands),
        st.tuples(st.just("send again"), st.integers(min_value=0, max_value=30)),
        st.tuples(st.just("foreign write"), st.sampled_from(["a-1", "a-2"])),
        st.tuples(st.just("turns"), st.integers(min_value=1, max_value=12)),
        st.tuples(st.just("crash"), st.none()),
    ),
    max_size=40,
)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=steps)
def test_whatever_happens_every_command_has_one_outcome_and_versions_have_no_gap(
    new_world, bank, steps
):
    asyncio.run(play(new_world(), bank, steps))


async def play(world, bank: SimpleNamespace, steps: list[tuple[str, object]]) -> None:
    make = {
        "open": lambda account_id, _: bank.Open(account_id=account_id),
        "deposit": lambda account_id, n: bank.Deposit(account_id=account_id, amount=n),
        "withdraw": lambda account_id, n: bank.Withdraw(account_id=account_id, amount=n),
        "look": lambda account_id, _: bank.Look(account_id=account_id),
        "close": lambda account_id, _: bank.Close(account_id=account_id),
        "deposit twice": lambda account_id, n: bank.DepositTwice(account_id=account_id, amount=n),
    }
    await world.begin()
    world.start()
    sent: list[tuple[str, object]] = []
    calls: list[tuple[str, asyncio.Task]] = []
    for step, value in steps:
        if step == "send":
            kind, account_id, number = value
            sent.append((f"c-{len(sent)}", make[kind](account_id, number)))
            command_id, command = sent[-1]
        elif step == "send again" and sent:
            command_id, command = sent[value % len(sent)]
        elif step == "foreign write":
            await write_behind(world, bank, value)
            continue
        elif step == "turns":
            await world.settle(value)
            continue
        elif step == "crash":
            await world.crash()
            world.start()
            continue
        else:
            continue
        call = asyncio.create_task(world.bus.execute(command, command_id=command_id))
        calls.append((command_id, call))
        await world.settle(1)
    results = await asyncio.gather(*(call for _, call in calls))
    stored = {
        stream.command_id: stream
        for account_id in ("a-1", "a-2")
        for stream in await world.stored(account_id)
    }
    for (command_id, _), result in zip(calls, results, strict=True):
        stream = stored.get(command_id)
        if stream is None:
            assert result.status == "unchanged"
        else:
            assert result.status == ("executed" if stream.rejection is None else "rejected")
            assert result.version == stream.version
            assert result.value == (None if stream.result is None else json.loads(stream.result))
    await world.stop()
    assert await world.unfinished() == []
    for account_id in ("a-1", "a-2"):
        await check_with_foreign(world, account_id)
    await world.bus.aclose()


async def write_behind(world, bank: SimpleNamespace, account_id: str) -> None:
    account = await world.account(account_id)
    event = (
        bank.Deposited(amount=1, balance=account.balance + 1)
        if account.version
        else bank.Opened(owner="foreign")
    )
    version = account.version + 1
    await world.store_behind(
        world.stream(account_id, version, event, command_id=f"foreign-{version}")
    )


async def check_with_foreign(world, account_id: str) -> None:
    """`World.check`, where other processes publish their own streams."""
    everything = await world.stored(account_id)
    world.check_sums(everything)
    stored = [each for each in everything if not each.command_id.startswith("foreign")]
    command_ids = [stream.command_id for stream in stored]
    assert len(command_ids) == len(set(command_ids))
    published = [stream.command_id for stream in world.published(account_id)]
    assert list(dict.fromkeys(published)) == command_ids

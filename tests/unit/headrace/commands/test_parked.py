"""After a parked command an aggregate's later ones go on, or are held behind it and follow."""

import asyncio

import pytest
from structlog.testing import capture_logs

from headrace.access.principal import PRINCIPAL, Principal
from headrace.commands import parked as parking_module
from headrace.commands.command_handlers import CommandContext
from headrace.domain.message import AggregateId, Command
from headrace.errors import LetterNotFound
from headrace.letters import CommandLetters
from headrace.serialization import CommandEnvelope
from headrace.stores.base import LetterState
from headrace.transports.base import Outgoing


class Break(Command):
    account_id: AggregateId


@pytest.fixture
def breaking(world, bank):
    """A world with a handler that fails while `breaking.broken`, and with holds."""

    async def break_down(command: Break, context: CommandContext) -> None:
        account = await context.get(bank.Account, command.account_id)
        world.runs.append(context.command_id)
        if world.broken:
            raise ValueError("broken")
        account.deposit(100)

    world.broken = True
    world.runs = []
    world.handle(break_down)
    world.settings = world.settings.model_copy(
        update={"after_parked": "hold", "error_retries_max": 0}
    )
    return world


def commands(bank):
    return [
        ("before", bank.Deposit(account_id="a-1", amount=1)),
        ("broken", Break(account_id="a-1")),
        ("after", bank.Deposit(account_id="a-1", amount=2)),
        ("other", bank.Deposit(account_id="a-2", amount=4)),
        ("last", bank.Deposit(account_id="a-1", amount=8)),
    ]


async def send_all(world, bank):
    await world.bus.execute(bank.Open(account_id="a-1"))
    await world.bus.execute(bank.Open(account_id="a-2"))
    return await asyncio.gather(
        *(world.bus.execute(command, command_id=name) for name, command in commands(bank))
    )


async def send_again(world, bank, name):
    return await world.bus.execute(dict(commands(bank))[name], command_id=name)


def letters(world):
    return [(letter.command_id, letter.state.value) for letter in world.letters.all]


LINE = [("broken", "holding"), ("after", "held"), ("last", "held")]


async def executed(world, account_id="a-1"):
    stored = await world.stored(account_id)
    return [stream.command_id for stream in stored if not stream.unchanged][1:]


async def until(condition):
    while not condition():
        await asyncio.sleep(0)


async def test_with_hold_later_commands_are_held_behind_in_order_and_others_go_on(breaking, bank):
    breaking.start()
    before, broken, after, other, last = await send_all(breaking, bank)
    assert (before.status, other.status) == ("executed", "executed")
    assert (broken.status, broken.error) == ("failed", "ValueError")
    assert [(each.status, each.error) for each in (after, last)] == [("failed", "Held")] * 2
    assert "command broken of aggregate 'a-1' is parked" in after.sentence
    assert letters(breaking) == LINE
    assert (await breaking.account("a-1")).version == 2
    # What is stored is still answered, and what is parked is answered as before.
    assert await send_again(breaking, bank, "before") == before
    assert await send_again(breaking, bank, "broken") == broken
    assert await send_again(breaking, bank, "after") == after
    assert breaking.runs == ["broken"]
    assert letters(breaking) == LINE
    await breaking.stop()
    assert await breaking.unfinished() == []


async def test_without_hold_later_commands_go_on_and_the_letter_can_be_retried(breaking, bank):
    breaking.settings = breaking.settings.model_copy(update={"after_parked": "go on"})
    breaking.start()
    results = await send_all(breaking, bank)
    assert [each.status for each in results] == ["executed", "failed"] + ["executed"] * 3
    assert letters(breaking) == [("broken", "parked")]
    breaking.broken = False
    assert await breaking.operator.retry(1) is None
    assert await executed(breaking) == ["before", "after", "last", "broken"]


async def test_a_retried_letter_runs_once_and_the_held_ones_follow_in_order(breaking, bank):
    breaking.start()
    await send_all(breaking, bank)
    breaking.broken = False
    assert await breaking.operator.retry(1) is None
    await until(lambda: not letters(breaking))
    assert breaking.runs == ["broken", "broken"]
    assert await executed(breaking) == ["before", "broken", "after", "last"]
    assert (await breaking.account("a-1")).balance == 111
    # Whoever asks by the same id gets the result; new ones go on.
    assert (await send_again(breaking, bank, "after")).value == {"balance": 103}
    assert (await breaking.bus.execute(bank.Look(account_id="a-1"))).status == "unchanged"
    await breaking.check("a-1")
    await breaking.stop()
    assert await breaking.unfinished() == []


async def test_a_letter_that_fails_again_keeps_its_place_and_goes_on_holding(breaking, bank):
    breaking.start()
    await send_all(breaking, bank)
    again = await breaking.operator.retry(1)
    assert again is not None
    assert (again.number, again.attempts, again.state) == (1, 2, LetterState.HOLDING)
    assert letters(breaking) == LINE
    assert (await breaking.bus.execute(bank.Deposit(account_id="a-1", amount=1))).error == "Held"


async def test_a_skipped_letter_leaves_its_command_out_and_the_held_ones_follow(breaking, bank):
    breaking.start()
    await send_all(breaking, bank)
    assert (await breaking.operator.skip(1)).command_id == "broken"
    await until(lambda: not letters(breaking))
    assert await executed(breaking) == ["before", "after", "last"]
    assert (await breaking.bus.execute(bank.Look(account_id="a-1"))).value == {"balance": 11}
    with pytest.raises(LetterNotFound, match="there is no letter 1"):
        await breaking.operator.skip(1)


async def test_a_held_command_may_be_skipped_alone(breaking, bank):
    breaking.start()
    await send_all(breaking, bank)
    await breaking.operator.skip(2)
    assert letters(breaking) == [LINE[0], LINE[2]]
    breaking.broken = False
    await breaking.operator.retry(1)
    await until(lambda: not letters(breaking))
    assert await executed(breaking) == ["before", "broken", "last"]


async def test_a_hold_lasts_over_a_restart_and_keeps_the_order(breaking, bank):
    breaking.start()
    await send_all(breaking, bank)
    await breaking.stop()
    breaking.broken = False
    breaking.start()
    late = await breaking.bus.execute(bank.Deposit(account_id="a-1", amount=16), command_id="late")
    assert (late.error, letters(breaking)) == ("Held", [*LINE, ("late", "held")])
    assert await breaking.operator.retry(1) is None
    await until(lambda: not letters(breaking))
    assert await executed(breaking) == ["before", "broken", "after", "last", "late"]


async def test_a_held_command_that_fails_holds_those_behind_it(breaking, bank):
    breaking.start()
    await send_all(breaking, bank)
    await breaking.bus.execute(Break(account_id="a-1"), command_id="broken-2")
    await breaking.bus.execute(bank.Deposit(account_id="a-1", amount=16), command_id="late")
    await breaking.operator.skip(1)
    await until(lambda: letters(breaking) == [("broken-2", "holding"), ("late", "held")])
    assert await executed(breaking) == ["before", "after", "last"]
    held = await breaking.bus.execute(bank.Deposit(account_id="a-1", amount=1))
    assert "command broken-2 of aggregate" in held.sentence


async def test_what_comes_while_letters_are_taken_up_follows_them_and_is_answered(breaking, bank):
    breaking.start()
    await send_all(breaking, bank)
    breaking.broken = False
    gate = breaking.letters.before["finish"]
    gate.shut()
    retried = asyncio.create_task(breaking.operator.retry(1))
    await gate.reached.wait()
    late = asyncio.create_task(
        breaking.bus.execute(bank.Deposit(account_id="a-1", amount=16), command_id="late")
    )
    await until(lambda: ("late", "held") in letters(breaking))
    assert not late.done()
    gate.open()
    assert await retried is None
    assert (await late).value == {"balance": 127}
    assert await executed(breaking) == ["before", "broken", "after", "last", "late"]


async def test_who_released_a_hold_is_noticed_when_the_queue_was_someone_elses(breaking, bank):
    breaking.start()
    await send_all(breaking, bank)
    deposit = bank.Deposit(account_id="a-1", amount=2)
    assert (await breaking.bus.execute(deposit)).error == "Held"
    (queue,) = {
        message.queue
        for messages in breaking.transport._topics["bank.commands"].queues
        for message in messages.messages
        if message.key == "a-1"
    }
    (member,) = breaking.transport._groups["bank.commands"].members
    # Another process has dealt with all letters.
    for letter in breaking.letters.all:
        await breaking.letters.finish(letter)
    # Without a turn of the event loop in between: this processor never sees the message.
    breaking.transport._append(Outgoing(topic="bank.commands", key="a-1", body=b"elsewhere"))
    member.seek(queue, breaking.transport.queue(queue).end)
    assert (await breaking.bus.execute(deposit)).status == "executed"


async def test_held_commands_that_nothing_holds_any_more_go_on_at_the_next_start(breaking, bank):
    breaking.start()
    await send_all(breaking, bank)
    await breaking.stop()
    # A skip that broke off before it could tell the application.
    await breaking.letters.finish(breaking.letters.all[0])
    breaking.start()
    await breaking.bus.execute(bank.Look(account_id="a-2"))
    look = await breaking.bus.execute(bank.Look(account_id="a-1"))
    assert look.value in ({"balance": 11}, None)
    await until(lambda: not letters(breaking))
    assert await executed(breaking) == ["before", "after", "last"]


async def test_a_stored_command_that_would_fail_now_begins_no_hold(breaking, bank):
    breaking.broken = False
    breaking.start()
    await breaking.bus.execute(bank.Open(account_id="a-1"))
    first = await breaking.bus.execute(Break(account_id="a-1"), command_id="once")
    await breaking.stop()
    breaking.broken = True
    breaking.start()
    again, after = await asyncio.gather(
        breaking.bus.execute(Break(account_id="a-1"), command_id="once"),
        breaking.bus.execute(bank.Deposit(account_id="a-1", amount=1)),
    )
    assert (again, after.status) == (first, "executed")


async def test_a_message_that_does_not_decode_holds_nobody_and_can_be_retried(breaking, bank):
    breaking.start()
    await breaking.bus.execute(bank.Open(account_id="a-1"))
    for _ in range(2):
        await breaking.transport.publish(Outgoing(topic="bank.commands", key="a-1", body=b"?"))
    result = await breaking.bus.execute(bank.Deposit(account_id="a-1", amount=1))
    assert result.status == "executed"
    assert [state for _, state in letters(breaking)] == ["parked", "parked"]
    again = await breaking.operator.retry(2)
    assert again is not None
    assert (again.number, again.attempts, again.body) == (2, 2, b"?")
    await breaking.operator.skip(1)
    await breaking.operator.skip(2)
    assert breaking.letters.all == []


async def test_with_as_many_letters_as_there_may_be_further_commands_wait(breaking, bank):
    breaking.settings = breaking.settings.model_copy(update={"command_letters_max": 2})
    breaking.start()
    await breaking.bus.execute(bank.Open(account_id="a-1"))
    for command_id in ("b-1", "b-2"):
        await breaking.bus.execute(Break(account_id="a-1"), command_id=command_id)
    waits = asyncio.create_task(breaking.bus.execute(Break(account_id="a-1"), command_id="b-3"))
    gate = breaking.letters.after["count"]
    for _ in range(3):
        gate.shut()
        await gate.reached.wait()
        gate.open()
    assert not waits.done()
    assert letters(breaking) == [("b-1", "holding"), ("b-2", "held")]
    # A letter that fails again needs no room, and one that is done makes some.
    assert await breaking.operator.retry(1) is not None
    breaking.broken = False
    assert await breaking.operator.retry(1) is None
    assert (await waits).status == "executed"
    assert await executed(breaking) == ["b-1", "b-2", "b-3"]


async def test_letters_wait_for_a_store_that_fails(breaking, bank):
    breaking.start()
    for method in ("lines", "park", "count", "find", "first_in_line", "finish"):
        breaking.letters.failures[method] = [RuntimeError("x")] * 5 + [OSError("y")] * 5
    await send_all(breaking, bank)
    breaking.broken = False
    await breaking.transport.publish(
        Outgoing(topic="bank.commands", key="a-1", body=b"", headers={"resume-letter": "1"})
    )
    look = asyncio.create_task(breaking.bus.execute(bank.Look(account_id="a-1")))
    await until(lambda: not letters(breaking))
    look.cancel()
    await asyncio.wait({look})
    assert await executed(breaking) == ["before", "broken", "after", "last"]


CRASHES = [
    (where, method)
    for where in ("before", "after")
    for method in ("find", "first_in_line", "finish")
]


@pytest.mark.parametrize(("where", "method"), CRASHES)
@pytest.mark.parametrize("step", [1, 2])
async def test_after_a_crash_anywhere_while_letters_are_taken_up_all_are_executed_once_in_order(
    breaking, bank, where, method, step
):
    breaking.start()
    await send_all(breaking, bank)
    breaking.broken = False
    gate = getattr(breaking.letters, where)[method]
    gate.shut()
    await breaking.transport.publish(
        Outgoing(topic="bank.commands", key="a-1", body=b"", headers={"resume-letter": "1"})
    )
    await gate.reached.wait()
    if step > 1:
        gate.open()
        gate.shut()
        await gate.reached.wait()
    await breaking.settle()
    await breaking.crash()
    gate.open()
    breaking.start()
    await until(lambda: not letters(breaking))
    await breaking.settle()
    assert await executed(breaking) == ["before", "broken", "after", "last"]
    assert (await breaking.bus.execute(bank.Look(account_id="a-1"))).value == {"balance": 111}
    await breaking.check("a-1")
    await breaking.stop()
    assert await breaking.unfinished() == []


async def test_where_a_handlers_error_came_from_is_kept_and_logged_without_values(breaking, bank):
    async def break_in(command: Break, context: CommandContext) -> None:
        password = "hunter2"
        {}[len(password)]

    breaking.handlers._handlers[Break] = break_in
    breaking.start()
    with capture_logs() as logs:
        result = await breaking.bus.execute(Break(account_id="a-1"))
    assert (result.error, result.sentence) == ("KeyError", "7")
    (letter,) = breaking.letters.all
    lines = letter.trace.splitlines()
    assert (lines[0], lines[-1]) == ("Traceback (most recent call last):", "KeyError: 7")
    assert __file__ in lines[1]
    assert lines[1].endswith("in break_in")
    (parked,) = [each for each in logs if each["event"] == "command parked"]
    assert parked["exception"] == letter.trace
    assert "exc_info" not in parked
    assert "hunter2" not in str(logs)


async def test_a_long_sentence_is_kept_in_part(breaking, monkeypatch):
    monkeypatch.setattr(parking_module, "SENTENCE_CHARACTERS_MAX", 10)
    breaking.start()
    await breaking.transport.publish(Outgoing(topic="bank.commands", key="k", body=b"nonsense"))
    await until(lambda: letters(breaking))
    assert len(breaking.letters.all[0].sentence) == 10


# Topics of single command types.


class Refund(Command, topic="refunds"):
    account_id: AggregateId


@pytest.fixture
def two_topics(breaking, bank):
    """One more command that breaks, with a topic of its own."""

    async def refund(command: Refund, context: CommandContext) -> None:
        account = await context.get(bank.Account, command.account_id)
        if breaking.broken:
            raise RuntimeError("the refund is broken")
        account.deposit(100)

    breaking.handle(refund)
    breaking.operator = CommandLetters(
        "bank", breaking.letters, breaking.transport, breaking.handlers.by_type
    )
    return breaking


async def hold(world, bank):
    await world.bus.execute(bank.Open(account_id="a-1"))
    assert (await world.bus.execute(Refund(account_id="a-1"), command_id="refund")).error
    held = await world.bus.execute(bank.Deposit(account_id="a-1", amount=1), command_id="after")
    assert (held.error, letters(world)) == ("Held", [("refund", "holding"), ("after", "held")])


async def test_a_command_of_one_topic_holds_those_of_the_others_and_is_retried_through_its_own(
    two_topics, bank
):
    two_topics.start()
    await hold(two_topics, bank)
    two_topics.broken = False
    assert await two_topics.operator.retry(1) is None
    await until(lambda: not letters(two_topics))
    assert (await two_topics.bus.execute(bank.Look(account_id="a-1"))).value == {"balance": 101}
    wishes = [each.headers for each in two_topics.transport.published["commands.refunds"]]
    assert {"resume-letter": "1"} in wishes


async def test_a_hold_that_another_process_ended_holds_nobody_any_more(two_topics, bank):
    two_topics.start()
    await hold(two_topics, bank)
    # Whoever has the queue of the other topic came to the end of the letters.
    for letter in two_topics.letters.all:
        assert await two_topics.letters.finish(letter)
    later = await two_topics.bus.execute(bank.Deposit(account_id="a-1", amount=1))
    assert (later.status, letters(two_topics)) == ("executed", [])


async def test_a_handler_sees_the_principal_also_of_a_command_that_was_parked(world, bank):
    seen = []

    class Sign(Command):
        account_id: AggregateId

    async def sign(command: Sign, context: CommandContext) -> None:
        seen.append(context.principal)
        if len(seen) == 1:
            raise ZeroDivisionError

    world.handle(sign)
    world.settings = world.settings.model_copy(update={"error_retries_max": 0})
    world.start()
    ann = Principal("ann", frozenset({"clerk"}))
    failed = await world.bus.execute(Sign(account_id="a"), principal=ann)
    assert failed.status == "failed"
    assert await world.operator.retry(1) is None
    assert seen == [ann, ann]
    await world.bus.execute(Sign(account_id="a"))
    assert seen[-1] is None


async def test_a_command_with_a_principal_that_cannot_be_read_is_parked(world, bank):
    world.start()
    body = world.serializer.encode_command(
        CommandEnvelope(command=bank.Open(account_id="a"), command_id="c", correlation_id="c")
    )
    message = Outgoing("bank.commands", "a", body, "Open", {PRINCIPAL: "ann"})
    await world.transport.publish(message)
    while not await world.letters.count():
        await asyncio.sleep(0)
    letter = await world.letters.find(1)
    assert "the header 'principal' does not decode" in letter.sentence

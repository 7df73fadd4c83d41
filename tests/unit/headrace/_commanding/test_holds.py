"""After a parked command an aggregate's later ones go on, or are parked behind it."""

import asyncio

import pytest

from headrace._commanding import holds as holds_module
from headrace._commanding.handling import CommandContext
from headrace._commanding.holds import Holds
from headrace._domain.message import AggregateId, Command
from headrace.transports.base import Outgoing


class Break(Command):
    account_id: AggregateId


@pytest.fixture
def breaking(world, bank):
    """A world with a handler that fails while `breaking.broken`, and with holds."""

    async def break_down(command: Break, context: CommandContext) -> None:
        account = await context.get(bank.Account, command.account_id)
        if world.broken:
            raise ValueError("broken")
        account.deposit(100)

    world.broken = True
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
    ]


async def send_all(world, bank):
    await world.bus.execute(bank.Open(account_id="a-1"))
    await world.bus.execute(bank.Open(account_id="a-2"))
    return await asyncio.gather(
        *(world.bus.execute(command, command_id=name) for name, command in commands(bank))
    )


async def test_with_hold_later_commands_are_parked_behind_in_order_and_others_go_on(breaking, bank):
    breaking.start()
    before, broken, after, other = await send_all(breaking, bank)
    assert (before.status, other.status) == ("executed", "executed")
    assert (broken.status, broken.error) == ("failed", "ValueError")
    assert (after.status, after.error) == ("failed", "Held")
    assert "command broken of aggregate 'a-1' is parked" in after.sentence
    letters = breaking.transport.published["commands.dead"]
    assert [letter.headers["error"] for letter in letters] == ["ValueError", "Held"]
    assert (await breaking.account("a-1")).version == 2
    # What is stored is still answered.
    again = await breaking.bus.execute(commands(bank)[0][1], command_id="before")
    assert again == before
    await breaking.stop()
    assert await breaking.unfinished() == []


async def test_without_hold_later_commands_go_on(breaking, bank):
    breaking.settings = breaking.settings.model_copy(update={"after_parked": "go on"})
    breaking.start()
    results = await send_all(breaking, bank)
    assert [each.status for each in results] == ["executed", "failed", "executed", "executed"]


async def test_a_hold_ends_with_a_restart_and_what_was_parked_can_be_sent_again(breaking, bank):
    breaking.start()
    await send_all(breaking, bank)
    await breaking.stop()
    breaking.broken = False
    breaking.start()
    for name, command in commands(bank)[1:3]:
        assert (await breaking.bus.execute(command, command_id=name)).status == "executed"
    assert (await breaking.account("a-1")).balance == 103
    await breaking.check("a-1")


async def test_a_hold_ends_when_the_queue_was_someone_elses(breaking, bank):
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
    # Without a turn of the event loop in between: this processor never sees the message.
    breaking.transport._append(Outgoing(topic="bank.commands", key="a-1", body=b"elsewhere"))
    member.seek(queue, breaking.transport.queue(queue).end)
    assert (await breaking.bus.execute(deposit)).status == "executed"


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


async def test_a_message_that_does_not_decode_holds_nobody(breaking, bank):
    breaking.start()
    await breaking.bus.execute(bank.Open(account_id="a-1"))
    await breaking.transport.publish(Outgoing(topic="bank.commands", key="a-1", body=b"?"))
    result = await breaking.bus.execute(bank.Deposit(account_id="a-1", amount=1))
    assert result.status == "executed"


def test_holds_are_bounded_and_the_first_reason_counts(monkeypatch):
    monkeypatch.setattr(holds_module, "HOLDS_MAX", 2)
    holds = Holds(enabled=True)
    for aggregate_id, command_id in (("a", "1"), ("b", "2"), ("b", "3"), ("c", "4")):
        holds.hold(aggregate_id, command_id)
    assert [holds.find(name) for name in "abc"] == [None, "2", "4"]
    holds.release_all()
    assert holds.find("c") is None
    disabled = Holds(enabled=False)
    disabled.hold("a", "1")
    assert disabled.find("a") is None

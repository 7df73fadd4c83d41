"""What a submission remembers; and of many, what the store held of them, asked in one question."""

import asyncio

import pytest

from headrace._runtime.ids import new_id
from headrace.commands.aggregate_worker import SOUGHT_TOGETHER_MAX
from headrace.commands.decision import DecisionFailed, Repeated
from headrace.commands.submission import CommandDelivery, Submission
from headrace.serialization import CommandEnvelope


def test_a_new_decision_takes_the_place_of_the_old_one_and_of_what_became_of_it(bank):
    envelope = CommandEnvelope(
        command=bank.Look(account_id="a-1"), command_id="c-1", correlation_id="c-1"
    )
    delivery = CommandDelivery(message=None, subscription=None)
    submission = Submission(envelope, delivery)
    assert (submission.command_id, submission.deliveries) == ("c-1", [delivery])
    submission.decided(DecisionFailed(error="x", sentence="y"))
    submission.durable = True
    submission.recalling = True
    submission.decided(Repeated())
    assert (submission.decision, submission.durable, submission.recalling) == (
        Repeated(),
        False,
        False,
    )


async def deposit_all(world, bank, ids):
    """Sends a deposit under each id at once, and returns their results."""
    deposit = bank.Deposit(account_id="a-1", amount=1)
    return await asyncio.gather(*(world.bus.execute(deposit, command_id=each) for each in ids))


async def test_the_outcomes_of_all_that_wait_are_one_question(world, bank):
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    ids = [f"c-{number}" for number in range(SOUGHT_TOGETHER_MAX * 3)]

    first = await deposit_all(world, bank, ids)
    await world.stop()
    world.start()
    finds, reads = world.store.finds, world.store.reads
    assert await deposit_all(world, bank, ids) == first
    assert world.store.finds - finds <= 4  # one for the first that came, then a hundred at a time
    assert world.store.reads == reads
    await world.check("a-1")


@pytest.mark.parametrize("count", [40, 400])
async def test_duplicates_whose_ids_look_new_cost_one_run_and_one_question_more(world, bank, count):
    """The callers' clocks are ahead: the store refuses the first, and is asked for all."""
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    ids = [new_id() for _ in range(count)]

    first = await deposit_all(world, bank, ids)
    await world.stop()
    decided = []
    world.start()
    original = bank.Account.deposit

    def counted(self, amount):
        decided.append(amount)
        return original(self, amount)

    finds, appends = world.store.finds, len(world.store.appends)
    bank.Account.deposit = counted
    try:
        assert await deposit_all(world, bank, ids) == first
    finally:
        bank.Account.deposit = original
    assert len(decided) <= count
    assert len(world.store.appends) - appends == 1
    assert world.store.finds - finds <= count // SOUGHT_TOGETHER_MAX + 2
    await world.check("a-1")


async def test_a_command_that_is_sent_again_by_its_bus_does_not_run_again(world, bank):
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"))
    command_id = new_id()
    await world.bus.execute(bank.Deposit(account_id="a-1", amount=5), command_id=command_id)
    appends = len(world.store.appends)
    await world.bus.execute(bank.Deposit(account_id="a-1", amount=5), command_id=command_id)
    assert len(world.store.appends) == appends
    assert (await world.account("a-1")).balance == 5

"""What a submission remembers, what the store held of many, and how they wait for keys of personal fields."""

import asyncio

import pytest

from headrace._runtime.ids import new_id
from headrace.commands.aggregate_worker import SOUGHT_TOGETHER_MAX
from headrace.commands.decision import DecisionFailed, Repeated
from headrace.commands.submission import CommandDelivery, Submission
from headrace.errors import SubjectKeysAway, SubjectKeysError
from headrace.serialization import CommandEnvelope
from headrace.subjects.cipher import FieldCipher
from headrace.subjects.keys import MemoryKeys


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


class AwayForAWhile:
    """Fails with an outage of the keys so many times, then does what it stands for."""

    def __init__(self, work, times):
        self._work = work
        self.left = times

    def __call__(self, *arguments):
        if self.left:
            self.left -= 1
            raise SubjectKeysAway("the keys are away")
        return self._work(*arguments)


async def test_a_command_waits_while_the_keys_are_away_and_is_not_parked(world, bank, monkeypatch):
    world.start()
    away = AwayForAWhile(world.serializer.encode_stream, 20)
    monkeypatch.setattr(world.serializer, "encode_stream", away)
    assert (await world.bus.execute(bank.Open(account_id="a-1"))).status == "executed"
    assert away.left == 0
    assert world.letters.all == []


async def test_an_aggregate_is_loaded_once_its_keys_are_back(world, bank):
    await world.store_behind(world.stream("a-1", 1, bank.Opened(owner="Ann"), command_id="o"))
    world.start()
    for method in ("read_stream", "find_stored"):
        world.store.failures[method] = [SubjectKeysAway("the keys are away")] * 20
    deposit = bank.Deposit(account_id="a-1", amount=1)
    assert (await world.bus.execute(deposit)).value == {"balance": 1}
    assert world.letters.all == []


async def test_a_duplicate_is_answered_once_the_keys_of_its_events_are_back(
    world, bank, monkeypatch
):
    await world.store_behind(world.stream("a-1", 1, bank.Opened(owner="Ann"), command_id="o"))
    processor = world.start()
    away = AwayForAWhile(world.serializer.encode_stream, 20)
    monkeypatch.setattr(world.serializer, "encode_stream", away)
    assert (await world.bus.execute(bank.Open(account_id="a-1"), command_id="o")).version == 1
    assert away.left == 0
    assert not processor.done()


async def test_a_command_whose_keys_are_away_is_decoded_later_and_not_parked(
    world, bank, monkeypatch
):
    class Cipher(FieldCipher):
        left = 20
        found = 0

        async def find_ahead(self, bodies):
            assert len(list(bodies)) == 1
            if self.left:
                self.left -= 1
                raise SubjectKeysAway("the keys are away")
            self.found += 1

    cipher = Cipher(MemoryKeys())
    monkeypatch.setattr(world.serializer, "_cipher", cipher)
    world.start()
    assert (await world.bus.execute(bank.Open(account_id="a-1"))).status == "executed"
    assert cipher.left == 0
    # Once more after the letters were read at the first message of a queue, which may take long.
    assert cipher.found == 2
    assert world.letters.all == []


@pytest.mark.parametrize("looks_new", [False, True])
async def test_a_stored_outcome_whose_key_cannot_be_read_any_more_fails_its_duplicate_alone(
    world, bank, monkeypatch, looks_new
):
    """Also where it is found after its run: the clock of its caller is ahead."""
    command_id = new_id() if looks_new else "c-1"
    world.start()
    await world.bus.execute(bank.Open(account_id="a-1"), command_id=command_id)
    await world.stop()
    encode = world.serializer.encode_stream

    def encoded(stream):
        if stream.command_id == command_id and stream in world.store.appends[0]:
            raise SubjectKeysError("the key of 'c-1' cannot be unwrapped")
        return encode(stream)

    monkeypatch.setattr(world.serializer, "encode_stream", encoded)
    work = world.start()
    duplicate, other = await asyncio.gather(
        world.bus.execute(bank.Open(account_id="a-1"), command_id=command_id),
        world.bus.execute(bank.Open(account_id="a-2")),
    )
    assert (duplicate.status, duplicate.error) == ("failed", "SubjectKeysError")
    assert other.status == "executed"
    assert not work.done()

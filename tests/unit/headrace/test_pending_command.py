"""A pending command and the callers who wait for it."""

import asyncio

import pytest

from headrace.domain.message import AggregateId, Command
from headrace.pending_command import PendingCommand
from headrace.results import CommandResult
from headrace.serialization import CommandEnvelope

RESULT = CommandResult(status="executed", aggregate_id="a", command_id="c")


class Deposit(Command):
    account_id: AggregateId


@pytest.fixture
def pending() -> PendingCommand:
    """Of one command."""
    command = Deposit(account_id="a")
    return PendingCommand(CommandEnvelope(command=command, command_id="c", correlation_id="c"))


async def test_everybody_who_asks_gets_the_answer_also_who_comes_late(pending):
    early = pending.join()
    pending.answer(RESULT)
    assert [await early, await pending.join()] == [RESULT, RESULT]


async def test_a_failure_is_everybodys_and_nobody_has_to_hear_it(pending):
    early, gone = pending.join(), pending.join()
    pending.answer(OSError("away"))
    pending.leave(gone)
    for waiter in (early, pending.join()):
        with pytest.raises(OSError, match="away"):
            await waiter


async def test_a_caller_that_gave_up_hears_nothing_and_takes_the_answer_from_no_other(pending):
    patient, hasty = pending.join(), pending.join()
    hasty.cancel()
    pending.answer(RESULT)
    assert await patient == RESULT
    with pytest.raises(asyncio.CancelledError):
        await hasty


async def test_the_last_who_leaves_is_told_so(pending):
    first, second = pending.join(), pending.join()
    assert [pending.leave(first), pending.leave(second)] == [False, True]

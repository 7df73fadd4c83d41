"""A awaited command and the callers who wait for it."""

import asyncio

import pytest

from headrace.awaited_command import AwaitedCommand
from headrace.domain.message import AggregateId, Command
from headrace.results import CommandResult
from headrace.serialization import CommandEnvelope

RESULT = CommandResult(status="executed", aggregate_id="a", command_id="c")


class Deposit(Command):
    account_id: AggregateId


@pytest.fixture
def awaited() -> AwaitedCommand:
    """Of one command."""
    command = Deposit(account_id="a")
    return AwaitedCommand(CommandEnvelope(command=command, command_id="c", correlation_id="c"))


async def test_each_caller_gets_the_answer_even_one_that_comes_late(awaited):
    early = awaited.join()
    awaited.answer(RESULT)
    assert [await early, await awaited.join()] == [RESULT, RESULT]


async def test_a_failure_is_raised_for_each_caller_that_still_waits(awaited):
    early, gone = awaited.join(), awaited.join()
    awaited.answer(OSError("away"))
    awaited.leave(gone)
    for waiter in (early, awaited.join()):
        with pytest.raises(OSError, match="away"):
            await waiter


async def test_a_caller_that_gave_up_hears_nothing_and_takes_the_answer_from_no_other(awaited):
    patient, hasty = awaited.join(), awaited.join()
    hasty.cancel()
    awaited.answer(RESULT)
    assert await patient == RESULT
    with pytest.raises(asyncio.CancelledError):
        await hasty


async def test_the_last_caller_that_leaves_learns_that_it_is_the_last(awaited):
    first, second = awaited.join(), awaited.join()
    assert [awaited.leave(first), awaited.leave(second)] == [False, True]

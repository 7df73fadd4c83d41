"""A question and those who share it."""

import asyncio

import pytest

from headrace.domain.message import AggregateId, Command
from headrace.pending_command import Question
from headrace.results import CommandResult
from headrace.serialization import CommandEnvelope

RESULT = CommandResult(status="executed", aggregate_id="a", command_id="c")


class Deposit(Command):
    account_id: AggregateId


@pytest.fixture
def question() -> Question:
    """Of one command."""
    command = Deposit(account_id="a")
    return Question(CommandEnvelope(command=command, command_id="c", correlation_id="c"))


async def test_everybody_who_asks_gets_the_answer_also_who_comes_late(question):
    early = question.ask()
    question.answer(RESULT)
    assert [await early, await question.ask()] == [RESULT, RESULT]


async def test_a_failure_is_everybodys_and_nobody_has_to_hear_it(question):
    early, gone = question.ask(), question.ask()
    question.answer(OSError("away"))
    question.leave(gone)
    for asker in (early, question.ask()):
        with pytest.raises(OSError, match="away"):
            await asker


async def test_a_caller_that_gave_up_hears_nothing_and_takes_the_answer_from_no_other(question):
    patient, hasty = question.ask(), question.ask()
    hasty.cancel()
    question.answer(RESULT)
    assert await patient == RESULT
    with pytest.raises(asyncio.CancelledError):
        await hasty


async def test_the_last_who_leaves_is_told_so(question):
    first, second = question.ask(), question.ask()
    assert [question.leave(first), question.leave(second)] == [False, True]

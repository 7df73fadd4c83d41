import asyncio

import pytest

from headrace_mq.archive.pending_queries import RUNNING_MAX, PendingQueries, QueryPending
from headrace_mq.errors import ArchiveUnavailable


async def test_a_question_is_answered_when_it_is_asked_again() -> None:
    questions, asked = PendingQueries(4), []

    async def work() -> int:
        asked.append(1)
        return 42

    for _ in range(2):
        with pytest.raises(QueryPending) as coming:
            questions.ask("key", work)
    await coming.value.answer
    assert questions.ask("key", work) == 42
    assert asked == [1]


async def test_a_failed_query_is_started_again() -> None:
    questions, answers = PendingQueries(4), [ArchiveUnavailable("away"), None]

    async def work() -> str:
        error = answers.pop(0)
        if error is not None:
            raise error
        return "here"

    with pytest.raises(QueryPending) as coming:
        questions.ask("key", work)
    with pytest.raises(ArchiveUnavailable):
        await coming.value.answer
    with pytest.raises(QueryPending) as coming:
        questions.ask("key", work)
    assert await coming.value.answer == "here"


async def test_the_oldest_answers_are_forgotten() -> None:
    questions = PendingQueries(2)

    async def work() -> int:
        return 1

    for key in "abc":
        with pytest.raises(QueryPending) as coming:
            questions.ask(key, work)
        await coming.value.answer
    assert questions.ask("c", work) == 1
    with pytest.raises(QueryPending):
        questions.ask("a", work)
    await questions.aclose()


async def test_only_so_many_questions_run_at_a_time() -> None:
    questions, never = PendingQueries(2), asyncio.Event()
    for key in range(RUNNING_MAX):
        with pytest.raises(QueryPending):
            questions.ask(key, never.wait)
    with pytest.raises(ArchiveUnavailable, match="try again soon"):
        questions.ask("one more", never.wait)
    await questions.aclose()

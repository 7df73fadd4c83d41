"""Answers for transactions that stayed undecided."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace_mq.client.transactions.checks import Checking, Decision, Undecided
from headrace_mq.errors import Closed, DecidedOtherwise, RequestTimeout
from headrace_mq.protocol.transactions import Check, ChecksAnswer, TakeChecks
from headrace_mq.settings import TransactionSettings


class FakeLink:
    """Answers requests for checks with what it was given, and then says that it is closed."""

    client_id = "me"

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[TakeChecks] = []

    async def ask(self, _kind: Any, _code: int, body: TakeChecks, *, timeout_ms: int) -> Any:
        self.asked.append(body)
        assert timeout_ms > body.wait_ms
        answer = self.answers.pop(0) if self.answers else Closed("closed")
        if isinstance(answer, Exception):
            raise answer
        return ChecksAnswer(answer)


class FakeEndings:
    """Takes decisions."""

    def __init__(self) -> None:
        self.decided: list[tuple[int, int, bool]] = []
        self.failure: Exception | None = None

    def end(self, number: int, index: int, *, commit: bool) -> "asyncio.Future[None]":
        self.decided.append((number, index, commit))
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.failure is None:
            ended.set_result(None)
        else:
            ended.set_exception(self.failure)
        return ended


def check(index: int, name: str) -> Check:
    return Check(3, index, name, 1, 1_000)


async def run(
    link: Any, checker: Any, *, endings: Any = None, running: Any = (), **changed: int
) -> Any:
    endings = endings or FakeEndings()
    settings = TransactionSettings(**changed)
    checking = Checking(
        link, endings, group="g", checker=checker, running=running, settings=settings
    )
    await checking.run()
    return endings.decided


async def test_the_checkers_answers_are_decisions() -> None:
    asked: list[Undecided] = []
    answers = {"a": Decision.COMMIT, "b": Decision.ROLLBACK, "c": Decision.UNKNOWN}

    async def checker(undecided: Undecided) -> Decision:
        asked.append(undecided)
        return answers[undecided.id]

    link = FakeLink([check(0, "a"), check(1, "b"), check(2, "c")])
    assert await run(link, checker) == [(3, 0, True), (3, 1, False)]
    assert asked[0] == Undecided("a", 1, 1_000)
    assert link.asked[0] == TakeChecks("g", "me", 15_000)


async def test_a_transaction_that_this_process_works_on_is_not_asked_for() -> None:
    async def checker(_: Undecided) -> Decision:
        return Decision.ROLLBACK

    link = FakeLink([check(0, "mine"), check(1, "other")])
    assert await run(link, checker, running={"mine"}) == [(3, 1, False)]


async def test_a_checker_that_fails_or_hangs_leaves_the_question_open_and_others_go_on() -> None:
    never = asyncio.Event()

    async def checker(undecided: Undecided) -> Decision:
        if undecided.id == "fails":
            raise KeyError("no database")
        if undecided.id == "hangs":
            await never.wait()
        return Decision.COMMIT

    link = FakeLink([check(0, "fails"), check(1, "hangs"), check(2, "fine")], [check(4, "next")])
    with capture_logs() as logs:
        decided = await run(link, checker, checker_timeout_ms=20)
    assert decided == [(3, 2, True), (3, 4, True)]
    assert sorted(entry["transaction"] for entry in logs) == ["fails", "hangs"]


async def test_at_most_so_many_checkers_run_at_a_time() -> None:
    running, most = 0, 0

    async def checker(_: Undecided) -> Decision:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(3):
            await asyncio.sleep(0)
        running -= 1
        return Decision.COMMIT

    link = FakeLink([check(n, str(n)) for n in range(9)])
    assert len(await run(link, checker, checkers_max=2)) == 9
    assert most == 2


async def test_a_decision_that_comes_too_late_and_a_broker_that_is_away_end_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def checker(_: Undecided) -> Decision:
        return Decision.COMMIT

    monkeypatch.setattr("headrace_mq.client.transactions.checks.PAUSE_MS", 0)
    endings = FakeEndings()
    endings.failure = DecidedOtherwise("rolled back")
    link = FakeLink([check(0, "a")], RequestTimeout("away"), [check(1, "b")])
    assert await run(link, checker, endings=endings) == [(3, 0, True), (3, 1, True)]

"""Decisions that are sent together."""

import asyncio
from typing import Any

import pytest

from headrace_mq.broker.handlers.journals import BUNDLES_PER_REQUEST_MAX
from headrace_mq.client.transactions import decision_batcher as subject
from headrace_mq.client.transactions.decision_batcher import DecisionBatcher
from headrace_mq.errors import DecidedOtherwise, RequestTimeout
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.transactions import (
    BundleEnds,
    EndedOtherwise,
    EndTransactions,
    Outcome,
    TransactionsEnded,
)


class FakeLink:
    """Takes requests, and answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[EndTransactions] = []
        self.answers: list[asyncio.Future[TransactionsEnded]] = []

    async def ask(self, kind: Any, code: int, body: EndTransactions, *, timeout_ms: int) -> Any:
        assert (kind, code, timeout_ms) == (TransactionsEnded, RequestCode.END_TRANSACTIONS, 50)
        self.asked.append(body)
        self.answers.append(asyncio.get_running_loop().create_future())
        return await self.answers[-1]

    def answer(self, *otherwise: EndedOtherwise) -> None:
        self.answers.pop(0).set_result(TransactionsEnded(list(otherwise)))


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def made() -> tuple[FakeLink, DecisionBatcher]:
    link: Any = FakeLink()
    return link, DecisionBatcher(link, "g", 50)


async def test_decisions_of_one_tick_go_in_one_request() -> None:
    link, endings = made()
    ended = [endings.end(4, n, commit=n != 1) for n in range(3)] + [endings.end(5, 0, commit=True)]
    await turn()
    assert link.asked == [
        EndTransactions("g", [BundleEnds(4, [0, 2], [1]), BundleEnds(5, [0], [])])
    ]
    link.answer()
    await asyncio.gather(*ended)
    await endings.drained()


async def test_many_decisions_go_in_parts_that_a_broker_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert subject.BUNDLES_PER_REQUEST <= BUNDLES_PER_REQUEST_MAX
    monkeypatch.setattr(subject, "BUNDLES_PER_REQUEST", 2)
    monkeypatch.setattr(subject, "PLACES_PER_REQUEST", 3)
    link, endings = made()
    ended = [endings.end(number, 0, commit=True) for number in range(3)]
    ended += [endings.end(3, place, commit=False) for place in range(4)]
    parts = [[0, 1], [2], [3]]
    for _ in parts:
        await turn()
        link.answer(EndedOtherwise(1, 0, Outcome.ROLLED_BACK))
    outcomes = await asyncio.gather(*ended, return_exceptions=True)
    assert [[end.number for end in asked.ends] for asked in link.asked] == parts
    assert link.asked[-1].ends == [BundleEnds(3, [], [0, 1, 2, 3])]
    assert [type(outcome) for outcome in outcomes[:3]] == [type(None), DecidedOtherwise, type(None)]
    await endings.drained()


async def test_while_requests_are_on_their_way_others_gather() -> None:
    link, endings = made()
    for index in range(4):
        endings.end(1, index, commit=True)
        await turn()
    assert len(link.asked) == 2
    link.answer()
    await turn()
    assert link.asked[2].ends == [BundleEnds(1, [2, 3], [])]


@pytest.mark.parametrize(
    ("outcome", "why"),
    [
        (Outcome.ROLLED_BACK, "rolled back"),
        (Outcome.KEPT_ASIDE, "given up"),
        (Outcome.FORGOTTEN, "forgotten"),
        (99, "ended as 99"),
    ],
)
async def test_a_late_decision_fails_with_the_earlier_one(outcome: int, why: str) -> None:
    link, endings = made()
    late, fine = endings.end(1, 0, commit=True), endings.end(1, 1, commit=True)
    await turn()
    link.answer(EndedOtherwise(1, 0, outcome))
    with pytest.raises(DecidedOtherwise, match=why):
        await late
    await fine


async def test_a_request_that_is_not_answered_is_everybodys_own_error() -> None:
    link, endings = made()
    ended = [endings.end(1, n, commit=True) for n in range(2)]
    await turn()
    link.answers.pop(0).set_exception(RequestTimeout("late"))
    errors = await asyncio.gather(*ended, return_exceptions=True)
    assert [type(error) for error in errors] == [RequestTimeout, RequestTimeout]
    assert errors[0] is not errors[1]

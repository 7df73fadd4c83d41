"""Questions that may be refused: the answer is left out, and the refusal named once."""

from typing import Any

import pytest

from headrace.figures.questions import Questions
from headrace_mq.errors import ConnectionLost, GroupNotFound, NotPermitted, TopicNotFound
from headrace_mq.protocol.administration import (
    GroupDescription,
    GroupSummary,
    LagAnswer,
    QueueLag,
)
from headrace_mq.protocol.bodies import TopicDescription


class Admin:
    """Answers with what the test says, or raises it."""

    def __init__(self, **answers: Any) -> None:
        self.answers, self.asked = answers, list[str]()

    async def _answer(self, name: str) -> Any:
        self.asked.append(name)
        answer = self.answers[name]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def group(self, group: str) -> GroupDescription:
        found = await self._answer(group)
        return GroupDescription(group, 1, [], ["t"]) if found is not None else found

    async def lag(self, group: str, _topics: list[str]) -> LagAnswer:
        found: LagAnswer = self.answers[group]
        return found


def lag(now_ms: int, *stored_at_ms: int) -> LagAnswer:
    queues = [
        QueueLag("t", number, 0, 9, 0, int(at > 0), at) for number, at in enumerate(stored_at_ms)
    ]
    return LagAnswer(now_ms, queues)


def behind(name: str, count: int = 1, **changed: Any) -> GroupSummary:
    return GroupSummary(**{"group": name, "members": 1, "queues": 2, "lag": count} | changed)


async def test_a_refusal_is_noted_once_and_other_errors_are_raised() -> None:
    questions = Questions(Admin(no=NotPermitted("ann may not"), gone=ConnectionLost("gone")))  # type: ignore[arg-type]  # what is used of it
    assert await questions.may(questions._admin.group("no"), None) is None
    assert await questions.may(questions._admin.group("no"), None) is None
    assert questions.denied == ("ann may not",)
    with pytest.raises(ConnectionLost):
        await questions.may(questions._admin.group("gone"), None)


class Topics:
    """Topics of which one is deleted between two requests, some times."""

    def __init__(self, deleted: int) -> None:
        self.deleted = deleted

    async def topics(self) -> list[TopicDescription]:
        names = ["a", "b", "gone"] if self.deleted else ["a", "b"]
        return [TopicDescription(name, 1, "forever") for name in names]

    async def queues(self, topics: list[TopicDescription]) -> list[str]:
        names = [one.topic for one in topics]
        if "gone" in names:
            self.deleted -= 1
            raise TopicNotFound("no topic 'gone'")
        return names


async def test_a_topic_that_goes_between_two_requests_is_left_out() -> None:
    topics, queues = await Questions(Topics(2)).queues(lambda one: one.topic != "a")  # type: ignore[arg-type]  # what is used of it
    assert [one.topic for one in topics or ()] == ["a", "b"]
    assert queues == ["b"]
    with pytest.raises(TopicNotFound):
        await Questions(Topics(9)).queues(lambda _: True)  # type: ignore[arg-type]  # what is used of it


async def test_the_oldest_message_of_the_groups_with_most_is_asked_for() -> None:
    admin = Admin(
        a=lag(1_000, 0, 400, 700),
        b=lag(1_000, 0, 0),
        c=GroupNotFound("gone"),
        d=lag(100, 200),
        e=lag(9, 1),
    )
    groups = [
        behind("e", 1), behind("a", 5), behind("b", 4), behind("c", 3), behind("d", 2),
        behind("own", 9, commits=False), behind("even", 0),
    ]  # fmt: skip
    found = await Questions(admin).oldest(groups, 4)  # type: ignore[arg-type]  # what is used of it
    assert found == {"a": 600, "d": 0}
    assert admin.asked == ["a", "b", "c", "d"]


async def test_groups_that_may_not_be_read_are_left_out() -> None:
    questions = Questions(Admin(a=NotPermitted("no")))  # type: ignore[arg-type]  # what is used of it
    questions._admin.lag = _refuse  # type: ignore[method-assign]  # as the broker does
    assert await questions.oldest([behind("a")], 9) == {}
    assert questions.denied == ("no",)


async def _refuse(_group: str, _topics: Any) -> LagAnswer:
    raise NotPermitted("no")

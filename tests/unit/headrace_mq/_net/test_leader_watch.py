"""A silent connection is left for a broker that serves in a later epoch, and for no other one."""

import asyncio
from typing import Any

import pytest

from headrace_mq._net import leader_watch
from headrace_mq._net.leader_watch import until_superseded
from headrace_mq.errors import NotLeader
from headrace_mq.protocol.bodies import HelloAnswer

OTHERS = [("b", 1), ("c", 2)]


class Silent:
    """A connection that answers so many heartbeats, and then no more."""

    def __init__(self, epoch: int, answers: int = 0) -> None:
        self.hello = HelloAnswer("x", 1, epoch, 1_000)
        self.progress = (0, 0)
        self.heartbeats = 0
        self.ended = ""
        self._answers = answers

    def submit(self, _code: int, _body: bytes, *, receive: Any) -> None:
        self.heartbeats += 1
        receive(None)
        if self.heartbeats <= self._answers:
            self.progress = (self.heartbeats, 0)

    def end(self, reason: str) -> None:
        self.ended = reason


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_watch, "LOOK_MS", 1)


async def watch(connection: Silent, serving: dict[str, Silent], looks: int = 3) -> list[str]:
    """Returns which places were asked, until it returned or all were asked so many times."""
    asked: list[str] = []
    enough = asyncio.Event()

    async def connect(place: tuple[str, int]) -> Any:
        asked.append(place[0])
        if len(asked) >= looks * len(OTHERS):
            enough.set()
        if place[0] not in serving:
            raise NotLeader("a replica")
        return serving[place[0]]

    watching = asyncio.ensure_future(until_superseded(connection, OTHERS, connect))  # type: ignore[arg-type]  # only what is used of it
    waiting = asyncio.ensure_future(enough.wait())
    async with asyncio.timeout(20):
        await asyncio.wait([watching, waiting], return_when=asyncio.FIRST_COMPLETED)
    if watching.done():
        asked.append("superseded")
    watching.cancel()
    waiting.cancel()
    return asked


async def test_a_later_epoch_supersedes() -> None:
    connection, found = Silent(3), Silent(4)
    assert await watch(connection, {"c": found}) == ["b", "c", "superseded"]
    assert connection.heartbeats == 1
    assert found.ended


async def test_the_same_epoch_and_replicas_do_not() -> None:
    found = Silent(3)
    assert await watch(Silent(3), {"b": found}) == ["b", "c"] * 3
    assert found.ended


async def test_a_broker_that_answers_is_left_alone() -> None:
    connection = Silent(3, answers=5)
    assert await watch(connection, {"b": Silent(4)}) == ["b", "superseded"]
    assert connection.heartbeats == 6

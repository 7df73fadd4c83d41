"""A silent connection is left for a broker that serves in a later epoch, and for no other one."""

import asyncio
from typing import Any

import pytest

from headrace_mq._net import leader_watch
from headrace_mq._net.leader_watch import (
    CALM_LOOK_MS,
    EAGER_MS_MAX,
    HELLO_MS_MAX,
    LOOK_MS,
    PATIENT_LOOK_MS,
    SILENT_MS,
    UNANSWERED_MS,
    NextStep,
    Silence,
    Successor,
    until_superseded,
)
from headrace_mq.cluster.election import LEASE_MS
from headrace_mq.errors import ConnectionLost, LoginFailed, NotLeader
from headrace_mq.protocol.bodies import HelloAnswer

B, C = ("b", 1), ("c", 2)


def test_a_connection_that_gets_answers_is_left_alone() -> None:
    silence = Silence(0, 0)
    for turn in range(1, 20):
        assert silence.look(turn, turn * CALM_LOOK_MS) is NextStep.WAIT


def test_a_silent_connection_is_asked_once_and_then_the_others_are() -> None:
    silence = Silence(0, 0)
    assert silence.look(0, SILENT_MS - 1) is NextStep.WAIT
    assert silence.look(0, SILENT_MS) is NextStep.ASK_IT
    assert silence.look(0, SILENT_MS + UNANSWERED_MS - 1) is NextStep.WAIT
    assert silence.look(0, SILENT_MS + UNANSWERED_MS) is NextStep.ASK_OTHERS
    assert silence.look(0, SILENT_MS + UNANSWERED_MS + 1) is NextStep.ASK_OTHERS


def test_an_answer_ends_the_suspicion() -> None:
    silence = Silence(0, 0)
    silence.look(0, SILENT_MS)
    silence.look(0, SILENT_MS + UNANSWERED_MS)
    assert silence.look(1, 5_000) is NextStep.WAIT
    assert silence.look(1, 5_000 + SILENT_MS - 1) is NextStep.WAIT
    assert silence.look(1, 5_000 + SILENT_MS) is NextStep.ASK_IT


def test_a_process_that_stood_still_asks_the_connection_before_the_others() -> None:
    silence = Silence(0, 0)
    assert silence.look(0, 60_000) is NextStep.ASK_IT
    assert silence.look(1, 60_000 + CALM_LOOK_MS) is NextStep.WAIT


def test_clients_ask_before_a_replica_leads_and_less_often_when_none_does() -> None:
    longest = 1.25 * (CALM_LOOK_MS + SILENT_MS + CALM_LOOK_MS + UNANSWERED_MS)
    assert longest < LEASE_MS + UNANSWERED_MS
    silence = Silence(0, 0)
    assert silence.pause_ms(NextStep.WAIT, 0) == CALM_LOOK_MS
    assert silence.pause_ms(NextStep.ASK_OTHERS, LEASE_MS) == LOOK_MS
    assert silence.pause_ms(NextStep.ASK_OTHERS, EAGER_MS_MAX) == PATIENT_LOOK_MS


class End:
    """One connection, as far as it is used here."""

    def __init__(self, place: object = None, epoch: int = 0, heartbeats_answered: int = 0) -> None:
        self.place = place
        self.hello = HelloAnswer("x", 1, epoch, 1_000) if epoch else None
        self.progress = (0, 0)
        self.heartbeats = 0
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._answered = heartbeats_answered

    def submit(self, _code: int, _body: bytes, *, receive: Any) -> None:
        self.heartbeats += 1
        receive(None)
        if self.heartbeats <= self._answered:
            self.progress = (self.heartbeats, 0)

    def end(self, reason: str) -> None:
        if not self.lost.done():
            self.lost.set_result(reason)


class Places:
    """What the others say, one look after the other: an epoch, or an error, which is the last one's from then on."""

    def __init__(self, **says: list[int | Exception | None]) -> None:
        self._says = says
        self.opened: list[End] = []
        self.asked: list[str] = []
        # At this many questions the test has seen enough.
        self.enough = asyncio.Event()
        self.questions_max = 0

    async def open_to(self, place: tuple[str, int]) -> Any:
        said = self._says[place[0]][0]
        if isinstance(said, OSError):
            self._note(place[0])
            raise said
        self.opened.append(End(place))
        return self.opened[-1]

    async def greet(self, end: Any) -> None:
        name = end.place[0]
        says = self._says[name]
        self._note(name)
        said = says.pop(0) if len(says) > 1 else says[0]
        if said is None:
            await asyncio.get_running_loop().create_future()
        if isinstance(said, Exception):
            raise said
        end.hello = HelloAnswer(name, 1, said, 1_000)

    def _note(self, name: str) -> None:
        self.asked.append(name)
        if self.questions_max and len(self.asked) >= self.questions_max:
            self.enough.set()

    async def watch(self, connection: End, questions_max: int = 0) -> Successor | None:
        """Returns what was found, or None after so many questions."""
        self.questions_max = questions_max
        watching = asyncio.ensure_future(
            until_superseded(connection, lambda: [B, C], self.open_to, self.greet)  # type: ignore[arg-type]  # only what is used of it
        )
        waiting = asyncio.ensure_future(self.enough.wait())
        async with asyncio.timeout(120):
            await asyncio.wait([watching, waiting], return_when=asyncio.FIRST_COMPLETED)
        found = watching.result() if watching.done() else None
        for task in (watching, waiting):
            task.cancel()
        await asyncio.wait([watching, waiting])
        return found

    def left_open(self) -> list[str]:
        return [end.place[0] for end in self.opened if not end.lost.done()]  # type: ignore[index]  # it has one


REPLICA = NotLeader("a replica")


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SILENT_MS", "UNANSWERED_MS", "CALM_LOOK_MS", "LOOK_MS", "PATIENT_LOOK_MS"):
        monkeypatch.setattr(leader_watch, name, 1)


@pytest.mark.usefixtures("_quick")
async def test_a_later_epoch_supersedes_and_its_connection_is_given() -> None:
    places, connection = Places(b=[REPLICA], c=[REPLICA, REPLICA, 4]), End(epoch=3)
    found = await places.watch(connection)
    assert found is not None
    assert found.place == C
    assert found.connection.hello is not None
    assert found.connection.hello.epoch == 4
    assert connection.heartbeats == 1
    # It alone stays open; each place was connected to once, and asked at each look.
    assert places.left_open() == ["c"]
    assert len(places.opened) == 2
    assert sorted(places.asked) == ["b"] * 3 + ["c"] * 3


@pytest.mark.usefixtures("_quick")
async def test_the_latest_of_two_epochs_supersedes() -> None:
    places = Places(b=[5], c=[4])
    found = await places.watch(End(epoch=3))
    assert found is not None
    assert found.place == B
    assert places.left_open() == ["b"]


@pytest.mark.usefixtures("_quick")
async def test_the_same_epoch_an_earlier_one_and_replicas_do_not_supersede() -> None:
    places = Places(b=[3, 2], c=[REPLICA])
    assert await places.watch(End(epoch=3), questions_max=8) is None
    assert places.left_open() == []


@pytest.mark.usefixtures("_quick")
async def test_a_broker_that_answers_heartbeats_is_left_alone_until_it_is_silent() -> None:
    connection = End(epoch=3, heartbeats_answered=5)
    assert await Places(b=[4], c=[REPLICA]).watch(connection) is not None
    assert connection.heartbeats == 6


@pytest.mark.usefixtures("_quick")
async def test_a_place_that_refuses_connections_or_logins_is_asked_again() -> None:
    places = Places(b=[OSError("refused")], c=[LoginFailed("who?"), ConnectionLost("gone"), 4])
    found = await places.watch(End(epoch=3))
    assert found is not None
    assert found.place == C
    assert places.asked.count("b") == 3
    assert places.left_open() == ["c"]


@pytest.mark.usefixtures("_quick")
async def test_a_replica_that_closed_the_connection_is_connected_to_again() -> None:
    places = Places(b=[REPLICA], c=[REPLICA])
    greet = places.greet

    async def close_then_greet(end: Any) -> None:
        # The broker becomes the leader: it closes what it had as a replica.
        if len(places.asked) >= 6 and end in places.opened[:2]:
            end.end("closed")
            places._says[end.place[0]] = [4]
            raise ConnectionLost("closed")
        await greet(end)

    places.greet = close_then_greet  # type: ignore[method-assign]  # on purpose
    found = await places.watch(End(epoch=3))
    assert found is not None
    assert len(places.opened) == 4


@pytest.mark.usefixtures("_quick")
async def test_a_place_that_does_not_answer_keeps_none_from_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert HELLO_MS_MAX < LEASE_MS
    monkeypatch.setattr(leader_watch, "HELLO_MS_MAX", 5)
    places = Places(b=[None], c=[REPLICA, 4])
    found = await places.watch(End(epoch=3))
    assert found is not None
    assert found.place == C
    assert places.left_open() == ["c"]


@pytest.mark.usefixtures("_quick")
async def test_a_leader_found_while_the_watch_is_cancelled_is_left_again() -> None:
    places = Places(b=[4], c=[None])
    assert await places.watch(End(epoch=3), questions_max=2) is None
    assert places.left_open() == []

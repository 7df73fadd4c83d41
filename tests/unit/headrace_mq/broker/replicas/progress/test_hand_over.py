"""A leader that stops waits for what its replicas lack, where it acknowledged that alone, and says what they still lack."""

import asyncio

import pytest

from headrace_mq.broker.replicas.progress.hand_over import drain, hand_over
from headrace_mq.broker.replicas.progress.losses import NO_LOSS, PossibleLoss
from headrace_mq.cluster.record import ACK_IN_SYNC, ACK_LEADER, ACK_TO_IN_SYNC, RecordUnavailable

STOPS_EARLY = "stops before all brokers in sync have"


class Term:
    """What is asked of a leader's epoch; `has_heir`: a replica is in sync."""

    def __init__(self, ack: str, lacked: int = 0, *, has_heir: bool = True) -> None:
        self.ack, self.lacked, self.has_heir = ack, lacked, has_heir
        self.epoch, self.leads, self.has_said_to_lead = 3, True, False
        self.succession: str | None = None
        self.seen: list[str] = []
        self.documents = asyncio.Event()

    async def keep_offsets(self) -> None:
        self.seen.append("offsets")

    def begin_to_leave(self) -> bool:
        self.seen.append("refuses")
        self.succession = "b" if self.has_heir else None
        return self.has_heir

    def offer(self) -> None:
        self.seen.append("offers")

    def may_lose(self) -> PossibleLoss:
        return PossibleLoss(self.lacked, 5) if self.lacked else NO_LOSS

    async def confirmed(self) -> None:
        self.seen.append("documents")
        await self.documents.wait()


async def drained(term: Term, wait_ms: int = 60_000) -> None:
    await drain(term, term.keep_offsets, wait_ms)  # type: ignore[arg-type]  # only what is used of it


@pytest.mark.parametrize("ack", [ACK_LEADER, ACK_TO_IN_SYNC])
async def test_a_leader_that_acknowledged_alone_stops_once_its_replicas_have_everything(
    ack: str, caplog: pytest.LogCaptureFixture
) -> None:
    term = Term(ack, lacked=70)
    term.documents.set()
    stop = asyncio.create_task(drained(term))
    while "offers" not in term.seen:
        await asyncio.sleep(0)
    # It refuses clients before it writes the last offsets, and lets the next one lead after that.
    assert term.seen == ["refuses", "offsets", "offers"]
    assert (stop.done(), term.succession) == (False, "b")
    term.lacked = 0
    await stop
    assert (term.seen[-1], term.succession) == ("documents", "b")
    assert STOPS_EARLY not in caplog.text


async def test_a_leader_that_acknowledged_alone_says_what_its_replicas_lack_when_the_time_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    term = Term(ACK_LEADER, lacked=70)
    await drained(term, wait_ms=1)
    assert STOPS_EARLY in caplog.text
    assert "70" in caplog.text
    assert term.succession == "b"


async def test_a_leader_that_stops_waits_no_longer_once_another_one_leads(
    caplog: pytest.LogCaptureFixture,
) -> None:
    term = Term(ACK_LEADER, lacked=70)
    term.leads = False
    await drained(term)
    assert "documents" not in term.seen
    assert STOPS_EARLY not in caplog.text


@pytest.mark.parametrize(("ack", "has_heir"), [(ACK_IN_SYNC, True), (ACK_LEADER, False)])
async def test_a_leader_that_owes_no_replica_a_message_waits_for_offsets_alone(
    ack: str, has_heir: bool, caplog: pytest.LogCaptureFixture
) -> None:
    term = Term(ack, lacked=70, has_heir=has_heir)
    term.documents.set()
    await drained(term)
    assert term.seen[-2:] == ["offsets", "documents"]
    assert (term.succession, "offers" in term.seen) == (None, False)
    assert STOPS_EARLY not in caplog.text
    # Where replicas do not have the offsets in time, it stops all the same.
    term.documents.clear()
    await drained(term, wait_ms=1)


class Watch:
    """A record that shows another leader, or is away."""

    def __init__(self, term: Term, *, is_away: bool) -> None:
        self._term, self._is_away = term, is_away

    async def refresh(self) -> None:
        if self._is_away:
            raise RecordUnavailable("the record is away")
        self._term.leads = False


@pytest.mark.parametrize("is_away", [False, True])
async def test_a_leader_goes_on_where_the_record_has_no_other_one(
    is_away: bool, caplog: pytest.LogCaptureFixture
) -> None:
    term = Term(ACK_IN_SYNC)
    term.succession, term.has_said_to_lead = "b", True
    watch = Watch(term, is_away=is_away)
    await hand_over(term, watch, term.keep_offsets, 60_000)  # type: ignore[arg-type]  # only what is used of them
    assert term.seen == ["offsets", "offers"]
    assert (term.leads, term.succession) == (is_away, None)
    assert ("this one goes on" in caplog.text) is is_away

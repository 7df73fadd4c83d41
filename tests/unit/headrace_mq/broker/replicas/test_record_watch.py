"""A broker takes over what the record says, and what its own changes of it made."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from headrace_mq._runtime.clock import SystemClock
from headrace_mq._runtime.files import SystemFiles
from headrace_mq.broker.replicas.record_watch import RecordWatch
from headrace_mq.broker.replicas.reports import Reports
from headrace_mq.broker.replicas.store_logs import StoreLogs
from headrace_mq.cluster.member import ClusterMember
from headrace_mq.cluster.record import GroupRecord, Identity, Proposal, RecordUnavailable
from headrace_mq.cluster.records.memory import MemoryRecord
from headrace_mq.store.replication.epochs import EpochFile
from headrace_mq.testing.clock import ManualClock

ME = Identity("a", "disk-a")
OTHER = Identity("b", "disk-b")


class Seat:
    """A broker's watch over a record in memory; counts what it kept and what it told its owner."""

    def __init__(self) -> None:
        self.record = MemoryRecord()
        self.clock = ManualClock()
        self.member = ClusterMember(ME, {})
        self.kept: list[GroupRecord] = []
        self.taken = 0
        self.hindrance = self.misfit = ""
        self.watch = RecordWatch(
            self.member, self.record, self.clock,
            keep=self.kept.append, on_taken=self._on_taken, first_epoch=7,
            hindrance=lambda: self.hindrance,
        )  # fmt: skip

    def _on_taken(self) -> None:
        self.taken += 1

    async def elected(self) -> None:
        """Wins the next epoch."""
        await self.watch.refresh()
        proposal = self.member.stand()
        assert proposal is not None
        assert not await self.watch.propose(proposal)


async def test_a_first_broker_makes_the_record_in_the_epoch_of_its_messages() -> None:
    seat = Seat()
    await seat.watch.refresh()
    assert (await seat.record.read())[:4] == (1, 7, "a", frozenset({ME}))
    assert seat.kept == [await seat.record.read()]
    await seat.watch.refresh()
    # Read again, and not kept again.
    assert (len(seat.kept), seat.taken) == (1, 2)


async def test_a_broker_that_must_not_make_the_record_waits_for_one_that_does() -> None:
    seat = Seat()
    seat.hindrance = "there is no administrator"
    with pytest.raises(RecordUnavailable, match="there is no administrator"):
        await seat.watch.refresh()
    assert (seat.kept, seat.taken) == ([], 0)
    made = await seat.record.create(OTHER, [OTHER])
    await seat.watch.refresh()
    assert seat.kept == [made]


async def test_a_member_of_the_set_that_must_not_lead_says_so_once_and_another_one_says_nothing() -> (
    None
):
    seat = Seat()
    seat.misfit = "its group has no users"
    assert not seat.watch.is_barred(lambda: seat.misfit)
    await seat.watch.refresh()
    with capture_logs() as lines:
        assert [seat.watch.is_barred(lambda: seat.misfit) for _ in range(2)] == [True, True]
    assert [one["reason"] for one in lines] == ["its group has no users"]
    seat.misfit = ""
    assert not seat.watch.is_barred(lambda: seat.misfit)
    seat.misfit = "its group has no users"
    await seat.record.propose(Proposal(1, 8, "b", frozenset({OTHER})))
    await seat.watch.refresh()
    assert not seat.watch.is_barred(lambda: seat.misfit)


async def test_a_watch_notes_an_election_that_was_won() -> None:
    seat = Seat()
    await seat.elected()
    assert (seat.watch.won_epoch, seat.kept[-1].epoch) == (8, 8)


async def test_a_watch_takes_over_what_another_broker_made_of_the_record() -> None:
    seat = Seat()
    await seat.watch.refresh()
    await seat.record.propose(Proposal(1, 9, "b", frozenset({ME, OTHER})))
    proposal = seat.member.stand()
    assert proposal is not None
    patience = seat.watch.patience
    assert await seat.watch.propose(Proposal(1, 8, "a", frozenset({ME})))
    assert (seat.watch.won_epoch, seat.member.epoch, seat.kept[-1].leader) == (0, 9, "b")
    # Another leader gets its time.
    assert seat.watch.patience is not patience


async def test_a_watch_learns_by_the_next_look_what_became_of_a_change_without_an_answer() -> None:
    seat = Seat()
    await seat.watch.refresh()
    seat.record.loses_answers = True
    proposal = seat.member.stand()
    assert proposal is not None
    assert not await seat.watch.propose(proposal)
    assert seat.watch.won_epoch == 0
    await seat.watch.refresh()
    assert seat.watch.won_epoch == 8


async def test_a_record_that_went_back_is_said_once_and_not_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seat = Seat()
    await seat.elected()
    newest, taken = seat.record._record, seat.taken
    seat.record._record = GroupRecord(1, 7, "a", frozenset({ME}))
    for _ in range(2):
        await seat.watch.refresh()
    assert seat.watch.went_back
    assert (caplog.text.count("older than one that was seen"), seat.taken) == (1, taken)
    seat.record._record = newest
    await seat.watch.refresh()
    assert (seat.watch.went_back, seat.kept[-1]) == (False, newest)


async def test_a_record_of_another_group_is_said_once_and_takes_no_change(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seat = Seat()
    await seat.elected()
    own = seat.record._record
    assert own is not None
    # It was deleted, and made again by another broker; its version is the same.
    other = own._replace(group_id="another", leader="b", in_sync=frozenset({OTHER}))
    seat.record._record = other
    change = Proposal(own.version, own.epoch, "a", frozenset({ME}))
    assert await seat.watch.propose(change)
    assert not await seat.watch.propose(change)
    await seat.watch.refresh()
    assert (seat.watch.went_back, seat.record._record) == (True, other)
    assert caplog.text.count("of another group of the same name") == 1
    assert (seat.member.stand(), seat.member.seen, seat.kept[-1]) == (None, own, own)
    seat.record._record = own
    await seat.watch.refresh()
    assert not seat.watch.went_back


async def test_a_record_that_is_away_is_said_once_and_leaves_the_time_of_its_last_answer(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(f"{RecordWatch.__module__}.RENEW_MS", 0)
    seat = Seat()
    await seat.watch.refresh()
    heard_ms = seat.watch.heard_ms
    seat.clock.advance(5_000)
    seat.record.is_away = True
    looks = 0

    async def read() -> GroupRecord:
        nonlocal looks
        looks += 1
        raise RecordUnavailable("the record is away")

    monkeypatch.setattr(seat.record, "read", read)
    logs = StoreLogs(EpochFile(SystemFiles(), tmp_path))
    running = asyncio.create_task(seat.watch.run(Reports(logs, seat.record, SystemClock())))
    async with asyncio.timeout(120):
        while looks < 3:
            await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert caplog.text.count("the group's record cannot be read") == 1
    assert seat.watch.heard_ms == heard_ms

"""Two leaders and one archive: each committed message is there once, whichever of them archives when."""

import asyncio
import random
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from headrace_mq.archive.claim import KeptArchive
from headrace_mq.archive.database import ArchiveMismatch, ArchivePositionMoved, KeptLog
from headrace_mq.archive.term import NO_EPOCHS
from headrace_mq.message import QueueRef
from headrace_mq.store.log.commit_gate import CommitGate

QUEUE = QueueRef("orders", 0)
OTHER = QueueRef("unknown", 0)
LOG = "transient"
Batch = Callable[..., bytearray]


def bodies(shelf: Any) -> list[bytes]:
    return [row.body for row in shelf.rows.get(QUEUE, [])]


def end_of(one: Any) -> int:
    return int(one.store.archivable(LOG)[1])


async def send(one: Any, batch: Batch, *numbers: int) -> None:
    for number in numbers:
        await one.append(batch(QUEUE, [b"%d" % number]))


def heir_of(folder: Path) -> None:
    """Gives another broker the log as the disk has it."""
    shutil.copytree(folder / "store", folder / "heir")


class Steps:
    """The way of one leader to the shelf: each of its questions waits for its turn."""

    def __init__(self, shelf: Any) -> None:
        self._shelf = shelf
        self.parked: asyncio.Future[None] | None = None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._shelf, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def later(*arguments: Any) -> Any:
            self.parked = asyncio.get_running_loop().create_future()
            await self.parked
            return await found(*arguments)

        return later


async def in_turns(order: random.Random, leaders: dict[Steps, Awaitable[None]]) -> None:
    """Runs the leaders' work, one question of the shelf at a time, in an order that the seed decides."""
    tasks = {steps: asyncio.ensure_future(work) for steps, work in leaders.items()}
    async with asyncio.timeout(60):
        while not all(task.done() for task in tasks.values()):
            waiting = [steps for steps in tasks if not tasks[steps].done()]
            if all(steps.parked is not None for steps in waiting):
                chosen = order.choice(waiting)
                parked, chosen.parked = chosen.parked, None
                assert parked is not None
                parked.set_result(None)
            await asyncio.sleep(0)
    for task in tasks.values():
        task.result()


async def turns(one: Any, count: int) -> None:
    """What the archiver does, without pauses."""
    for _ in range(count):
        try:
            await one.archiver._turn()
        except (ArchivePositionMoved, ArchiveMismatch) as error:
            one.archiver._failed(error)


@pytest.mark.parametrize("seed", range(8))
async def test_an_old_leader_and_its_heir_archive_each_message_once(
    tmp_path: Path,
    archived: Callable[..., Any],
    batch: Batch,
    shelf: Any,
    leading: Callable[..., Any],
    seed: int,
) -> None:
    old_way, new_way = Steps(shelf), Steps(shelf)
    old = archived(database=old_way, term=leading((1, 0)), transaction_bytes=1)
    await send(old, batch, *range(6))
    heir_of(tmp_path)
    new = archived(
        "heir", database=new_way, term=leading((1, 0), (2, end_of(old))), transaction_bytes=1
    )
    await send(new, batch, *range(6, 9))
    await in_turns(random.Random(seed), {old_way: turns(old, 8), new_way: turns(new, 12)})
    new.archiver.start()
    await in_turns(random.Random(seed), {new_way: new.archiver.caught_up()})
    assert bodies(shelf) == [b"%d" % number for number in range(9)]
    assert shelf.lost == []
    assert shelf.kept[LOG].epoch == 2


@pytest.mark.parametrize("seed", range(8))
async def test_messages_that_a_group_lost_leave_the_archive_whenever_the_old_leader_stops(
    tmp_path: Path,
    archived: Callable[..., Any],
    batch: Batch,
    shelf: Any,
    leading: Callable[..., Any],
    seed: int,
) -> None:
    old_way, new_way = Steps(shelf), Steps(shelf)
    old = archived(database=old_way, term=leading((1, 0)), transaction_bytes=1)
    await send(old, batch, 0, 1, 2)
    heir_of(tmp_path)
    common = end_of(old)
    # An operator promotes the other one, and this one goes on alone for a while.
    await send(old, batch, 3, 4, 5)
    new = archived("heir", database=new_way, term=leading((1, 0), (2, common)), transaction_bytes=1)
    await send(new, batch, 13, 14)
    await in_turns(random.Random(seed), {old_way: turns(old, 10), new_way: turns(new, 10)})
    new.archiver.start()
    await in_turns(random.Random(seed), {new_way: new.archiver.caught_up()})
    assert bodies(shelf) == [b"0", b"1", b"2", b"13", b"14"]
    assert {row.body for row in shelf.lost} <= {b"3", b"4", b"5"}


async def test_a_superseded_leader_adds_nothing_once_a_later_one_has_the_archive(
    archived: Callable[..., Any], batch: Batch, shelf: Any, leading: Callable[..., Any]
) -> None:
    old = archived(term=leading((1, 0)))
    await send(old, batch, 0)
    await old.archiver._turn()
    await send(old, batch, 1)
    shelf.kept[LOG] = shelf.kept[LOG]._replace(epoch=2)
    with pytest.raises(ArchivePositionMoved):
        await old.archiver._turn()
    old.archiver._failed(ArchivePositionMoved("moved"))
    with pytest.raises(
        ArchiveMismatch,
        match=r"later leader of this group .* \(epoch 2, here 1\).*remove metadata/archive.json",
    ):
        await old.archiver._turn()
    assert bodies(shelf) == [b"0"]


async def test_lost_messages_of_a_topic_that_the_new_leader_never_had_go_as_well(
    tmp_path: Path,
    archived: Callable[..., Any],
    batch: Batch,
    shelf: Any,
    leading: Callable[..., Any],
) -> None:
    old = archived(term=leading((1, 0)))
    await send(old, batch, 0)
    kept = QueueRef("kept", 0)
    await old.append(batch(kept, [b"k"]), retention="forever")
    heir_of(tmp_path)
    common = end_of(old)
    await old.append(batch(OTHER, [b"u"]))
    await send(old, batch, 1)
    await old.archiver._turn()
    new = archived("heir", term=leading((1, 0), (2, common)))
    told_meanwhile: list[str] = []
    look = shelf.look

    def look_and_note(*asked: object) -> None:
        if asked[0] == "claim":
            told_meanwhile.append(new.backlog.failure)
        look(*asked)

    shelf.look = look_and_note
    with capture_logs() as logs:
        await new.archiver._turn()
    assert any("move to the table archived_lost" in told for told in told_meanwhile)
    assert new.backlog.failure == ""
    assert {queue: [row.body for row in rows] for queue, rows in shelf.rows.items() if rows} == {
        QUEUE: [b"0"],
        kept: [b"k"],
    }
    assert sorted(row.body for row in shelf.lost) == [b"1", b"u"]
    (told,) = [line for line in logs if line["log_level"] == "error"]
    assert (told["from_position"], told["rows"]) == (common, 2)


async def test_a_leader_whose_log_begins_behind_the_common_part_refuses_the_archive(
    archived: Callable[..., Any], batch: Batch, shelf: Any, leading: Callable[..., Any]
) -> None:
    one = archived(term=leading((3, 0)))
    for _ in range(3):
        await one.append(batch(QUEUE, [bytes(60_000)]))
    one.store.delete_segments(LOG, end_of(one))
    shelf.kept[LOG] = KeptLog(LOG, "me", 100, 2, "[[2, 0]]")
    with pytest.raises(ArchiveMismatch, match=r"from log position 0 on .* its own begin at"):
        await one.archiver.connect()
    assert shelf.kept[LOG].epoch == 2


async def test_an_archive_from_before_the_group_is_taken_as_it_is(
    archived: Callable[..., Any], batch: Batch, shelf: Any, leading: Callable[..., Any]
) -> None:
    alone = archived()
    await send(alone, batch, 0)
    await alone.archiver._turn()
    assert shelf.kept[LOG].epochs == NO_EPOCHS
    position = shelf.kept[LOG].position
    await alone.aclose()
    one = archived(term=leading((6, 0), (7, position)))
    await one.archiver.connect()
    assert shelf.kept[LOG] == KeptLog(LOG, "me", position, 7, "[[6,0]]")


@pytest.mark.parametrize("has_some", [True, False])
async def test_an_archive_from_before_the_group_loses_what_a_promotion_before_its_first_claim_lost(
    tmp_path: Path,
    archived: Callable[..., Any],
    batch: Batch,
    shelf: Any,
    leading: Callable[..., Any],
    has_some: bool,
) -> None:
    alone = archived()
    if has_some:
        await send(alone, batch, 0, 1, 2)
    heir_of(tmp_path)
    common = end_of(alone)
    await send(alone, batch, 3, 4, 5)
    await alone.archiver._turn()
    # It founds a group in epoch 5. The database is away until another one was promoted, and has more than the archive.
    starts = [(4, 0), (6, common)] if has_some else [(6, 0)]
    heir = archived("heir", term=leading(*starts))
    await send(heir, batch, *range(10, 18))
    assert end_of(heir) > shelf.kept[LOG].position
    await heir.archiver._turn()
    held = [b"0", b"1", b"2"] if has_some else []
    assert bodies(shelf) == held + [b"%d" % number for number in range(10, 18)]
    assert [row.body for row in shelf.lost] == [b"3", b"4", b"5"]


@pytest.mark.parametrize("epochs", [[(1, 0), (2, 100), (3, 200)], [(3, 0)]])
async def test_a_group_whose_first_segments_are_gone_begins_an_archive_where_its_log_begins(
    archived: Callable[..., Any],
    batch: Batch,
    shelf: Any,
    leading: Callable[..., Any],
    epochs: list[tuple[int, int]],
) -> None:
    one = archived(term=leading(*epochs))
    for _ in range(3):
        await one.append(batch(QUEUE, [bytes(60_000)]))
    one.store.delete_segments(LOG, end_of(one))
    one.claim.kept = None
    shelf.kept.clear()
    await one.archiver._turn()
    assert [row.queue_offset for row in shelf.rows[QUEUE]] == [2]
    assert shelf.kept[LOG].epochs == msgspec.json.encode(epochs).decode()


async def test_a_leader_that_names_another_groups_database_reads_nothing_from_it(
    archived: Callable[..., Any], batch: Batch, leading: Callable[..., Any]
) -> None:
    other = archived(term=leading((1, 0)))
    await send(other, batch, 0, 1, 2)
    await other.archiver._turn()
    mine = archived("mine", term=leading((1, 0)))
    mine.claim.kept = KeptArchive("mine", begun=True)
    for _ in range(3):
        await mine.append(batch(QUEUE, [bytes(60_000)]))
    mine.store.delete_segments(LOG, end_of(mine))
    with pytest.raises(ArchiveMismatch, match="another broker's folder"):
        await mine.archiver._turn()
    arrived: list[Any] = []
    mine.store.on_visible = arrived.extend
    assert mine.store.read_now(QUEUE, 0, 1_000) is None
    await asyncio.gather(*mine.past.blocks._jobs.values(), return_exceptions=True)
    assert mine.store.read_now(QUEUE, 0, 1_000) is None
    assert arrived == []


async def test_a_broker_that_left_its_group_forgets_its_epochs_in_the_archive(
    archived: Callable[..., Any], batch: Batch, shelf: Any, leading: Callable[..., Any]
) -> None:
    one = archived(term=leading((7, 0)))
    await send(one, batch, 0)
    await one.archiver._turn()
    await one.aclose()
    alone = archived()
    await alone.archiver.connect()
    assert (shelf.kept[LOG].epoch, shelf.kept[LOG].epochs) == (7, NO_EPOCHS)


async def test_a_column_that_holds_no_epochs_is_refused(
    archived: Callable[..., Any], shelf: Any, leading: Callable[..., Any]
) -> None:
    one = archived(term=leading((7, 0)))
    shelf.kept[LOG] = shelf.kept[LOG]._replace(epochs="rubbish")
    with pytest.raises(ArchiveMismatch, match="restore that table"):
        await one.archiver.connect()


async def test_a_leader_names_the_archive_after_the_others_have_the_name(
    archived: Callable[..., Any], shelf: Any, leading: Callable[..., Any]
) -> None:
    term = leading((1, 0))
    one = archived(term=term)
    one.claim.kept = None
    shelf.kept.clear()
    begun_when_confirmed: list[int] = []

    def note() -> None:
        begun_when_confirmed.append(len(shelf.kept))
        assert "waits until all brokers in sync have its name" in one.backlog.failure

    term.on_confirmed = note
    await one.archiver.connect()
    assert one.backlog.failure == ""
    assert begun_when_confirmed == [0, 2]
    assert [kept.begun for kept in one.kept] == [False, True]
    assert {kept.store_id for kept in shelf.kept.values()} == {one.kept[0].store_id}


async def test_a_name_that_the_others_never_got_begins_no_archive(
    tmp_path: Path, archived: Callable[..., Any], shelf: Any, leading: Callable[..., Any]
) -> None:
    term = leading((1, 0))
    old = archived(term=term)
    old.claim.kept = None
    shelf.kept.clear()
    never = asyncio.Event()
    term.confirmed = never.wait
    waiting = asyncio.create_task(old.archiver.connect())
    while not old.kept:
        await asyncio.sleep(0)
    new = archived("heir", term=leading((2, 0)))
    new.claim.kept = None
    await new.archiver.connect()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert new.kept[-1] == KeptArchive(next(iter(shelf.kept.values())).store_id, begun=True)
    assert old.kept[-1].store_id != new.kept[-1].store_id


async def test_an_heir_completes_an_archive_that_its_leader_half_began(
    archived: Callable[..., Any], shelf: Any, leading: Callable[..., Any]
) -> None:
    shelf.kept = {LOG: KeptLog(LOG, "me", 0)}
    one = archived(term=leading((2, 0)))
    one.claim.kept = KeptArchive("me", begun=False)
    await one.archiver.connect()
    assert sorted(shelf.kept) == ["forever", LOG]
    assert one.kept[-1].begun


async def test_only_committed_messages_are_archived(
    archived: Callable[..., Any], batch: Batch, shelf: Any, leading: Callable[..., Any]
) -> None:
    gate = CommitGate()
    one = archived(term=leading((1, 0)), gate=gate)
    held = asyncio.Event()
    gate.on_held = held.set
    one.store.append(batch(QUEUE, [b"a"]), retention=LOG)
    await held.wait()
    await one.archiver._turn()
    assert (end_of(one), bodies(shelf)) == (0, [])
    gate.reached(LOG, one.store.raw.tail(LOG))
    await one.archiver._turn()
    assert bodies(shelf) == [b"a"]

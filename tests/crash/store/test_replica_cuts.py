"""The power of a replica goes during any change of its disk, while it cuts its log and follows a leader.

The replica led for a while in an epoch of its own, and wrote what no other broker has. A new leader makes it cut
that, over the border of a segment, and follow. After each power cut it begins again with what its disk kept; in the end it
must hold the leader's batches, byte for byte, and no other.
"""

import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headrace_mq._runtime.clock import SystemClock
from headrace_mq.errors import MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore
from headrace_mq.store.replication import cut as cut_module
from headrace_mq.store.replication.cut import cut_log
from headrace_mq.store.replication.epochs import EpochFile
from headrace_mq.store.replication.raw_log import raw_groups
from headrace_mq.store.replication.restart import restart_log
from tests.crash.store.replica_scenes import ReplicaScene, closed_differences, opened

LOG = "forever"
RANGE_BYTES = 20_000


def settings(directory: Path) -> StoreSettings:
    return StoreSettings(directory=directory, segment_bytes=64 * 1024)


async def lead(directory: Path, files: Any, epoch: int, sizes: list[int]) -> None:
    """Leads for a while: notes the epoch, appends batches, and stops."""
    store, epochs = opened(settings(directory), files), EpochFile(files, directory)
    epochs.open(store.raw.ends())
    store.epoch = epoch
    if [known for known, _ in epochs.of(LOG).starts[-1:]] != [epoch]:
        epochs.begin(LOG, epoch, store.raw.ends()[LOG])
    for number, size in enumerate(sizes):
        body = bytes([epoch, number]) * (size // 2)
        queue = QueueRef("t", number % 3 + epoch)
        # An old leader's messages are in queues that the new one has, too, and in others.
        batch = encode_batch(
            queue, Columns([], [], [], [body], []), born_first_ms=0, producer_id=queue.queue_id + 1,
            first_sequence=store.range(queue)[1],
        )  # fmt: skip
        store.append(batch, retention=LOG)
        await store.durable()
    await store.aclose()


async def catch_up(directory: Path, files: Any, leader: Path, leader_files: Any) -> None:
    """What a replica does: finds where its log parts from the leader's, cuts it, and follows."""
    source, known = opened(settings(leader), leader_files), EpochFile(leader_files, leader)
    known.open(source.raw.ends())
    epochs = EpochFile(files, directory)
    store: MessageStore | None = None
    try:
        while True:
            store = opened(settings(directory), files)
            epochs.open(store.raw.ends())
            end = store.raw.ends()[LOG]
            epoch, epoch_end = known.of(LOG).end_of(
                epochs.of(LOG).last(end), source.raw.ends()[LOG]
            )
            at = epochs.of(LOG).parts_at(end, epoch, epoch_end)
            begin = source.raw.begin(LOG)
            if at == end >= begin:
                break
            await store.aclose()
            if at == end:
                restart(directory, files, epochs, source, known)
                continue
            cut_log(files, settings(directory), LOG, at)
            epochs.cut(LOG, at)
        await follow(store, epochs, source, known)
    finally:
        if store is not None:
            await store.aclose()
        await source.aclose()


def restart(
    directory: Path, files: Any, epochs: EpochFile, source: MessageStore, known: EpochFile
) -> None:
    """Begins the log where the leader's begins, as `Replica` does."""
    first = source.raw.first_segment(LOG)
    epochs.take_over(LOG, 0, [start for start in known.of(LOG).starts if start[1] < first.base])
    restart_log(files, settings(directory), first, source.raw.queue_starts(LOG), SystemClock())


async def follow(
    store: MessageStore, epochs: EpochFile, source: MessageStore, known: EpochFile
) -> None:
    if store.raw.begin(LOG) < source.raw.begin(LOG):
        store.delete_segments(LOG, source.raw.begin(LOG))
    while (raw := source.raw.read(LOG, store.raw.ends()[LOG], RANGE_BYTES)).data:
        behind = raw.position + len(raw.data)
        starts = [start for start in known.of(LOG).after(raw.position) if start[1] < behind]
        epochs.take_over(LOG, raw.position, starts)
        store.raw.append(raw)
        await store.durable()


def batches(store: MessageStore) -> list[bytes]:
    found: list[bytes] = []
    at = store.raw.begin(LOG)
    while (raw := store.raw.read(LOG, at, 1 << 20)).data:
        found += [data for group in raw_groups(raw.data, at) for _, data in group.batches]
        at += len(raw.data)
    return found


async def differences(directory: Path, leader: Path, files: Any) -> list[str]:
    """Names what a replica holds other than its leader."""
    one, other = opened(settings(directory), files), opened(settings(leader), files)
    found = []
    if batches(one) != batches(other):
        found.append("batches")
    ranges = [{ref: s.range(ref) for ref, _ in s.queues()} for s in (one, other)]
    if ranges[0] != ranges[1]:
        found.append("ranges")
    found += await closed_differences(one, other, files, (directory, leader), LOG)
    return found


class Scene(ReplicaScene):
    """A leader, and a replica that led in epoch 2 and has what the leader of epoch 3 has not."""

    async def play(self) -> None:
        files = self.new["files"]()
        self.leader.mkdir(parents=True)
        await lead(self.leader, files, 1, [15_000] * 7)
        shutil.copytree(self.leader, self.replica)
        await lead(self.replica, files, 2, [15_000] * 8)
        # The old leader wrote on, and leads again: its epoch 1 is longer than all that the replica has.
        await lead(self.leader, files, 1, [19_000] * 8)
        await lead(self.leader, files, 3, [9_000] * 3)

    async def play_deleted(self, *, empty: bool) -> None:
        """The new leader has deleted all that the replica has, and more; `empty`: the replica has nothing yet."""
        await self.play()
        if empty:
            shutil.rmtree(self.replica)
            await opened(settings(self.replica), self.new["files"]()).aclose()
        store = opened(settings(self.leader), self.new["files"]())
        assert store.delete_segments(LOG, store.raw.ends()[LOG])
        await store.aclose()

    async def catch_up(self, directory: Path, files: Any, leader_files: Any) -> None:
        await catch_up(directory, files, self.leader, leader_files)

    async def differences(self, directory: Path, files: Any) -> list[str]:
        return await differences(directory, self.leader, files)


@pytest.fixture
async def scene(tmp_path: Path, power_cut_files: Any, faulty_files: Any) -> Scene:
    made = Scene(tmp_path, {"disk": power_cut_files, "files": faulty_files})
    await made.play()
    return made


async def test_a_replica_equals_its_leader_after_a_power_cut_at_any_change(
    scene: Scene, figures: Callable[..., None]
) -> None:
    wrong, steps = await scene.sweep()
    figures(
        "power cuts of a replica that cuts its log and follows", power_cuts=steps, wrong=len(wrong)
    )
    # It removes a segment, cuts another one, makes one, and writes both files of ends more than once.
    assert steps > 60
    assert wrong == {}


@pytest.mark.parametrize("empty", [False, True], ids=["fell behind", "is new"])
async def test_a_replica_that_begins_where_its_leader_does_stands_a_power_cut_at_any_change(
    tmp_path: Path,
    power_cut_files: Any,
    faulty_files: Any,
    figures: Callable[..., None],
    empty: bool,
) -> None:
    scene = Scene(tmp_path, {"disk": power_cut_files, "files": faulty_files})
    await scene.play_deleted(empty=empty)
    wrong, steps = await scene.sweep()
    figures(
        "power cuts of a replica whose leader deleted what it lacks",
        power_cuts=steps, wrong=len(wrong),
    )  # fmt: skip
    # It makes a segment, and writes both files of ends more than once.
    assert steps > 40
    assert wrong == {}


async def test_a_power_cut_in_a_range_of_many_groups_leaves_no_hole(
    tmp_path: Path, power_cut_files: Any, faulty_files: Any, figures: Callable[..., None]
) -> None:
    """Each group of the leader was synced apart; the replica writes all of a range before it syncs."""
    files = faulty_files()
    leader = tmp_path / "leader"
    leader.mkdir()
    await lead(leader, files, 1, [3_000] * 12)
    wrong, cuts, step, died = {}, 0, 0, True
    while died:
        step += 1
        for seed in range(8):
            here, kept = tmp_path / f"{step}-{seed}", tmp_path / f"{step}-{seed}-kept"
            here.mkdir()
            disk = power_cut_files(here)
            disk.cut_at = step
            # An OSError is of the epochs file: its owner hears of the disk itself.
            with suppress(MessageQueueError, OSError):
                await catch_up(here, disk, leader, faulty_files())
            died = disk.dead
            disk.image(kept, random.Random(seed))
            disk.forget()
            await catch_up(kept, faulty_files(), leader, faulty_files())
            found = await differences(kept, leader, faulty_files())
            if found:
                wrong[step, seed] = found
            cuts += 1
            shutil.rmtree(here)
            shutil.rmtree(kept)
    figures("power cuts in a range of many groups", power_cuts=cuts, wrong=len(wrong))
    assert cuts > 100
    assert wrong == {}


async def test_ends_of_queues_that_do_not_fall_with_the_log_are_noticed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut_module, "_lowered", lambda held, clean_end, position: clean_end)
    found, _ = await scene.cut_at(1_000_000)
    assert found


async def test_epochs_that_are_forgotten_before_the_log_is_cut_are_noticed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first_the_epochs(files: Any, of: StoreSettings, log: str, position: int) -> None:
        epochs = EpochFile(files, of.directory)
        epochs.open({})
        epochs.cut(log, position)
        cut_module.cut_log(files, of, log, position)

    monkeypatch.setattr(f"{__name__}.cut_log", first_the_epochs)
    wrong, _ = await scene.sweep(to_first=True)
    assert wrong

"""The power of a replica goes during any change of its disk, while it copies what its leader has compacted.

The replica has messages of its own that end in what the leader compacted since. It drops them, copies the leader's segments
as files, and follows. After each power cut it begins again with what its disk kept; in the end it must show the leader's messages
at their offsets, and no other.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, decode_records, encode_batch, read_header
from headrace_mq.settings import StoreSettings
from headrace_mq.store.check.inspection import check
from headrace_mq.store.message_store import MessageStore
from headrace_mq.store.replication.cut import cut_log
from headrace_mq.store.replication.epochs import EpochFile
from headrace_mq.store.replication.segment_copy import SegmentCopy
from tests.crash.store.replica_scenes import ReplicaScene, closed_differences, opened

LOG = "compact"
QUEUES = [QueueRef("state", number) for number in range(2)]
PIECE_BYTES = 9_000


def settings(directory: Path) -> StoreSettings:
    return StoreSettings(
        directory=directory, compact_segment_bytes=64 << 10, compact_lag_ms=0, compact_bytes_per_s=0
    )


async def lead(directory: Path, files: Any, epoch: int, count: int) -> None:
    """Leads for a while: notes the epoch, appends messages of few keys, and stops."""
    store, epochs = opened(settings(directory), files), EpochFile(files, directory)
    epochs.open(store.raw.ends())
    store.epoch = epoch
    epochs.begin(LOG, epoch, store.raw.ends()[LOG])
    for number in range(count):
        queue = QUEUES[number % 2]
        columns = Columns([f"k{number % 7}"], [], [], [bytes([epoch, number]) * 4_000], [])
        batch = encode_batch(queue, columns, born_first_ms=0)
        store.append(batch, retention=LOG)
        await store.durable()
    await store.aclose()


async def compact(directory: Path, files: Any) -> None:
    store = opened(settings(directory), files)
    while not await store.compaction.run({}, force=True):
        store.index_keys(1 << 20)
    assert store.compaction.figures.trouble == ""
    await store.aclose()


async def catch_up(directory: Path, files: Any, leader: Path, leader_files: Any) -> None:
    """What a replica does whose log is equal to the leader's, as far as it goes."""
    source, known = opened(settings(leader), leader_files), EpochFile(leader_files, leader)
    known.open(source.raw.ends())
    epochs, version = EpochFile(files, directory), 0
    store: MessageStore | None = None
    try:
        store = opened(settings(directory), files)
        epochs.open(store.raw.ends())
        while (end := store.raw.ends()[LOG]) < source.raw.ends()[LOG]:
            piece = source.raw.piece(LOG, end, 0, 0, PIECE_BYTES)
            if piece is None:
                await follow(store, epochs, source, known)
                continue
            await store.aclose()
            if piece.base != end or (end and not version):
                cut_log(files, settings(directory), LOG, 0)
                epochs.cut(LOG, 0)
            else:
                copy_segment(directory, files, epochs, source, known, end)
                version = source.raw.compacted(LOG).version
            store = opened(settings(directory), files)
    finally:
        if store is not None:
            await store.aclose()
        await source.aclose()


def copy_segment(
    directory: Path, files: Any, epochs: EpochFile, source: MessageStore, known: EpochFile, end: int
) -> None:
    """Copies the segment at the end of the closed store, as `Replica` does."""
    piece = source.raw.piece(LOG, end, 0, 0, PIECE_BYTES)
    assert piece is not None
    copy = SegmentCopy(files, settings(directory), LOG, piece)
    copy.take(piece)
    while not copy.is_whole:
        piece = source.raw.piece(LOG, end, copy.identity, copy.held, PIECE_BYTES)
        assert piece is not None
        assert copy.continues(piece)
        copy.take(piece)
    copy.check()
    starts = [start for start in known.of(LOG).after(end) if start[1] < copy.covers]
    epochs.take_over(LOG, end, starts)
    copy.install()


async def follow(
    store: MessageStore, epochs: EpochFile, source: MessageStore, known: EpochFile
) -> None:
    raw = source.raw.read(LOG, store.raw.ends()[LOG], PIECE_BYTES)
    behind = raw.position + len(raw.data)
    starts = [start for start in known.of(LOG).after(raw.position) if start[1] < behind]
    epochs.take_over(LOG, raw.position, starts)
    store.raw.append(raw)
    await store.durable()


def shown(store: MessageStore) -> list[list[tuple[int, str, bytes]]]:
    """What readers of each queue see."""
    found = []
    for queue in QUEUES:
        at, end = store.range(queue)
        seen = []
        while at < end:
            for batch in store.read(queue, at, 1 << 20):
                seen += [(one.offset, one.key, one.body) for one in decode_records(batch)]
                at = max(at, read_header(batch).next_offset)
        found.append(seen)
    return found


async def differences(directory: Path, leader: Path, files: Any) -> list[str]:
    """Names what a replica holds other than its leader."""
    one, other = opened(settings(directory), files), opened(settings(leader), files)
    found = []
    if shown(one) != shown(other):
        found.append("messages")
    if [one.range(queue) for queue in QUEUES] != [other.range(queue) for queue in QUEUES]:
        found.append("ranges")
    found += await closed_differences(one, other, files, (directory, leader), LOG)
    return found + [finding.reason for finding in check(directory, metadata={}).findings]


class Scene(ReplicaScene):
    """A leader that has compacted, and a replica that has the beginning of its log as it was, and compacted it itself."""

    async def play(self) -> None:
        files = self.new["files"]()
        self.leader.mkdir(parents=True)
        await lead(self.leader, files, 1, 22)
        shutil.copytree(self.leader, self.replica)
        await compact(self.replica, files)
        await lead(self.leader, files, 2, 24)
        await compact(self.leader, files)
        await lead(self.leader, files, 3, 10)

    async def catch_up(self, directory: Path, files: Any, leader_files: Any) -> None:
        await catch_up(directory, files, self.leader, leader_files)

    async def differences(self, directory: Path, files: Any) -> list[str]:
        return await differences(directory, self.leader, files)


async def test_a_replica_shows_what_its_leader_does_after_a_power_cut_at_any_change(
    tmp_path: Path,
    power_cut_files: Any,
    faulty_files: Any,
    figures: Callable[..., None],
    thorough: bool,
) -> None:
    scene = Scene(tmp_path, {"disk": power_cut_files, "files": faulty_files})
    await scene.play()
    every = 1 if thorough else 4
    wrong, cuts = await scene.sweep(every=every)
    figures(
        "power cuts of a replica that copies what is compacted",
        power_cuts=cuts, wrong=len(wrong),
    )  # fmt: skip
    # It removes segments, makes compacted ones, and writes both files of ends more than once.
    assert cuts * every >= 60
    assert wrong == {}

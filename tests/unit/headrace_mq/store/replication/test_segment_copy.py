"""A compacted segment comes as a file: whole and checked, or not at all."""

from pathlib import Path
from typing import Any

import pytest

from headrace_mq._runtime.files import SystemFiles
from headrace_mq.errors import DataCorrupt, MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore
from headrace_mq.store.replication.compacted_log import SegmentPiece
from headrace_mq.store.replication.cut import cut_log
from headrace_mq.store.replication.segment_copy import SegmentCopy

LOG = "compact"
QUEUE = QueueRef("state", 0)


def settings(directory: Path) -> StoreSettings:
    return StoreSettings(
        directory=directory, compact_segment_bytes=64 << 10, compact_lag_ms=0, compact_bytes_per_s=0
    )


async def put(store: MessageStore, key: str) -> None:
    columns = Columns([key], [], [], [b"x" * 2_000], [])
    store.append(encode_batch(QUEUE, columns, born_first_ms=0), retention=LOG)
    await store.durable()


@pytest.fixture
async def pieces(tmp_path: Path) -> list[SegmentPiece]:
    """The pieces of a leader's first segment, which is compacted."""
    store = MessageStore(settings(tmp_path / "leader"))
    store.open()
    for number in range(70):
        await put(store, f"key-{number % 50}")
    while not await store.compaction.run({}, force=True):
        store.index_keys(1 << 20)
    found: list[SegmentPiece] = []
    have = 0
    while not found or have < found[0].size:
        piece = store.raw.piece(LOG, 0, found[0].identity if found else 0, have, 6_000)
        assert piece is not None
        found.append(piece)
        have += len(piece.data)
    await store.aclose()
    return found


@pytest.fixture
def replica(tmp_path: Path) -> Path:
    """The folder of an empty replica."""
    store = MessageStore(settings(tmp_path / "replica"))
    store.open()
    store._release()
    return tmp_path / "replica"


def copied(replica: Path, pieces: list[SegmentPiece], files: Any = None) -> SegmentCopy:
    copy = SegmentCopy(files or SystemFiles(), settings(replica), LOG, pieces[0])
    for piece in pieces:
        assert copy.continues(piece)
        assert not copy.is_whole
        copy.take(piece)
    assert copy.is_whole
    return copy


async def test_a_copied_segment_is_the_end_of_the_log(
    replica: Path, pieces: list[SegmentPiece], tmp_path: Path
) -> None:
    assert len(pieces) > 2
    copy = copied(replica, pieces)
    assert not copy.continues(pieces[0])
    copy.check()
    copy.install()
    store = MessageStore(settings(replica))
    store.open()
    assert store.raw.ends()[LOG] == copy.covers
    assert store.damage == []
    await put(store, "d")
    assert store.raw.ends()[LOG] > copy.covers
    await store.aclose()
    names = [path.name for path in (tmp_path / "replica" / LOG).iterdir()]
    assert not [name for name in names if name.endswith(".new")]


def test_a_flipped_bit_is_noticed(replica: Path, pieces: list[SegmentPiece]) -> None:
    data = b"".join(piece.data for piece in pieces)
    for at in [30, 4_000, 4_096, 4_200, 9_000, len(data) - 1]:
        bad = bytearray(data)
        bad[at] ^= 1
        copy = copied(replica, [pieces[0]._replace(data=bytes(bad))])
        with pytest.raises(DataCorrupt, match="cannot be used"):
            copy.check()
    short = pieces[0]._replace(data=data[:-1], size=len(data) - 1)
    with pytest.raises(DataCorrupt, match="length is wrong"):
        copied(replica, [short]).check()


def test_another_segment_is_refused(replica: Path, pieces: list[SegmentPiece]) -> None:
    data = b"".join(piece.data for piece in pieces)
    copy = copied(replica, [pieces[0]._replace(data=data, covers=pieces[0].covers + 1)])
    with pytest.raises(DataCorrupt, match="another segment"):
        copy.check()


def test_nothing_is_put_into_a_store_that_is_open(
    replica: Path, pieces: list[SegmentPiece]
) -> None:
    copy = copied(replica, pieces)
    store = MessageStore(settings(replica))
    store.open()
    with pytest.raises(MessageQueueError, match="stop it"):
        copy.install()
    store._release()


def test_a_segment_that_came_in_part_can_be_dropped(
    replica: Path, pieces: list[SegmentPiece]
) -> None:
    copy = copied(replica, pieces)
    copy.drop()
    copy.drop()
    assert list((replica / LOG).iterdir()) == []


@pytest.mark.parametrize("step", ["write", "check", "install"])
def test_a_failing_disk_is_named(
    replica: Path,
    pieces: list[SegmentPiece],
    files: Any,
    step: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failure = OSError(28, "No space left on device")
    if step == "write":
        copy = SegmentCopy(files, settings(replica), LOG, pieces[0])
        files.write_error = failure
        with pytest.raises(MessageQueueError, match="make room"):
            copy.take(pieces[0])
        return
    copy = copied(replica, pieces, files)
    if step == "check":
        files.sync_error = failure
        with pytest.raises(MessageQueueError, match="check the disk"):
            copy.check()
        return
    copy.check()

    def refuse(*_: Any) -> None:
        raise failure

    monkeypatch.setattr(files, "rename", refuse)
    with pytest.raises(MessageQueueError, match="check the disk"):
        copy.install()


async def test_a_compacted_log_is_cut_as_a_whole_or_not_at_all(
    replica: Path, pieces: list[SegmentPiece]
) -> None:
    copy = copied(replica, pieces)
    copy.check()
    copy.install()
    with pytest.raises(MessageQueueError, match="a compaction rewrote"):
        cut_log(SystemFiles(), settings(replica), LOG, 100)
    cut_log(SystemFiles(), settings(replica), LOG, 0)
    store = MessageStore(settings(replica))
    store.open()
    assert store.raw.ends()[LOG] == 0
    assert store.range(QUEUE) == (0, 0)
    assert store.segments(LOG) == []
    await put(store, "a")
    assert store.range(QUEUE) == (0, 1)
    await store.aclose()

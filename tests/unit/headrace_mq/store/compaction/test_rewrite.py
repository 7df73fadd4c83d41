"""One segment rewritten: what it leaves on the disk, whether it ends well or not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.store.compaction.latest_keys import LatestKeys
from headrace_mq.store.compaction.rewrite import (
    RewriteContext,
    Rewriter,
    RewriteRate,
    SegmentUnusable,
    Source,
    Stopped,
)
from headrace_mq.store.message_store import MessageStore
from headrace_mq.store.segment.segment import SyncFailed

QUEUE = QueueRef("t", 0)
NEEDED = RewriteContext(
    floors={}, remembered={}, drop_tombstones=False, cleaned_ms=7, epoch=3, now_ms=9
)


@pytest.fixture
async def source(open_store: Callable[..., MessageStore]) -> Source:
    """A sealed segment in which one key was written twice."""
    store = open_store(compact_segment_bytes=64 << 10)
    for number in range(2):
        columns = Columns(["a", f"b{number}"], [], [], [b"1", bytes(20_000)], [])
        store.append(encode_batch(QUEUE, columns, born_first_ms=1), retention="compact")
    large = encode_batch(QUEUE, Columns(["c"], [], [], [bytes(40_000)], []), born_first_ms=1)
    store.append(large, retention="compact")
    await store.durable()
    info = store.segments("compact")[0]
    await store.aclose()
    return Source(info.base, info.end, None, info.next_offsets)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "store" / "compact"


@pytest.fixture
def pace(clock: Any) -> RewriteRate:
    return RewriteRate(0, clock)


@pytest.fixture
def rewriter(files: Any, directory: Path, pace: RewriteRate) -> Rewriter:
    return Rewriter(files, directory, pace)


@pytest.fixture
def keys(rewriter: Rewriter, source: Source) -> LatestKeys:
    made = LatestKeys(1 << 20)
    assert rewriter.collect([source], made) == 1
    return made


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name.startswith("0" * 20))


def test_a_rewritten_segment_takes_the_place_of_the_old_one_with_its_index(
    rewriter: Rewriter, source: Source, keys: LatestKeys, directory: Path
) -> None:
    before = names(directory)
    assert rewriter.is_worth_it(source, keys, NEEDED)
    done = rewriter.rewrite([source], keys, NEEDED)
    assert (done.kept, done.removed) == (3, 1)
    assert done.bytes_after < done.bytes_before
    assert done.segment.compacted is not None
    assert done.segment.compacted[1:] == (source.covers, 7, 0, 1, 0)
    assert done.segment.path.name == before[-1]
    assert list(done.rows) == [QUEUE]
    assert names(directory) == before
    assert done.segment.path.stat().st_size == done.segment.file_bytes
    done.written.close()
    done.segment.close()
    again = source._replace(compacted=done.segment.compacted)
    assert not rewriter.is_worth_it(again, keys, NEEDED)


def test_memory_that_is_full_ends_the_noting_of_keys(rewriter: Rewriter, source: Source) -> None:
    assert rewriter.collect([source], LatestKeys(1)) == 0


def test_a_closing_store_leaves_everything_as_it_was(
    rewriter: Rewriter, source: Source, keys: LatestKeys, directory: Path, pace: RewriteRate
) -> None:
    before = names(directory)
    pace.stop.set()
    with pytest.raises(Stopped):
        rewriter.rewrite([source], keys, NEEDED)
    assert names(directory) == before


def test_a_failed_sync_of_the_new_file_leaves_everything_as_it_was(
    rewriter: Rewriter, source: Source, keys: LatestKeys, directory: Path, files: Any
) -> None:
    before = names(directory)
    files.sync_error = OSError(5, "Input/output error")
    with pytest.raises(OSError, match="Input/output"):
        rewriter.rewrite([source], keys, NEEDED)
    assert names(directory) == before


def test_a_failed_sync_of_the_directory_leaves_it_open_which_one_stands_there(
    rewriter: Rewriter, source: Source, keys: LatestKeys, files: Any
) -> None:
    files.directory_sync_error = OSError(5, "Input/output error")
    with pytest.raises(SyncFailed):
        rewriter.rewrite([source], keys, NEEDED)


@pytest.mark.parametrize("at", [20, 4_096 + 32 + 200])
def test_a_damaged_segment_is_left_as_it_is(
    rewriter: Rewriter, source: Source, keys: LatestKeys, directory: Path, at: int
) -> None:
    path = directory / f"{source.base:020d}.log"
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    before = names(directory)
    with pytest.raises(SegmentUnusable):
        rewriter.rewrite([source], keys, NEEDED)
    assert names(directory) == before
    assert path.read_bytes() == content


def test_a_pace_waits_until_what_was_read_is_due(clock: Any) -> None:
    pace = RewriteRate(1_000, clock)
    waited: list[float] = []
    pace.stop.wait = lambda timeout=None: bool(waited.append(timeout or 0))  # type: ignore[method-assign]  # no test waits
    pace.spend(500)
    clock.ms += 400
    pace.spend(0)
    clock.ms += 100
    pace.spend(0)
    assert waited == [0.5, 0.1]


def test_a_pace_without_a_rate_never_waits(clock: Any) -> None:
    pace = RewriteRate(0, clock)
    pace.spend(1 << 40)
    pace.stop.set()
    with pytest.raises(Stopped):
        pace.spend(1)

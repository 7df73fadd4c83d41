"""What stands beside a segment is compared with it, to the entry."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace_mq._runtime.files import SystemFiles
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.store.check.index_inspection import Flaw, index_flaw, indexed_end, keys_flaw
from headrace_mq.store.check.inspection import check
from headrace_mq.store.check.repair import repair
from headrace_mq.store.index.segment_index import SegmentIndex
from headrace_mq.store.keys.key_file import KeyFile
from headrace_mq.store.message_store import MessageStore
from headrace_mq.store.segment.segment import SEGMENT_HEADER_BYTES, Segment

OpenStore = Callable[..., MessageStore]


@pytest.fixture
async def filled(open_store: OpenStore, tmp_path: Path) -> Path:
    """Two segments with indexes and keys; returns the first one."""
    store = open_store()
    for log in store._logs.values():
        log.keys._block_bytes = log.index._block_bytes = 10_000
    for n in range(150):
        columns = Columns([f"key-{n % 7}", ""], [], [], [b"x" * 400] * 2, [])
        batch = encode_batch(QueueRef("orders", n % 2), columns, born_first_ms=0)
        store.append(batch, retention="forever")
        await store.durable()
    log = store._logs["forever"]
    while log.keys.step(log.end, 4_000) or log.keys.due(log.synced) is not None:
        log.keys.write_due(log.synced)
    await store.aclose()
    segments = sorted((tmp_path / "store/forever").glob("*.log"))
    assert len(segments) == 3
    return segments[0]


def opened(path: Path) -> tuple[Segment, int]:
    size = path.stat().st_size
    segment = Segment.open(SystemFiles(), path, log="forever", file_bytes=size)
    following = min(int(p.stem) for p in path.parent.glob("*.log") if p.stem > path.stem)
    return segment, following


def spoil(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def flaws(path: Path) -> tuple[Flaw | None, Flaw | None]:
    segment, end = opened(path)
    try:
        return tuple(
            look(SystemFiles(), segment, "forever", end) for look in (index_flaw, keys_flaw)
        )  # type: ignore[return-value]  # of two looks
    finally:
        segment.close()


async def test_an_index_that_fits_has_no_flaw_and_stays_unchanged(filled: Path) -> None:
    before = {path: path.read_bytes() for path in filled.parent.iterdir()}
    assert flaws(filled) == (None, None)
    segment, end = opened(filled)
    assert indexed_end(SystemFiles(), segment, "forever") == end
    segment.close()
    assert {path: path.read_bytes() for path in filled.parent.iterdir()} == before


@pytest.mark.parametrize(("suffix", "which"), [(".index", 0), (".keys", 1)])
async def test_every_flipped_byte_is_seen_and_nothing_is_changed(
    filled: Path, suffix: str, which: int
) -> None:
    chance = random.Random(5)
    path = filled.with_suffix(suffix)
    good = path.read_bytes()
    for _ in range(60):
        at = chance.randrange(len(good))
        bad = good[:at] + bytes([good[at] ^ 1 << chance.randrange(8)]) + good[at + 1 :]
        path.write_bytes(bad)
        flaw = flaws(filled)[which]
        assert flaw is not None, at
        assert not flaw.believed
        assert path.read_bytes() == bad
    path.write_bytes(good[: len(good) // 2])
    assert flaws(filled)[which] is not None


async def test_an_index_that_is_sound_and_wrong_is_damage_and_repaired(
    filled: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_page = SegmentIndex.read_page

    def wrong(self: SegmentIndex, ref: Any) -> Any:
        page = read_page(self, ref)
        page._lengths[len(page) // 2] += 1
        return page

    with monkeypatch.context() as patched:
        patched.setattr(SegmentIndex, "read_page", wrong)
        flaw = flaws(filled)[0]
        assert flaw is not None
        assert flaw.believed
        directory = filled.parent.parent
        report = check(directory, metadata={})
        assert report.status == "damaged"
        done = repair(directory, metadata={}, apply=True)
        assert {step.becomes for step in done.steps} == {
            f"forever/{path.stem}.index.damaged" for path in filled.parent.glob("*.log")
        }
    store = open_store()
    assert store.range(QueueRef("orders", 0)) == (0, 150)


@pytest.mark.parametrize("change", ["missing", "other", "more"])
async def test_keys_that_are_sound_and_wrong_are_damage(
    filled: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    entries = KeyFile.entries

    def wrong(self: KeyFile, block: Any, counts: Any) -> Any:
        first, *others = sorted(entries(self, block, counts))
        match change:
            case "missing":
                return iter(others)
            case "other":
                return iter([(first[0], first[1] ^ 1), *others])
            case _:
                return iter([(first[0] + 1, first[1]), first, *others])

    monkeypatch.setattr(KeyFile, "entries", wrong)
    flaw = flaws(filled)[1]
    assert flaw is not None
    assert flaw.believed


async def test_entries_of_batches_that_were_damaged_since_are_no_flaw(filled: Path) -> None:
    segment, end = opened(filled)
    index = SegmentIndex(SystemFiles(), segment, "forever")
    blocks = [block for block, _ in index.load(end, keep=True) if index.accept(block) is None]
    index.close()
    segment.close()
    spoil(filled, SEGMENT_HEADER_BYTES + (blocks[1].start + blocks[1].end) // 2)
    assert flaws(filled) == (None, None)


async def test_a_check_tells_of_both_files_and_what_becomes_of_them(filled: Path) -> None:
    for suffix in (".index", ".keys"):
        path = filled.with_suffix(suffix)
        path.write_bytes(path.read_bytes()[:-1])
    report = check(filled.parent.parent, metadata={})
    assert report.status == "clean"
    assert [(one.file, one.kind) for one in report.findings] == [
        (f"forever/{filled.stem}{suffix}", "stale") for suffix in (".index", ".keys")
    ]
    assert all("makes it again by itself" in one.reason for one in report.findings)

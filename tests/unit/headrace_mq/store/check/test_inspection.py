"""What a check says of a directory: nothing of a sound one, everything of a damaged one."""

import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import google_crc32c
import msgspec
import pytest

from headrace_mq._runtime.files import SystemFiles
from headrace_mq.broker.metadata import METADATA, topics_file
from headrace_mq.broker.topics.kept import KeptTopics
from headrace_mq.errors import MessageQueueError
from headrace_mq.store.check.inspection import CHECKPOINT, ReadOnlyFiles, Report, check
from headrace_mq.store.log.clean_end import COPY_NAME
from headrace_mq.store.replication.epochs import EpochFile
from headrace_mq.store.segment.checkpoint import read_checkpoint, write_checkpoint
from headrace_mq.store.segment.segment import SEGMENT_HEADER_BYTES

Fill = Callable[..., Awaitable[Path]]
BODY = b"x" * 9_000


def checked(directory: Path) -> Report:
    return check(directory, metadata=METADATA)


def contents(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in directory.rglob("*")
        if path.is_file()
    }


def flip(path: Path, at: int, bit: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ (1 << bit)]))


def findings(directory: Path) -> list[tuple[str, str]]:
    return [(one.file, one.kind) for one in checked(directory).findings]


@pytest.fixture
def fill(open_store: Any, make_batch: Any, tmp_path: Path) -> Fill:
    """Fills a store with batches of about 9 kB: seven to a segment, two segments and a bit."""

    async def filled(batches: int = 16) -> Path:
        store = open_store()
        for number in range(batches):
            store.append(make_batch(BODY + b"%d" % number), retention="forever")
            await store.durable()
        await store.aclose()
        topics_file(tmp_path / "store").write(KeptTopics({}))
        return tmp_path / "store"

    return filled


async def test_a_sound_store_is_clean_and_nothing_in_it_is_changed(fill: Fill) -> None:
    directory = await fill()
    before = contents(directory)
    report = checked(directory)
    assert (report.status, report.findings) == ("clean", [])
    assert contents(directory) == before
    segments = [one for one in report.files if one.kind == "segment"]
    assert [one.batches for one in segments] == [6, 6, 4]
    (queue,) = report.queues
    assert (queue.topic, queue.log, queue.first, queue.next) == ("orders", "forever", 0, 16)
    kinds = [one.kind for one in report.files if one.kind not in {"segment", "index"}]
    assert kinds == ["checkpoint", "checkpoint", "metadata"]


async def test_an_empty_store_is_clean(open_store: Any, tmp_path: Path) -> None:
    await open_store().aclose()
    assert checked(tmp_path / "store").status == "clean"


async def test_a_directory_without_a_store_cannot_be_checked(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "missing"):
        with pytest.raises(MessageQueueError, match=str(directory)):
            checked(directory)


async def test_a_directory_in_use_cannot_be_checked(open_store: Any, tmp_path: Path) -> None:
    open_store()
    with pytest.raises(MessageQueueError, match="a broker runs in"):
        checked(tmp_path / "store")


async def test_a_copy_without_the_lock_file_can_be_checked(fill: Fill) -> None:
    directory = await fill()
    (directory / "lock").unlink()
    assert checked(directory).status == "clean"
    assert not (directory / "lock").exists()


async def test_every_flipped_bit_of_a_sealed_segment_is_found(fill: Fill) -> None:
    directory = await fill()
    first, second, _ = sorted((directory / "forever").glob("*.log"))
    used = SEGMENT_HEADER_BYTES + int(second.stem)
    chance = random.Random(7)
    for _ in range(60):
        at, bit = chance.randrange(used), chance.randrange(8)
        flip(first, at, bit)
        report = checked(directory)
        assert report.status in {"damaged", "newer"}, (at, bit)
        assert {one.file for one in report.findings if one.is_damage or one.kind == "newer"} == {
            f"forever/{first.name}"
        }
        flip(first, at, bit)
    assert checked(directory).status == "clean"


async def test_a_damaged_batch_is_named_with_its_messages(fill: Fill) -> None:
    directory = await fill()
    first = min((directory / "forever").glob("*.log"))
    flip(first, SEGMENT_HEADER_BYTES + 5_000)
    (finding,) = checked(directory).findings
    assert (finding.queue, finding.base_offset, finding.records) == ("orders/0", 0, 1)
    assert finding.remedy == ""
    assert checked(directory).queues[0].records == 15


async def test_a_torn_end_is_no_damage(fill: Fill, make_batch: Any) -> None:
    directory = await fill()
    (directory / CHECKPOINT).unlink()
    last = max((directory / "forever").glob("*.log"))
    end = checked(directory).ends["forever"] - int(last.stem) + SEGMENT_HEADER_BYTES
    with last.open("r+b") as file:
        file.seek(end)
        file.write(bytes(make_batch(BODY))[:700])
    report = checked(directory)
    assert report.status == "clean"
    assert [one.kind for one in report.findings] == ["torn"]
    assert report.queues[0].next == 16


async def test_an_end_that_was_durable_and_is_gone_is_damage(fill: Fill) -> None:
    directory = await fill()
    last = max((directory / "forever").glob("*.log"))
    with last.open("r+b") as file:
        file.truncate(SEGMENT_HEADER_BYTES + 10_000)
    assert checked(directory).status == "damaged"


async def test_a_missing_segment_is_missed(fill: Fill) -> None:
    directory = await fill()
    first, second, third = sorted((directory / "forever").glob("*.log"))
    second.rename(directory / "away")
    assert (f"forever/{first.name}", "missing") in findings(directory)
    (directory / "away").rename(second)
    third.unlink()
    # What the checkpoint knows to have been there tells of the last one.
    assert (CHECKPOINT, "missing") in findings(directory)


async def test_segments_below_the_start_of_the_log_are_no_loss(fill: Fill) -> None:
    directory = await fill()
    first, second, _ = sorted((directory / "forever").glob("*.log"))
    payload = read_checkpoint(_system(), directory / CHECKPOINT)
    assert payload is not None
    logs, queues = msgspec.msgpack.decode(payload)[:2]
    start = {"forever": int(second.stem)}
    content = msgspec.msgpack.encode([logs, queues, start])
    write_checkpoint(_system(), directory / CHECKPOINT, content)
    # Their deletion was written down and had not come to an end.
    assert (f"forever/{first.name}", "unfinished") in findings(directory)
    assert {kind for _, kind in findings(directory)} == {"unfinished"}
    first.unlink()
    assert checked(directory).status == "clean"
    assert checked(directory).queues[0].first == 6
    second.unlink()
    assert "missing" in {kind for _, kind in findings(directory)}


async def test_a_missing_first_segment_is_missed(fill: Fill) -> None:
    directory = await fill()
    min((directory / "forever").glob("*.log")).unlink()
    assert checked(directory).status == "damaged"


async def test_a_segment_in_a_wrong_place_is_found(fill: Fill) -> None:
    directory = await fill()
    first = min((directory / "forever").glob("*.log"))
    (directory / "transient" / first.name).write_bytes(first.read_bytes())
    assert (f"transient/{first.name}", "damaged") in findings(directory)


@pytest.mark.parametrize("file", [CHECKPOINT, COPY_NAME, "metadata/topics.json"])
async def test_every_flipped_byte_of_a_small_file_is_found(fill: Fill, file: str) -> None:
    directory = await fill(1)
    path = directory / file
    for at in range(path.stat().st_size):
        flip(path, at)
        report = checked(directory)
        assert report.status == "damaged"
        assert [one.file for one in report.findings] == [file]
        flip(path, at)


async def test_a_whole_file_of_other_content_is_damaged(fill: Fill) -> None:
    directory = await fill(1)
    for file, content in [("metadata/topics.json", b'{"topics": 5}'), (CHECKPOINT, b"\xc1")]:
        write_checkpoint(_system(), directory / file, content)
        assert (file, "damaged") in findings(directory)


async def test_a_newer_file_is_no_damage(fill: Fill) -> None:
    directory = await fill(1)
    path = directory / CHECKPOINT
    payload = read_checkpoint(ReadOnlyFiles(), path)
    assert payload is not None
    content = bytearray(path.read_bytes())
    content[8] = 99
    content[12:16] = int(google_crc32c.value(bytes(content[:12] + content[16:]))).to_bytes(
        4, "little"
    )
    path.write_bytes(content)
    assert (checked(directory).status, findings(directory)) == ("newer", [(CHECKPOINT, "newer")])


async def test_other_files_are_reported_and_skipped(fill: Fill) -> None:
    directory = await fill(1)
    for file in ("note.txt", "forever/x.log.new", "metadata/topics.json.damaged", "forever/1.txt"):
        (directory / file).write_bytes(b"")
    (directory / "forever/00000000000000000000.index").write_bytes(b"12345")
    assert sorted(findings(directory)) == [
        ("forever/00000000000000000000.index", "stale"),
        ("forever/1.txt", "unknown"),
        ("forever/x.log.new", "unfinished"),
        ("metadata/topics.json.damaged", "set aside"),
        ("note.txt", "unknown"),
    ]
    report = checked(directory)
    assert report.status == "clean"
    assert [one.bytes for one in report.files if one.kind == "index"] == [5]


async def test_the_epochs_of_a_broker_of_a_group_are_no_strange_file(fill: Fill) -> None:
    directory = await fill()
    EpochFile(SystemFiles(), directory).begin("forever", 2, 0)
    assert findings(directory) == []


async def test_a_report_can_be_written_as_json(fill: Fill) -> None:
    report = checked(await fill(1))
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report


def test_files_that_are_only_read_cannot_be_made_or_written(tmp_path: Path) -> None:
    files = ReadOnlyFiles()
    with pytest.raises(FileNotFoundError):
        files.open(tmp_path / "new", create=True)
    (tmp_path / "old").write_bytes(b"old")
    fd = files.open(tmp_path / "old")
    try:
        with pytest.raises(OSError, match="Bad file descriptor"):
            files.write(fd, 0, [b"x"])
    finally:
        os.close(fd)


def _system() -> Any:
    from headrace_mq._runtime.files import SystemFiles

    return SystemFiles()

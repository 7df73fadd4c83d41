"""What a repair does to a damaged directory, and that the store then opens again."""

import io
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace_mq._runtime.files import SystemFiles
from headrace_mq.archive.claim import KeptArchive
from headrace_mq.broker.files.epoch import KeptBroker
from headrace_mq.broker.files.kept_group import KeptMember
from headrace_mq.broker.groups.offsets import KeptOffsets
from headrace_mq.broker.metadata import (
    METADATA,
    archive_file,
    broker_file,
    group_file,
    limits_file,
    offsets_file,
    producers_file,
    releases_file,
    schedule_file,
    timeline_file,
    topics_file,
    transactions_file,
    users_file,
)
from headrace_mq.broker.peers.producers import KeptProducers
from headrace_mq.broker.quotas.limits import KeptLimits
from headrace_mq.broker.schedule.entries import KeptSchedule
from headrace_mq.broker.topics.kept import KeptTopic, KeptTopics
from headrace_mq.broker.topics.releases import KeptReleases
from headrace_mq.broker.transactions.undecided import KeptTransactions
from headrace_mq.broker.users.user_book import KeptUsers
from headrace_mq.errors import DataCorrupt, MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import decode_records, split_batches
from headrace_mq.store.check.inspection import CHECKPOINT, check
from headrace_mq.store.check.repair import Repair, export, repair
from headrace_mq.store.log.clean_end import COPY_NAME
from headrace_mq.store.retention.timeline import KeptTimeline
from headrace_mq.store.segment.checkpoint import read_checkpoint
from headrace_mq.store.segment.segment import SEGMENT_HEADER_BYTES

Fill = Callable[..., Awaitable[Path]]
QUEUE = QueueRef("orders", 2)
BODY = b"x" * 9_000


@pytest.fixture
def fill(open_store: Any, make_batch: Any, tmp_path: Path) -> Fill:
    async def filled(batches: int = 16) -> Path:
        store = open_store()
        for number in range(batches):
            store.append(make_batch(BODY + b"%d" % number, queue=2), retention="forever")
            await store.durable()
        await store.aclose()
        directory = tmp_path / "store"
        topics_file(directory).write(KeptTopics({"orders": KeptTopic(3, "forever")}))
        offsets_file(directory).write(KeptOffsets({}))
        broker_file(directory).write(KeptBroker(1))
        producers_file(directory).write(KeptProducers([]))
        users_file(directory).write(KeptUsers(b"secret"))
        limits_file(directory).write(KeptLimits())
        releases_file(directory).write(KeptReleases())
        archive_file(directory).write(KeptArchive("a", begun=False))
        group_file(directory).write(KeptMember("disk"))
        schedule_file(directory).write(KeptSchedule(0, [], [], None))
        timeline_file(directory).write(KeptTimeline(0, 0, 0, 0, ""))
        transactions_file(directory).write(KeptTransactions(0, [], [], None))
        return directory

    return filled


def mended(directory: Path, *, apply: bool = True) -> Repair:
    return repair(directory, metadata=METADATA, apply=apply)


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def spoil(path: Path, at: int = -1) -> bytes:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    return bytes(content)


async def test_a_sound_store_needs_nothing(fill: Fill) -> None:
    directory = await fill()
    before = contents(directory)
    done = mended(directory)
    assert (done.steps, done.applied, done.report.status) == ([], True, "clean")
    assert contents(directory) == before


async def test_a_dry_run_changes_nothing(fill: Fill) -> None:
    directory = await fill()
    spoil(directory / "metadata/topics.json")
    before = contents(directory)
    planned = mended(directory, apply=False)
    assert [step.file for step in planned.steps] == ["metadata/topics.json"] * 2
    assert not planned.applied
    assert contents(directory) == before
    assert mended(directory).steps == planned.steps


@pytest.mark.parametrize(
    "file", [CHECKPOINT, *METADATA],
)  # fmt: skip
async def test_a_damaged_small_file_is_moved_away_and_keeps_its_bytes(
    fill: Fill, open_store: Any, file: str
) -> None:
    directory = await fill()
    spoiled = spoil(directory / file)
    done = mended(directory)
    assert (directory / f"{file}.damaged").read_bytes() == spoiled
    assert all(step.reason for step in done.steps)
    assert check(directory, metadata=METADATA).status == "clean"
    assert open_store().range(QUEUE) == (0, 16)


async def test_topics_are_made_again_from_the_log(fill: Fill) -> None:
    directory = await fill()
    spoil(directory / "metadata/topics.json")
    mended(directory)
    assert topics_file(directory).read() == KeptTopics({"orders": KeptTopic(3, "forever")})


async def test_no_file_that_was_moved_away_is_overwritten(fill: Fill) -> None:
    directory = await fill()
    first = spoil(directory / CHECKPOINT)
    mended(directory)
    (directory / CHECKPOINT).write_bytes(b"worse")
    mended(directory)
    assert (directory / f"{CHECKPOINT}.damaged").read_bytes() == first
    assert (directory / f"{CHECKPOINT}.damaged-2").read_bytes() == b"worse"


async def test_a_lost_last_segment_lets_the_store_open_and_gives_no_offset_twice(
    fill: Fill, open_store: Any, make_batch: Any
) -> None:
    directory = await fill()
    max((directory / "forever").glob("*.log")).unlink()
    with pytest.raises(DataCorrupt, match="segment file is missing"):
        open_store()
    done = mended(directory)
    assert [(step.file, bool(step.becomes)) for step in done.steps] == [
        (CHECKPOINT, True),
        (CHECKPOINT, False),
        (COPY_NAME, False),
    ]
    assert check(directory, metadata=METADATA).status == "clean"
    store = open_store()
    assert store.range(QUEUE) == (0, 16)
    assert store.append(make_batch(b"new", queue=2), retention="forever").base_offset == 16


async def test_a_last_segment_without_anything_readable_is_moved_away(
    fill: Fill, open_store: Any
) -> None:
    directory = await fill()
    for name in (CHECKPOINT, COPY_NAME):
        (directory / name).unlink()
    last = max((directory / "forever").glob("*.log"))
    last.write_bytes(b"\xff" * last.stat().st_size)
    with pytest.raises(DataCorrupt, match="holds nothing"):
        open_store()
    mended(directory)
    assert last.with_name(f"{last.name}.damaged").exists()
    assert check(directory, metadata=METADATA).status == "clean"
    assert open_store().range(QUEUE) == (0, 12)


async def test_a_segment_of_another_log_is_moved_away(fill: Fill, open_store: Any) -> None:
    directory = await fill()
    first = min((directory / "forever").glob("*.log"))
    (directory / "transient" / first.name).write_bytes(first.read_bytes())
    with pytest.raises(DataCorrupt, match="move the file back"):
        open_store()
    mended(directory)
    assert open_store().range(QUEUE) == (0, 16)


async def test_a_damaged_batch_stays_where_it_is_and_its_indexes_go(
    fill: Fill, open_store: Any
) -> None:
    directory = await fill()
    first, second, _ = sorted((directory / "forever").glob("*.log"))
    for segment in (first, second):
        segment.with_suffix(".index").write_bytes(b"old")
    spoil(first, SEGMENT_HEADER_BYTES + 5_000)
    done = mended(directory)
    assert [step.file for step in done.steps] == [f"forever/{first.stem}.index"]
    assert first.exists()
    assert second.with_suffix(".index").exists()
    # The bytes stay damaged, and a broker leaves them out.
    assert check(directory, metadata=METADATA).status == "damaged"
    second.with_suffix(".index").unlink()
    store = open_store()
    (batch,) = store.read(QUEUE, 1, 1)
    assert decode_records(batch)[0].offset == 1


async def test_a_running_broker_keeps_repairs_out(open_store: Any, tmp_path: Path) -> None:
    open_store()
    with pytest.raises(MessageQueueError, match="a broker runs"):
        mended(tmp_path / "store")


async def test_an_export_holds_every_sound_batch_of_the_damaged_segments(fill: Fill) -> None:
    directory = await fill()
    first = min((directory / "forever").glob("*.log"))
    spoil(first, SEGMENT_HEADER_BYTES + 5_000)
    before, target = contents(directory), io.BytesIO()
    done = export(directory, target)
    assert (done.segments, done.batches, done.records) == ([f"forever/{first.name}"], 5, 5)
    records = [r for view in split_batches(target.getvalue()) for r in decode_records(view)]
    assert [record.offset for record in records] == [1, 2, 3, 4, 5]
    assert contents(directory) == before


async def test_an_export_of_a_segment_in_a_wrong_place_takes_nothing(fill: Fill) -> None:
    directory = await fill()
    first = min((directory / "forever").glob("*.log"))
    (directory / "transient" / first.name).write_bytes(first.read_bytes())
    target = io.BytesIO()
    assert export(directory, target).batches == 0
    assert target.getvalue() == b""


async def test_the_shortened_checkpoint_keeps_all_it_said_of_queues(fill: Fill) -> None:
    directory = await fill()
    kept = read_checkpoint(SystemFiles(), directory / CHECKPOINT)
    max((directory / "forever").glob("*.log")).unlink()
    mended(directory)
    found = read_checkpoint(SystemFiles(), directory / CHECKPOINT)
    assert kept is not None
    assert found is not None
    logs, *others = msgspec.msgpack.decode(found)
    assert others == msgspec.msgpack.decode(kept)[1:]
    assert logs["forever"] < msgspec.msgpack.decode(kept)[0]["forever"]

"""A broker whose disk takes no writes serves readers, and everybody once the disk takes them again."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from headrace_mq._runtime.files import SystemFiles
from headrace_mq.broker.metadata import broker_file
from headrace_mq.broker.reader_mode import ROOM_BYTES, ReaderMode, refusal_of
from headrace_mq.broker.server import Broker
from headrace_mq.errors import DataCorrupt, MessageQueueError, ResponseCode
from headrace_mq.protocol.administration import BrokerStatus
from headrace_mq.protocol.batch import decode_records, split_batches
from headrace_mq.protocol.bodies import (
    CommitOffsets,
    CommittedOffset,
    Fetch,
    FetchFrom,
    GetOffsets,
    OffsetsAnswer,
    decode,
    decode_fetch_answer,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.settings import BrokerSettings
from headrace_mq.store.segment.segment import SEGMENT_HEADER_BYTES, SyncFailed

QUICK = {"disk_look_ms": 10, "disk_refuse_percent": 100, "disk_delete_percent": 100}


class Files(SystemFiles):
    """The machine's, on a disk that refuses with an error while it has one."""

    def __init__(self) -> None:
        self.refusal = 0
        self.made: list[Path] = []

    def _check(self) -> None:
        if self.refusal:
            raise OSError(self.refusal, os.strerror(self.refusal))

    def open(self, path: Path, *, create: bool = False) -> int:
        if create:
            self._check()
            self.made.append(path)
        return super().open(path, create=create)

    def write(self, fd: int, at: int, parts: Any) -> int:
        self._check()
        return super().write(fd, at, parts)

    def allocate(self, fd: int, length: int) -> None:
        self._check()
        super().allocate(fd, length)

    def truncate(self, fd: int, length: int) -> None:
        self._check()
        super().truncate(fd, length)


@pytest.fixture
def files() -> Files:
    return Files()


@pytest.fixture
async def start_on(
    settings: Callable[..., BrokerSettings], files: Files
) -> AsyncIterator[Callable[[], Any]]:
    brokers: list[Broker] = []

    async def start() -> Broker:
        broker = Broker(settings(stored=QUICK, offsets_flush_ms=10), files=files)
        await broker.start()
        brokers.append(broker)
        return broker

    yield start
    for broker in brokers:
        await broker.aclose()


async def bodies_of(client: Any) -> list[bytes]:
    request = Fetch([FetchFrom("t", 0, 0)], 1 << 20, 0)
    _, batches = decode_fetch_answer(await client.ask(RequestCode.FETCH, request))
    return [record.body for view in split_batches(batches) for record in decode_records(view)]


async def committed(client: Any) -> int:
    body = await client.ask(RequestCode.GET_OFFSETS, GetOffsets("g", ["t"]))
    return decode(OffsetsAnswer, body).offsets[0].offset


def tail(store: Path, torn: bytes) -> Path:
    """Writes bytes of a torn batch behind the last one; returns the segment's file."""
    (segment,) = (store / "forever").glob("*.log")
    content = segment.read_bytes().rstrip(b"\0")
    with segment.open("r+b") as file:
        file.seek(max(len(content), SEGMENT_HEADER_BYTES))
        file.write(torn)
    return segment


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
async def test_readers_get_everything_and_senders_the_sentence_until_the_disk_takes_writes(
    start_on: Any, files: Files, connect: Any, batch: Any, until: Any, tmp_path: Path, number: int
) -> None:
    first = await start_on()
    client = await connect(first)
    await client.create("t", 1, "forever")
    await client.produce(batch("t", 0, b"a", b"b"))
    await client.ask(
        RequestCode.COMMIT_OFFSETS, CommitOffsets("g", "", 0, [CommittedOffset("t", 0, 1)])
    )
    await first.aclose()
    segment = tail(tmp_path / "store", b"HRB torn")
    before = {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()}

    files.refusal = number
    broker = await start_on()
    client = await connect(broker)
    assert await bodies_of(client) == [b"a", b"b"]
    assert await committed(client) == 1
    (refused,) = (await client.produce(batch("t", 0, b"c"))).results
    assert refused.code == ResponseCode.STORE_FULL
    assert "serves readers only" in refused.sentence
    assert "starts again by itself" in refused.sentence
    status = decode(BrokerStatus, await client.ask(RequestCode.BROKER_STATUS))
    assert status.refuses == refused.sentence
    assert {path: path.read_bytes() for path in before} == before
    # What a group finishes meanwhile is not lost when the broker starts again.
    await client.ask(
        RequestCode.COMMIT_OFFSETS, CommitOffsets("g", "", 0, [CommittedOffset("t", 0, 2)])
    )

    files.refusal = 0
    assert await client.closed()
    await until(lambda: broker._reopening is None)
    client = await connect(broker)
    assert await committed(client) == 2
    assert not (await client.produce(batch("t", 0, b"c"))).results[0].code
    assert await bodies_of(client) == [b"a", b"b", b"c"]
    assert b"HRB torn" not in segment.read_bytes()
    status = decode(BrokerStatus, await client.ask(RequestCode.BROKER_STATUS))
    assert not status.refuses


async def test_without_a_store_of_an_earlier_start_the_disk_s_error_stands(
    start_on: Any, files: Files, tmp_path: Path
) -> None:
    files.refusal = errno.ENOSPC
    with pytest.raises(MessageQueueError, match="No space left"):
        await start_on()
    assert not ReaderMode.is_for(tmp_path / "store", files)


async def test_a_broker_that_cannot_start_again_goes_back_to_its_readers(
    start_on: Any, files: Files, connect: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await start_on()).aclose()
    files.refusal = errno.ENOSPC
    broker = await start_on()
    client = await connect(broker)
    address, modes = broker.address, {broker._mode}
    # The disk says that there is room, and has none when the broker wants it.
    monkeypatch.setattr(ReaderMode, "has_room", lambda mode: len(modes) == 1)
    assert await client.closed()
    await until(lambda: broker._reopening is None)
    modes.add(broker._mode)
    assert len(modes) == 2
    assert broker.address == address
    assert (await (await connect(broker, "")).hello()).epoch == 2


async def test_a_stop_while_the_broker_starts_again_stops_it(
    start_on: Any, files: Files, connect: Any, until: Any
) -> None:
    await (await start_on()).aclose()
    files.refusal = errno.ENOSPC
    broker = await start_on()
    files.refusal = 0
    await until(lambda: broker._reopening is not None)
    await asyncio.wait_for(broker.aclose(), 10)
    with pytest.raises(ConnectionRefusedError):
        await connect(broker)


def test_room_is_what_a_start_needs_in_the_very_directory(tmp_path: Path, files: Files) -> None:
    directory = tmp_path / "store"
    directory.mkdir()
    broker_file(directory, files)._make_directories(directory / "metadata")
    (directory / "metadata" / "offsets.json").write_bytes(bytes(5))
    asked: list[int] = []

    class Disk:
        def used_percent(self, directory: Path) -> float:
            if not directory.exists():
                raise FileNotFoundError
            return 100.0

    class Counted(Files):
        def allocate(self, fd: int, length: int) -> None:
            asked.append(length)
            super().allocate(fd, length)

    refusal = OSError(errno.EROFS, "Read-only file system")
    mode = ReaderMode(directory, disk=Disk(), files=Counted(), refusal=refusal, look_ms=7)
    assert "mount it for writing" in mode.sentence
    assert "within 7 ms" in mode.sentence
    assert mode.has_room()
    assert asked == [ROOM_BYTES + 5]
    assert sorted(path.name for path in directory.iterdir()) == ["metadata"]
    directory.rename(tmp_path / "gone")
    assert not mode.has_room()


def raised(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


FULL = OSError(errno.ENOSPC, "full")


@pytest.mark.parametrize(
    ("error", "refusal"),
    [
        (FULL, FULL),
        (raised(MessageQueueError("x"), FULL), FULL),
        (raised(MessageQueueError("x"), raised(ValueError(), FULL)), FULL),
        (raised(MessageQueueError("x"), raised(SyncFailed("x"), FULL)), None),
        (raised(MessageQueueError("x"), OSError(errno.EACCES, "no rights")), None),
        (DataCorrupt("x"), None),
    ],
)
def test_only_a_disk_that_takes_no_writes_is_a_reason(
    error: BaseException, refusal: OSError | None
) -> None:
    assert refusal_of(error) is refusal

import asyncio
from pathlib import Path

import google_crc32c
import pytest

from headrace_mq._runtime.files import SystemFiles
from headrace_mq.client.broadcast.local_offsets import LocalOffsets
from headrace_mq.client.fetch.assigned_queues import AssignedQueues
from headrace_mq.client.fetch.process_queue import WindowLimits
from headrace_mq.client.fetch.start_offsets import KeptOffset
from headrace_mq.errors import DataCorrupt, FormatTooNew, MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.settings import ConsumerSettings

A, B = QueueRef("t", 0), QueueRef("u", 1)


class FullDisk(SystemFiles):
    """Fails every sync while it is full."""

    full = False

    def sync(self, fd: int) -> int:
        if self.full:
            raise OSError(28, "No space left on device")
        return super().sync(fd)


class Kept:
    """The offsets of a consumer that stands at A 3 and B 5."""

    def __init__(self, path: Path, group: str = "g", **settings: int) -> None:
        self.files = FullDisk()
        self.shares = AssignedQueues(WindowLimits(9, 9, 9))
        self.shares.assign([A, B])
        self.shares.start(A, 3, known=False, committed=-1)
        self.shares.start(B, 5, known=False, committed=-1)
        self.offsets = LocalOffsets(
            path, self.shares, group=group, settings=ConsumerSettings(**settings), files=self.files
        )


def read(path: Path) -> bytes:
    return path.read_bytes()


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def exists(path: Path) -> bool:
    return path.exists()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "offsets"


async def test_committed_offsets_are_there_after_a_restart(path: Path) -> None:
    kept = Kept(path)
    kept.offsets.open()
    assert await kept.offsets.load([A, B]) == {}
    await kept.offsets.commit()
    kept.shares.seek(A, 4)
    await kept.offsets.commit()
    await kept.offsets.commit()
    kept.offsets.close()
    again = Kept(path)
    again.offsets.open()
    assert await again.offsets.load([A, B, QueueRef("t", 1)]) == {
        A: KeptOffset(4),
        B: KeptOffset(5),
    }
    again.offsets.close()


async def test_a_failed_write_is_raised_leaves_the_old_file_and_is_repeated(path: Path) -> None:
    kept = Kept(path)
    kept.offsets.open()
    await kept.offsets.commit()
    before = read(path)
    kept.shares.seek(A, 4)
    kept.files.full = True
    with pytest.raises(MessageQueueError, match="No space left"):
        await kept.offsets.commit()
    assert read(path) == before
    kept.files.full = False
    await kept.offsets.commit()
    assert await kept.offsets.load([A]) == {A: KeptOffset(4)}
    kept.offsets.close()


async def test_every_damaged_byte_is_noticed_and_the_sentence_says_what_to_do(path: Path) -> None:
    kept = Kept(path)
    kept.offsets.open()
    await kept.offsets.commit()
    kept.offsets.close()
    sound = read(path)
    for at in range(len(sound)):
        write(path, sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
        with pytest.raises(MessageQueueError):
            kept.offsets.open()
    write(path, sound[:-1])
    with pytest.raises(DataCorrupt, match="delete it to begin"):
        kept.offsets.open()


async def test_the_file_is_two_lines_of_text(path: Path) -> None:
    kept = Kept(path)
    kept.offsets.open()
    await kept.offsets.commit()
    kept.offsets.close()
    head, content, rest = read(path).split(b"\n")
    assert content == b'{"group":"g","topics":{"t":{"0":3},"u":{"1":5}}}'
    assert head == b"headrace offsets 1 %08x" % google_crc32c.value(content)
    assert rest == b""


def test_a_file_of_a_newer_version_is_not_read(path: Path) -> None:
    write(path, b"headrace offsets 2 whatever\n")
    with pytest.raises(FormatTooNew, match="format 2"):
        Kept(path).offsets.open()


async def test_the_file_of_another_group_is_refused(path: Path) -> None:
    kept = Kept(path)
    kept.offsets.open()
    await kept.offsets.commit()
    kept.offsets.close()
    with pytest.raises(MessageQueueError, match="group 'g', not of 'other'"):
        Kept(path, "other").offsets.open()


def test_a_file_that_another_consumer_uses_is_refused(path: Path) -> None:
    first, second = Kept(path).offsets, Kept(path).offsets
    first.open()
    with pytest.raises(MessageQueueError, match="another consumer"):
        second.open()
    first.close()
    second.open()
    second.close()


def test_a_folder_that_does_not_exist_is_said(tmp_path: Path) -> None:
    with pytest.raises(MessageQueueError, match="check that its folder exists"):
        Kept(tmp_path / "missing" / "offsets").offsets.open()


async def test_the_timer_writes_and_goes_on_after_failures(path: Path) -> None:
    kept = Kept(path, commit_interval_ms=1)
    kept.offsets.open()
    kept.files.full = True
    task = asyncio.create_task(kept.offsets.keep_committing())
    while not exists(path.with_name("offsets.new")):
        await asyncio.sleep(0)
    kept.files.full = False
    while not exists(path):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    kept.offsets.close()


async def test_an_offset_is_kept_with_the_epoch_in_which_it_was_read(path: Path) -> None:
    kept, epochs = Kept(path), {A: 3, B: 3}
    kept.offsets = LocalOffsets(
        path, kept.shares, group="g", settings=ConsumerSettings(), epochs=epochs
    )
    kept.offsets.open()
    await kept.offsets.commit()
    # Of the queue that does not move, the messages are of the epoch before.
    epochs[A] = epochs[B] = 4
    kept.shares.seek(A, 6)
    await kept.offsets.commit()
    kept.offsets.close()
    again = Kept(path)
    again.offsets.open()
    assert await again.offsets.load([A, B]) == {A: KeptOffset(6, 4), B: KeptOffset(5, 3)}
    again.offsets.close()

"""What a cut takes away although it may have been acknowledged stays in a file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace_mq._runtime.files import SystemFiles
from headrace_mq.errors import DataCorrupt, MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import decode_records
from headrace_mq.store.replication.cut import cut_log
from headrace_mq.store.replication.lost_messages import (
    LOST_FOLDER,
    LostQueue,
    count_lost,
    keep_lost,
    lost_batches,
    lost_files,
    lost_queues,
)

LOG = "forever"
Make = Callable[..., Any]


class FullDisk(SystemFiles):
    """Takes no bytes of a file of lost messages."""

    def truncate(self, fd: int, length: int) -> None:
        raise OSError(28, "No space left on device")


def bodies(directory: Path, name: str) -> list[bytes]:
    return [one.body for _, batch in lost_batches(directory, name) for one in decode_records(batch)]


async def test_a_cut_keeps_the_messages_of_every_segment_it_takes(
    new_copy: Make, make_batch: Make
) -> None:
    copy = new_copy("a")
    end = await copy.append(make_batch(b"stays"))
    for number in range(10):
        await copy.append(make_batch(bytes([number]) * 15_000, queue=number % 2))
    assert len(copy.store.segments(LOG)) > 2
    await copy.store.aclose()
    directory = copy.settings.directory
    kept = cut_log(copy.files, copy.settings, LOG, end, keep_from=end)
    assert kept is not None
    assert lost_files(copy.files, directory) == [kept]
    assert (kept.log, kept.messages, count_lost(copy.files, directory)) == (LOG, 10, 10)
    assert [body[0] for body in bodies(directory, kept.name)] == list(range(10))
    assert lost_queues(directory, kept.name) == [
        LostQueue(QueueRef("orders", 0), 5, 1, 5), LostQueue(QueueRef("orders", 1), 5, 0, 4),
    ]  # fmt: skip
    copy.open(epoch=2)
    assert copy.end() == end
    assert copy.store.damage == []


async def test_an_interrupted_cut_keeps_the_file_that_has_everything(
    new_copy: Make, make_batch: Make
) -> None:
    copy = new_copy("a")
    ends = [0] + [await copy.append(make_batch(bytes([n]) * 15_000)) for n in range(6)]
    await copy.store.aclose()
    directory = copy.settings.directory
    batches = []
    kept = cut_log(copy.files, copy.settings, LOG, ends[1], keep_from=ends[1])
    assert kept is not None
    batches = list(lost_batches(directory, kept.name))
    # The end of the log was gone already when the machine stopped.
    assert keep_lost(copy.files, directory, LOG, batches[:2]) == kept
    assert lost_files(copy.files, directory) == [kept]
    assert len(bodies(directory, kept.name)) == 5
    # Other messages at the same position, of a later epoch, are others.
    copy.open(epoch=7)
    await copy.append(make_batch(b"later"))
    await copy.store.aclose()
    later = cut_log(copy.files, copy.settings, LOG, ends[1], keep_from=ends[1])
    assert later is not None
    assert (later.epoch, later.messages) == (7, 1)
    assert lost_files(copy.files, directory) == [kept, later]


async def test_a_cut_of_nothing_keeps_no_file(new_copy: Make, make_batch: Make) -> None:
    copy = new_copy("a")
    end = await copy.append(make_batch(b"stays"))
    await copy.store.aclose()
    assert cut_log(copy.files, copy.settings, LOG, end, keep_from=end) is None
    assert cut_log(copy.files, copy.settings, LOG, 0) is None
    assert not (copy.settings.directory / LOST_FOLDER).exists()
    assert count_lost(copy.files, copy.settings.directory) == 0


async def test_a_log_whose_messages_cannot_be_kept_is_not_cut(
    new_copy: Make, make_batch: Make
) -> None:
    copy = new_copy("a")
    await copy.append(make_batch(b"one"))
    end = await copy.append(make_batch(b"two"))
    await copy.store.aclose()
    with pytest.raises(MessageQueueError, match="No space left"):
        cut_log(FullDisk(), copy.settings, LOG, 0, keep_from=0)
    assert count_lost(copy.files, copy.settings.directory) == 0
    copy.open()
    assert copy.end() == end


async def test_a_damaged_file_says_where(new_copy: Make, make_batch: Make) -> None:
    copy = new_copy("a")
    await copy.append(make_batch(b"one"))
    await copy.append(make_batch(b"two"))
    await copy.store.aclose()
    directory = copy.settings.directory
    kept = cut_log(copy.files, copy.settings, LOG, 0, keep_from=0)
    assert kept is not None
    path = directory / LOST_FOLDER / kept.name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataCorrupt, match=f"{kept.name} is damaged from byte"):
        lost_queues(directory, kept.name)
    (path.parent / "notes.txt").write_text("of an operator")
    assert lost_files(copy.files, directory) == [kept]

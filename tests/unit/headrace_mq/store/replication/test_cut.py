"""A log whose end was cut goes on as if the rest had never been there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.errors import MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.store.replication.cut import cut_log

LOG = "forever"
QUEUE = QueueRef("orders", 0)

Make = Callable[..., Any]


async def shorten(copy: Any, position: int) -> None:
    await copy.store.aclose()
    cut_log(copy.files, copy.settings, LOG, position)
    copy.open(epoch=2)


async def test_a_cut_takes_back_messages_offsets_and_sequences(
    new_copy: Make, make_batch: Make
) -> None:
    copy = new_copy("a")
    end = await copy.append(make_batch(b"stays", producer=7))
    await copy.append(make_batch(b"goes", producer=7, sequence=1))
    await copy.append(make_batch(b"goes", queue=1))
    await copy.append(make_batch(b"another log", topic="t"), log="transient")
    await shorten(copy, end)
    assert copy.end() == end
    assert copy.bodies(QUEUE) == [b"stays"]
    assert copy.store.range(QueueRef("orders", 1)) == (0, 0)
    assert copy.bodies(QueueRef("t", 0)) == [b"another log"]
    appended = copy.store.append(make_batch(b"new", producer=7, sequence=1), retention=LOG)
    assert (appended.base_offset, appended.duplicate) == (1, False)
    assert copy.store.damage == []


@pytest.mark.parametrize("kept", [0, 1, 2, 3, 5, 9])
async def test_a_cut_goes_through_any_segment(new_copy: Make, make_batch: Make, kept: int) -> None:
    copy = new_copy("a")
    ends = [0] + [await copy.append(make_batch(bytes([n]) * 15_000)) for n in range(10)]
    assert len(copy.store.segments(LOG)) > 2
    await shorten(copy, ends[kept])
    # A later segment that would be empty is gone: the leader may begin none there.
    assert copy.end() == ends[kept]
    assert [len(body) for body in copy.bodies(QUEUE)] == [15_000] * kept
    assert all(info.base < ends[kept] for info in copy.store.segments(LOG)[1:])
    await copy.append(make_batch(b"new"))
    assert copy.bodies(QUEUE)[kept:] == [b"new"]
    await shorten(copy, copy.end() + 1_000)
    assert copy.bodies(QUEUE)[kept:] == [b"new"]


async def test_an_index_that_covers_the_cut_goes_with_it(
    new_copy: Make, make_batch: Make, tmp_path: Path
) -> None:
    copy = new_copy("a")
    ends = [await copy.append(make_batch(bytes(20_000))) for _ in range(4)]
    # The next start writes an index of the sealed segments.
    await shorten(copy, ends[-1])
    assert list((tmp_path / "a" / LOG).glob("*.index"))
    await shorten(copy, ends[0])
    for number in range(3):
        await copy.append(make_batch(bytes([number]) * 20_000))
    assert [body[:1] for body in copy.bodies(QUEUE)] == [b"\0", b"\0", b"\1", b"\2"]
    await copy.store.aclose()
    copy.open()
    assert [body[:1] for body in copy.bodies(QUEUE)] == [b"\0", b"\0", b"\1", b"\2"]


async def test_a_log_in_use_is_not_cut(new_copy: Make, make_batch: Make) -> None:
    copy = new_copy("a")
    await copy.append(make_batch(b"one"))
    with pytest.raises(MessageQueueError, match="stop it"):
        cut_log(copy.files, copy.settings, LOG, 0)
    assert copy.bodies(QUEUE) == [b"one"]


async def test_deleted_bytes_cannot_be_cut(new_copy: Make, make_batch: Make) -> None:
    copy = new_copy("a")
    for _ in range(4):
        await copy.append(make_batch(bytes(30_000)))
    copy.store.delete_segments(LOG, copy.end())
    await copy.store.aclose()
    with pytest.raises(MessageQueueError, match="build this replica again"):
        cut_log(copy.files, copy.settings, LOG, 0)
    copy.open()


async def test_a_failing_disk_is_named(new_copy: Make, make_batch: Make, files: Any) -> None:
    copy = new_copy("a", files=files)
    await copy.append(make_batch(b"one"))
    await copy.append(make_batch(b"two"))
    await copy.store.aclose()
    files.sync_error = OSError(5, "Input/output error")
    with pytest.raises(MessageQueueError, match="check the disk"):
        cut_log(copy.files, copy.settings, LOG, 0)
    files.sync_error = None
    copy.open()


async def test_an_empty_log_has_nothing_to_cut(new_copy: Make) -> None:
    copy = new_copy("a")
    await shorten(copy, 0)
    assert copy.end() == 0

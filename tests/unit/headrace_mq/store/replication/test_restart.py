"""A log that goes on at a later position begins there, at the leader's offsets, with nothing in it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace_mq._runtime.clock import SystemClock
from headrace_mq.errors import MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.store.log.clean_end import CleanEnd, QueueEnd, write_both
from headrace_mq.store.replication import restart as subject
from headrace_mq.store.replication.restart import FirstSegment, restart_log

LOG = "forever"
QUEUE = QueueRef("orders", 0)
FIRST = FirstSegment(LOG, 1 << 20, 64 * 1024, 3)

Make = Callable[..., Any]


def restart(copy: Any, *queues: QueueEnd) -> None:
    restart_log(copy.files, copy.settings, FIRST, queues, SystemClock())


@pytest.mark.parametrize("held", [0, 3])
async def test_a_log_goes_on_at_the_position(new_copy: Make, make_batch: Make, held: int) -> None:
    copy = new_copy("a")
    for _ in range(held):
        await copy.append(make_batch(b"goes"))
    await copy.append(make_batch(b"another log", topic="t"), log="transient")
    await copy.store.aclose()
    restart(copy, QueueEnd("orders", 0, LOG, 70), QueueEnd("orders", 1, LOG, 5))
    copy.open(epoch=3)
    assert copy.end() == FIRST.base
    assert copy.store.range(QUEUE) == (70, 70)
    assert copy.store.range(QueueRef("orders", 1)) == (5, 5)
    assert copy.bodies(QueueRef("t", 0)) == [b"another log"]
    assert copy.store.damage == []
    await copy.append(make_batch(b"new"))
    assert copy.store.range(QUEUE) == (70, 71)
    await copy.store.aclose()
    copy.open(epoch=4)
    assert copy.bodies(QUEUE) == [b"new"]
    assert [one.base for one in copy.store.segments(LOG)] == [FIRST.base]


async def test_offsets_that_only_the_replica_gave_are_given_again(
    new_copy: Make, make_batch: Make
) -> None:
    copy = new_copy("a")
    for _ in range(9):
        await copy.append(make_batch(b"goes"))
    await copy.store.aclose()
    restart(copy, QueueEnd("orders", 0, LOG, 2))
    copy.open(epoch=3)
    assert copy.store.range(QUEUE) == (2, 2)


@pytest.mark.parametrize("held", [0, 3])
async def test_a_store_opens_after_a_crash_before_the_end_of_a_restart(
    new_copy: Make, make_batch: Make, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    copy = new_copy("a")
    for _ in range(held):
        await copy.append(make_batch(b"goes"))
    await copy.store.aclose()
    written: list[CleanEnd] = []

    def write(files: Any, directory: Path, clean_end: CleanEnd) -> None:
        written.append(clean_end)
        if len(written) == 2:
            raise OSError(5, "the power went")
        write_both(files, directory, clean_end)

    monkeypatch.setattr(subject, "write_both", write)
    with pytest.raises(MessageQueueError, match="the power went"):
        restart(copy, QueueEnd("orders", 0, LOG, 70))
    copy.open(epoch=3)
    assert copy.end() == FIRST.base
    assert copy.store.range(QUEUE)[1] == 70


async def test_a_restart_can_be_repeated(new_copy: Make) -> None:
    copy = new_copy("a")
    await copy.store.aclose()
    restart(copy, QueueEnd("orders", 0, LOG, 70))
    restart(copy, QueueEnd("orders", 0, LOG, 70))
    copy.open(epoch=3)
    assert copy.store.range(QUEUE) == (70, 70)


async def test_the_log_of_a_store_that_is_open_does_not_begin_again(new_copy: Make) -> None:
    copy = new_copy("a")
    with pytest.raises(MessageQueueError, match="a broker uses"):
        restart(copy)


async def test_a_full_disk_is_named(new_copy: Make, files: Any) -> None:
    copy = new_copy("a", files=files)
    await copy.store.aclose()
    copy.files.allocate_error = OSError(28, "No space left on device")
    with pytest.raises(MessageQueueError, match="No space left"):
        restart(copy)
    copy.files.allocate_error = None
    copy.open(epoch=3)
    assert copy.end() == 0

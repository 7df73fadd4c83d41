"""Blocks are written behind, in a thread, and a disk that refuses them stops nothing."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.errors import StoreReadOnly
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import decode_records

MakeBatch = Callable[..., bytearray]
ORDERS = QueueRef("orders", 0)


async def fill(store: Any, make_batch: MakeBatch, count: int = 40) -> list[bytes]:
    bodies = [b"%d" % n * 900 for n in range(count)]
    for body in bodies:
        store.append(make_batch(body), retention="forever")
        await store.durable()
    await store._writer.settled()
    return bodies


def read(store: Any) -> list[bytes]:
    return [
        record.body
        for batch in store.read(ORDERS, store.range(ORDERS)[0], 1 << 30)
        for record in decode_records(batch)
    ]


def indexes(folder: Path) -> list[Path]:
    return sorted((folder / "store/forever").glob("*.index"))


async def test_blocks_are_written_while_messages_come(
    open_store: Any, make_batch: MakeBatch, tmp_path: Path
) -> None:
    store = open_store()
    bodies = await fill(store, make_batch, 200)
    log = store._logs["forever"]
    assert len(indexes(tmp_path)) == len(log.segments) - 1 > 1
    assert log.index.of(log.segments[0]).end == log.segments[1].base
    assert read(store) == bodies


async def test_a_disk_that_refuses_an_index_refuses_no_message(
    open_store: Any, make_batch: MakeBatch, tmp_path: Path, monkeypatch: Any
) -> None:
    store = open_store()
    log = store._logs["forever"]

    def refuse(frozen: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(log.index, "write", refuse)
        bodies = await fill(store, make_batch, 200)
        assert indexes(tmp_path) == []
        assert read(store) == bodies
    await store.aclose()
    # The close had room for them again.
    assert len(indexes(tmp_path)) > 1
    assert read(open_store()) == bodies


async def test_other_work_of_the_disk_is_done_before_a_file_is_deleted_or_the_store_is_closed(
    open_store: Any,
) -> None:
    store = open_store()
    disk, done = threading.Event(), []

    def work() -> None:
        assert disk.wait(60)
        done.append(1)

    first = store._writer.run(work)
    assert done == [], "the loop does not wait for it"
    disk.set()
    store._writer.wait()
    assert done == [1]
    await first
    second = store._writer.run(work)
    await store._writer.settled()
    assert second.done()
    await store.aclose()
    with pytest.raises(StoreReadOnly):
        store._writer.run(work)

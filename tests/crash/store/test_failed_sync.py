"""The n-th sync fails, for every n: no acknowledgement after it, and a restart has all before it."""

import random
from pathlib import Path

import pytest

from headrace_mq._runtime.files import SystemFiles
from headrace_mq.errors import MessageQueueError, StoreReadOnly
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, decode_records, encode_batch
from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore

SYNCS = 40


class FailingFiles(SystemFiles):
    """Counts syncs of files and directories, and fails one of them once."""

    def __init__(self, fail_at: int) -> None:
        self.left = fail_at

    def sync(self, fd: int) -> int:
        self._count()
        return super().sync(fd)

    def sync_directory(self, path: Path) -> None:
        self._count()
        super().sync_directory(path)

    def _count(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise OSError(5, "Input/output error")


Messages = dict[tuple[QueueRef, int], bytes]


async def promised(store: MessageStore, seed: int) -> tuple[Messages, Messages]:
    """Appends until the store refuses, or for a while.

    Returns what was acknowledged, and what was only sent when the disk failed.
    """
    chosen = random.Random(seed)
    acked: Messages = {}
    for _ in range(SYNCS):
        told = {}
        for _ in range(chosen.randint(1, 4)):
            queue = QueueRef("t", chosen.randint(0, 2))
            body = chosen.randbytes(chosen.randint(0, 9_000))
            columns = Columns([], [], [], [body], [])
            batch = encode_batch(queue, columns, born_first_ms=0)
            retention = "forever" if queue.queue_id else "transient"
            told[queue, store.append(batch, retention=retention).base_offset] = body
        try:
            await store.durable()
        except StoreReadOnly:
            return acked, told
        acked |= told
    return acked, {}


def held(store: MessageStore) -> Messages:
    return {
        (queue, record.offset): record.body
        for queue, _ in store.queues()
        for batch in store.read(queue, store.range(queue)[0], 1 << 30)
        for record in decode_records(batch)
    }


@pytest.mark.parametrize("cache", [0, 1 << 20])
async def test_no_failed_sync_is_ever_acknowledged_or_retried(tmp_path: Path, cache: int) -> None:
    refused_at_start = broken_later = 0
    for fail_at in range(1, SYNCS):
        settings = StoreSettings(
            directory=tmp_path / str(fail_at), segment_bytes=64 * 1024, tail_cache_bytes=cache
        )
        store = MessageStore(settings, files=FailingFiles(fail_at))
        try:
            store.open()
        except MessageQueueError:
            refused_at_start += 1
            continue
        acked, unknown = await promised(store, fail_at)
        broken_later += 1
        assert store.read_only is not None
        # Reading goes on, and nothing more is accepted. Of the last write one log may be durable.
        assert acked.items() <= held(store).items() <= (acked | unknown).items()
        assert await promised_nothing(store)
        await store.aclose()
        again = MessageStore(settings)
        again.open()
        assert acked.items() <= held(again).items() <= (acked | unknown).items()
        assert again.damage == []
        await again.aclose()
    assert refused_at_start
    assert broken_later > SYNCS // 2


async def promised_nothing(store: MessageStore) -> bool:
    batch = encode_batch(QueueRef("t", 0), Columns([], [], [], [b""], []), born_first_ms=0)
    for retention in ("forever", "transient"):
        with pytest.raises(StoreReadOnly):
            store.append(batch, retention=retention)
    with pytest.raises(StoreReadOnly):
        await store.durable()
    return True

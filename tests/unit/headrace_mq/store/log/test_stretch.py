"""In which file batches of a queue stand."""

from pathlib import Path

from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch, read_header
from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore

QUEUE, OTHER = QueueRef("t", 0), QueueRef("t", 1)
MANY = 1 << 30


def batch(queue: QueueRef, count: int) -> bytearray:
    return encode_batch(queue, Columns([], [], [], [b"x" * 1_000] * count, []), born_first_ms=1)


async def opened(path: Path, *, retention: str = "forever") -> MessageStore:
    store = MessageStore(StoreSettings(directory=path, segment_bytes=64 << 10))
    store.open()
    for _ in range(20):
        for queue in (QUEUE, OTHER):
            store.append(batch(queue, 4), retention=retention)
        await store.durable()
    return store


async def test_the_bytes_are_where_it_says_in_one_file_after_the_other(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    try:
        offset, paths = 0, []
        while offset < store.range(QUEUE)[1]:
            stretch = store.stretch_from(QUEUE, offset, MANY, 1_000)
            assert stretch is not None
            content = stretch.path.read_bytes()
            for entry in stretch.entries:
                at = entry.position + stretch.shift
                header = read_header(content, at)
                assert (header.queue, header.base_offset) == (QUEUE, offset)
                assert header.length == entry.length
                offset = header.next_offset
            paths.append(stretch.path)
        assert offset == 80
        # 40 batches of 4 kB do not fit into one segment of 64 KiB.
        assert len(paths) == len(set(paths)) > 1
    finally:
        await store.aclose()


async def test_it_ends_after_so_many_bytes_or_batches_and_begins_in_the_middle(
    tmp_path: Path,
) -> None:
    store = await opened(tmp_path)
    try:
        few = store.stretch_from(QUEUE, 5, MANY, 2)
        assert few is not None
        assert [entry.base for entry in few.entries] == [4, 8]
        small = store.stretch_from(QUEUE, 0, 1, 1_000)
        assert small is not None
        assert [entry.base for entry in small.entries] == [0]
    finally:
        await store.aclose()


async def test_what_is_not_there_and_what_is_compacted_stands_nowhere(tmp_path: Path) -> None:
    store = await opened(tmp_path / "plain")
    compacted = await opened(tmp_path / "compacted", retention="compact")
    try:
        assert store.stretch_from(QueueRef("t", 7), 0, MANY, 9) is None
        assert store.stretch_from(QUEUE, 80, MANY, 9) is None
        assert compacted.range(QUEUE) == (0, 80)
        assert compacted.stretch_from(QUEUE, 0, MANY, 9) is None
    finally:
        await store.aclose()
        await compacted.aclose()

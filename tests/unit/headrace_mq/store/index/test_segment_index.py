"""An index file is believed to the bit or not at all: no flip, cut or swap changes what is read."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import decode_records, read_header
from headrace_mq.store.message_store import MessageStore

MakeBatch = Callable[..., bytearray]
OpenStore = Callable[..., MessageStore]
QUEUES = 3


def contents(store: MessageStore) -> dict[QueueRef, list[tuple[int, bytes]]]:
    """Everything that readers see, read in small steps."""
    found: dict[QueueRef, list[tuple[int, bytes]]] = {}
    for queue, _ in store.queues():
        at, end = store.range(queue)
        read = found[queue] = []
        while at < end and (batches := store.read(queue, at, 4_000)):
            for batch in batches:
                assert read_header(batch).queue == queue
                read += [(r.offset, r.body) for r in decode_records(batch) if r.offset >= at]
                at = read_header(batch).next_offset
    return found


@pytest.fixture
async def filled(open_store: OpenStore, make_batch: MakeBatch, tmp_path: Any) -> Path:
    """A store of some segments, closed; returns the index of the first one."""
    store = open_store()
    for n in range(300):
        store.append(make_batch(b"%d" % n * 200, queue=n % QUEUES), retention="forever")
        await store.durable()
    await store.aclose()
    return min((tmp_path / "store/forever").glob("*.index"))


async def test_a_start_reads_no_batch_of_an_indexed_segment(
    open_store: OpenStore, filled: Any, files: Any
) -> None:
    reads: dict[int, int] = {}
    read = files.read

    def count(fd: int, at: int, length: int) -> bytes:
        reads[fd] = reads.get(fd, 0) + length
        found: bytes = read(fd, at, length)
        return found

    files.read = count
    store = open_store()
    segments = store._logs["forever"].segments
    # Their headers, and the heads of the first and the last batch of each block.
    assert len(segments) == 4
    assert max(reads[segment._fd] for segment in segments[:-1]) < 8_192
    files.read = read
    assert [len(found) for found in contents(store).values()] == [100] * QUEUES


async def test_no_flipped_bit_of_an_index_changes_what_is_read(
    open_store: OpenStore, filled: Any
) -> None:
    store = open_store()
    expected = contents(store)
    await store.aclose()
    good = filled.read_bytes()
    chance = random.Random(7)
    # The headers of the file and of the first block, and a sample of what follows.
    at_bits = [*range(chance.randrange(31), 160 * 8, 31)]
    at_bits += chance.sample(range(160 * 8, len(good) * 8), 40)
    for bit in at_bits:
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        filled.write_bytes(bad)
        store = open_store()
        assert contents(store) == expected, bit
        assert store.damage == []
        store._release()
        assert filled.read_bytes() == good, f"bit {bit} was not repaired"


@pytest.mark.parametrize("share", [0, 0.01, 0.3, 0.9, 0.999])
async def test_a_truncated_index_is_completed(
    open_store: OpenStore, filled: Any, share: float
) -> None:
    good = filled.read_bytes()
    filled.write_bytes(good[: int(len(good) * share)])
    store = open_store()
    assert sum(map(len, contents(store).values())) == 300
    assert filled.read_bytes() == good


async def test_an_index_of_another_segment_is_not_believed(
    open_store: OpenStore, filled: Any
) -> None:
    second = sorted(filled.parent.glob("*.index"))[1]
    good = filled.read_bytes()
    shutil.copy(second, filled)
    store = open_store()
    assert sum(map(len, contents(store).values())) == 300
    assert filled.read_bytes() == good


async def test_an_index_of_a_newer_version_is_rebuilt(open_store: OpenStore, filled: Any) -> None:
    good = filled.read_bytes()
    filled.write_bytes(good[:8] + b"\x63\0" + good[10:])
    store = open_store()
    assert sum(map(len, contents(store).values())) == 300
    assert filled.read_bytes() == good


async def test_a_log_that_was_replaced_behind_its_index_counts(
    open_store: OpenStore, filled: Any
) -> None:
    log = filled.with_suffix(".log")
    content = bytearray(log.read_bytes())
    # The head of the first batch: what the index says of it is no longer there.
    content[4_096 + 32 + 30] ^= 1
    log.write_bytes(content)
    store = open_store()
    assert sum(map(len, contents(store).values())) == 299
    assert [damage.position for damage in store.damage] == [32]
    # Later starts take the index's word, and still tell of it.
    store._release()
    store = open_store()
    assert sum(map(len, contents(store).values())) == 299
    assert [damage.position for damage in store.damage] == [32]

"""A reader that meets damage waits where it is about to be mended, and goes on without it else."""

from collections.abc import Callable
from typing import Any

from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import read_header
from headrace_mq.store.message_store import MessageStore

QUEUE = QueueRef("orders", 0)
BODIES = [b"one" * 400, b"two" * 400, b"three" * 400]


async def three(open_store: Callable[..., MessageStore], make_batch: Any) -> Any:
    store = open_store()
    for body in BODIES:
        store.append(make_batch(body), retention="forever")
        await store.durable()
    return store


def rot(store: Any, number: int) -> Any:
    entry = store._queues.get(QUEUE).index.find(number, 1)[0]
    segment = store._logs["forever"].segments[0]
    byte = segment.read(entry.position + 300, 1)
    segment.mend(entry.position + 300, bytes([byte[0] ^ 1]))
    return entry, lambda: segment.mend(entry.position + 300, byte)


def bases(found: Any) -> Any:
    return None if found is None else [read_header(batch).base_offset for batch in found]


async def test_a_reader_leaves_a_batch_out_where_no_one_mends(
    open_store: Callable[..., MessageStore], make_batch: Any
) -> None:
    store = await three(open_store, make_batch)
    rot(store, 1)
    assert bases(store.read_now(QUEUE, 0, 1 << 20)) == [0, 2]
    assert [one.base_offset for one in store.damage] == [1]


async def test_a_reader_that_waits_has_what_comes_before_and_hears_when_to_come_back(
    open_store: Callable[..., MessageStore], make_batch: Any
) -> None:
    store = await three(open_store, make_batch)
    entry, undo = rot(store, 1)
    met: list[Any] = []
    store.wait_for_mending(lambda damage: met.append(damage) is None)
    told: list[Any] = []
    store.on_visible = told.extend
    assert bases(store.read_now(QUEUE, 0, 1 << 20)) == [0]
    assert store.read_now(QUEUE, 1, 1 << 20) is None
    assert [(one.position, one.length) for one in met] == [entry.place] * 2
    assert store.damage == []
    undo()
    store.mended("forever", entry.position, entry.position + entry.length, [QUEUE])
    assert told == [QUEUE]
    assert bases(store.read_now(QUEUE, 1, 1 << 20)) == [1, 2]


async def test_a_read_that_cannot_wait_leaves_it_out_until_it_is_mended(
    open_store: Callable[..., MessageStore], make_batch: Any
) -> None:
    store = await three(open_store, make_batch)
    entry, undo = rot(store, 0)
    store.wait_for_mending(lambda _: True)
    assert bases(store.read(QUEUE, 0, 1 << 20)) == [1, 2]
    assert store.range(QUEUE) == (1, 3)
    undo()
    store.mended("transient", 0, 1 << 30, [])
    store.mended("forever", entry.position, entry.position + 1, [])
    assert store.range(QUEUE) == (0, 3)
    assert bases(store.read(QUEUE, 0, 1 << 20)) == [0, 1, 2]
    assert store.damage == []

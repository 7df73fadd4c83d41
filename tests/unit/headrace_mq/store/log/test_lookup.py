"""Finding by key equals reading everything, whatever part of it is indexed, written or damaged."""

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_mq.errors import InvalidArgument
from headrace_mq.message import QueueRef, Record
from headrace_mq.protocol.batch import Columns, decode_records, encode_batch
from headrace_mq.settings import StoreSettings
from headrace_mq.store.log.lookup import FIND_WORK_BYTES, FOUND_MAX, Cursor, LookupQuery
from headrace_mq.store.message_store import MessageStore

OpenStore = Callable[..., MessageStore]
KEYS = ["", "a", "b", "c", "key-17", "schlüssel"]
TOPICS = ["orders", "bills"]


def keyed(keys: list[str], topic: str = "orders", queue: int = 0, size: int = 10) -> bytearray:
    bodies = [b"x" * size] * len(keys)
    columns = Columns(keys if any(keys) else [], [], [], bodies, [])
    return encode_batch(QueueRef(topic, queue), columns, born_first_ms=0)


def found(store: MessageStore, wanted: LookupQuery, **bounds: int) -> list[Record]:
    """All messages of a key, collected answer by answer."""
    records: list[Record] = []
    cursor = None
    while True:
        answer = store.find(wanted, cursor, **bounds)
        new = [r for batch in answer.batches for r in decode_records(batch) if r.key == wanted.key]
        assert len(new) == answer.messages
        records += new
        if answer.cursor is None:
            return records
        assert cursor is None or answer.cursor > cursor
        cursor = answer.cursor


def scanned(store: MessageStore, wanted: LookupQuery) -> list[Record]:
    """The same by reading every message there is."""
    records = []
    for queue, _ in store.queues():
        if queue.topic != wanted.topic:
            continue
        at, end = store.range(queue)
        while at < end and (batches := store.read(queue, at, 1 << 20)):
            for batch in batches:
                read = decode_records(batch)
                records += [r for r in read if r.key == wanted.key]
                at = read[-1].offset + 1
    return [r for r in records if wanted.from_ms <= r.stored_at_ms < wanted.to_ms]


def in_order(records: list[Record]) -> list[tuple[QueueRef, int]]:
    return sorted((record.queue, record.offset) for record in records)


def index_all(store: MessageStore) -> None:
    """Reads everything for the key index, and lets blocks be written at once."""
    for log in store._logs.values():
        while log.keys.step(log.end, 4_096) or log.keys.due(log.synced) is not None:
            log.keys.write_due(log.synced)


async def put(store: MessageStore, *batches: bytearray, retention: str = "forever") -> None:
    for batch in batches:
        store.append(batch, retention=retention)
    await store.durable()


def small_blocks(store: MessageStore) -> MessageStore:
    for log in store._logs.values():
        log.keys._block_bytes = 600
    return store


batches = st.tuples(
    st.lists(st.sampled_from(KEYS), min_size=1, max_size=4),
    st.sampled_from(TOPICS),
    st.integers(0, 2),
    st.integers(0, 400),
)
steps = st.one_of(
    st.tuples(st.just("put"), st.lists(batches, min_size=1, max_size=5)),
    st.tuples(st.just("index"), st.integers(1, 3_000)),
    st.tuples(st.just("write"), st.none()),
    st.tuples(st.just("reopen"), st.booleans()),
    st.tuples(st.just("damage"), st.randoms(use_true_random=False)),
    st.tuples(st.just("wait"), st.integers(1, 5)),
)


@settings(max_examples=60, deadline=None)
@given(
    history=st.lists(steps, min_size=1, max_size=14),
    wanted=st.builds(
        LookupQuery, st.sampled_from(TOPICS), st.sampled_from(KEYS[1:]),
        st.integers(-1, 12), st.integers(0, 20),
    ),
    messages_max=st.integers(1, 5),
    bytes_max=st.integers(1, 2_000),
)  # fmt: skip
def test_finding_by_key_equals_reading_everything(
    tmp_path_factory: pytest.TempPathFactory,
    history: list[tuple[str, Any]],
    wanted: LookupQuery,
    messages_max: int,
    bytes_max: int,
) -> None:
    asyncio.run(play(tmp_path_factory.mktemp("finding"), history, wanted, messages_max, bytes_max))


class Hand:
    ms = 0

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


async def play(
    folder: Path,
    history: list[tuple[str, Any]],
    wanted: LookupQuery,
    messages_max: int,
    bytes_max: int,
) -> None:
    clock = Hand()

    def opened() -> MessageStore:
        # Segments of their smallest size, so that some histories fill more than one.
        store = MessageStore(
            StoreSettings(directory=folder / "s", segment_bytes=1 << 16), clock=clock
        )
        store.open()
        return small_blocks(store)

    store = opened()
    for step, value in history:
        log = store._logs["forever"]
        match step:
            case "put":
                for keys, topic, queue, size in value:
                    retention = "forever" if topic == "orders" else "transient"
                    await put(store, keyed(keys, topic, queue, size * 40), retention=retention)
            case "index":
                log.keys.step(log.end, value)
            case "write":
                log.keys.write_due(log.synced)
            case "wait":
                clock.ms += value
            case "damage":
                damage_a_key_file(folder / "s/forever", value)
            case "reopen":
                if value:
                    await store.aclose()
                else:
                    store._release()
                store = opened()
        bounds = {"messages_max": messages_max, "bytes_max": bytes_max}
        records = found(store, wanted, **bounds)
        assert in_order(records) == in_order(scanned(store, wanted))
    index_all(store)
    assert in_order(found(store, wanted)) == in_order(scanned(store, wanted))
    await store.aclose()


def damage_a_key_file(folder: Path, chance: random.Random) -> None:
    files = sorted(folder.glob("*.keys"))
    if files:
        path = chance.choice(files)
        content = bytearray(path.read_bytes())
        if content:
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            path.write_bytes(content[: chance.choice([len(content), chance.randrange(1_500)])])


@pytest.fixture
async def stacked(open_store: OpenStore) -> MessageStore:
    """A few megabytes: more than one call reads."""
    store = small_blocks(open_store())
    for n in range(200):
        await put(store, *(keyed([f"key-{n}-{i}"], size=900) for i in range(20)))
    return store


def calls(store: MessageStore, key: str) -> Iterator[Any]:
    cursor: Cursor | None = None
    while True:
        answer = store.find(LookupQuery("orders", key), cursor)
        yield answer
        cursor = answer.cursor
        if cursor is None:
            return


async def test_one_call_reads_a_bounded_part_of_what_is_not_indexed(
    stacked: MessageStore, files: Any
) -> None:
    read = files.read
    bytes_read = 0

    def count(fd: int, at: int, length: int) -> bytes:
        nonlocal bytes_read
        data: bytes = read(fd, at, length)
        bytes_read += len(data)
        return data

    files.read = count
    most = messages = 0
    for answer in calls(stacked, "key-150-3"):
        most, bytes_read = max(most, bytes_read), 0
        messages += answer.messages
    assert messages == 1
    assert most < 3 * FIND_WORK_BYTES
    size = sum(segment.bytes for segment in stacked.segments("forever"))
    assert size > 10 * FIND_WORK_BYTES


async def test_indexed_keys_are_found_without_reading_the_log(
    stacked: MessageStore, files: Any
) -> None:
    scanning = sum(1 for _ in calls(stacked, "key-150-3"))
    index_all(stacked)
    before = files.reads
    answers = list(calls(stacked, "key-150-3"))
    assert [answer.messages for answer in answers if answer.messages] == [1]
    assert len(answers) < scanning
    blocks = sum(len(file.blocks) for file in stacked._logs["forever"].keys.files())
    # Two reads a block, and a few for the one batch.
    assert files.reads - before < 2 * blocks + 10


async def test_times_leave_blocks_out_unread(open_store: OpenStore, clock: Any, files: Any) -> None:
    store = small_blocks(open_store())
    for _ in range(50):
        clock.ms += 1_000
        await put(store, keyed(["k"], size=500))
    index_all(store)
    at = clock.ms - 25_000
    reads = files.reads
    records = found(store, LookupQuery("orders", "k", at, at + 3_000))
    assert [record.stored_at_ms - at for record in records] == [0, 1_000, 2_000]
    assert files.reads - reads < 30


async def test_a_key_is_found_in_its_topic_alone(open_store: OpenStore) -> None:
    store = open_store()
    await put(store, keyed(["k"]), keyed(["k"], topic="orders2"))
    await put(store, keyed(["k"], topic="bills"), retention="transient")
    for topic in ("orders", "orders2", "bills"):
        assert [r.queue.topic for r in found(store, LookupQuery(topic, "k"))] == [topic]
    assert found(store, LookupQuery("none", "k")) == []


async def test_messages_that_are_not_durable_yet_are_not_found(open_store: OpenStore) -> None:
    store = open_store()
    store.append(keyed(["k"]), retention="forever")
    assert found(store, LookupQuery("orders", "k")) == []
    await store.durable()
    assert len(found(store, LookupQuery("orders", "k"))) == 1


async def test_deleted_messages_are_not_found_and_a_cursor_to_them_goes_on(
    open_store: OpenStore,
) -> None:
    store = open_store()
    for _ in range(150):
        await put(store, keyed(["k"], size=1_000), retention="transient")
    index_all(store)
    cursor = store.find(LookupQuery("orders", "k"), messages_max=3).cursor
    assert cursor is not None
    assert store.delete_segments("transient", store.segments("transient")[1].base) == 1
    first, end = store.range(QueueRef("orders", 0))
    assert first > 3
    records = found(store, LookupQuery("orders", "k"))
    assert [record.offset for record in records] == list(range(first, end))
    assert store.find(LookupQuery("orders", "k"), cursor).messages == end - first


async def test_a_payload_that_does_not_decode_hides_nothing_else(
    open_store: OpenStore, make_batch: Any
) -> None:
    store = open_store()
    broken = keyed(["k"])
    broken[-12:] = b"\xc1" * 12
    broken[48:52] = int(google_crc32c.value(bytes(broken[52:]))).to_bytes(4, "little")
    await put(store, broken, keyed(["k"]))
    assert [record.offset for record in found(store, LookupQuery("orders", "k"))] == [1]
    index_all(store)
    assert [record.offset for record in found(store, LookupQuery("orders", "k"))] == [1]


@pytest.mark.parametrize(
    ("key", "cursor", "bounds"),
    [
        ("", None, {}),
        ("k", None, {"messages_max": 0}),
        ("k", None, {"messages_max": FOUND_MAX + 1}),
        ("k", None, {"bytes_max": 0}),
        ("k", Cursor("nowhere", 0), {}),
        ("k", Cursor("forever", -1), {}),
    ],
)
async def test_a_search_that_makes_no_sense_is_refused(
    open_store: OpenStore, key: str, cursor: Cursor | None, bounds: dict[str, int]
) -> None:
    with pytest.raises(InvalidArgument):
        open_store().find(LookupQuery("orders", key), cursor, **bounds)


async def test_a_search_can_be_limited_to_queues_and_their_later_messages(
    open_store: OpenStore,
) -> None:
    store = open_store()
    for queue in (0, 1, 2, 0, 1, 2):
        await put(store, keyed(["k"], queue=queue))
    starts = {QueueRef("orders", 0): 0, QueueRef("orders", 1): 1}
    answer = store.find(LookupQuery("orders", "k"), starts=starts)
    records = [record for batch in answer.batches for record in decode_records(batch)]
    assert [(r.queue.queue_id, r.offset) for r in records] == [(0, 0), (0, 1), (1, 1)]
    assert answer.messages == 3

"""The worker of a journal, driven by the simplest journal there is: orders that hold their own messages."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from headrace_mq.broker.files.metadata_file import MetadataFile
from headrace_mq.broker.journal import worker as module
from headrace_mq.broker.journal.log import JournalFormat, JournalLog
from headrace_mq.broker.journal.worker import JournalWorker, OrderBatch
from headrace_mq.broker.metadata import topics_file
from headrace_mq.broker.topics.topics import Topics
from headrace_mq.errors import StoreFull, StoreReadOnly
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, decode_records, encode_batch, read_header
from headrace_mq.protocol.bodies import CreateTopic
from headrace_mq.settings import StoreSettings
from headrace_mq.store.log.commit_log import WHOLE_LOG
from headrace_mq.store.message_store import MessageStore

JOURNAL, T, KEPT, DEAD = (QueueRef(name, 0) for name in ("journal", "t", "kept", "dead"))
GONE = QueueRef("gone", 0)
Until = Callable[[Callable[[], object]], Awaitable[None]]


class Part(msgspec.Struct, frozen=True, array_like=True):
    topic: str
    queue_id: int
    first_sequence: int


class Copy(msgspec.Struct, frozen=True, array_like=True, tag="copy"):
    """An order: one message to each of some queues."""

    body: str
    parts: list[Part]


class Done(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    """The order before this is carried out."""


class Kept(msgspec.Struct, frozen=True):
    read_to: int
    unfinished: Copy | None


class State:
    def __init__(self) -> None:
        self.read_to = 0
        self.unfinished: Copy | None = None
        self.lowest: int | None = None

    def apply(self, event: Copy | Done) -> None:
        self.unfinished = event if isinstance(event, Copy) else None

    def kept(self) -> Kept:
        return Kept(self.read_to, self.unfinished)

    def restore(self, kept: Kept) -> None:
        self.read_to, self.unfinished = kept.read_to, kept.unfinished

    def lowest_offset(self) -> int | None:
        return self.lowest


decode = msgspec.msgpack.Decoder(Copy | Done).decode
FORM = JournalFormat(
    "copies",
    JOURNAL,
    lambda _header, columns, index: decode(columns.bodies[index]),
    lambda *events: Columns([], [], [], [msgspec.msgpack.encode(one) for one in events], []),
)


class Copies(JournalWorker[Copy]):
    """Takes orders from a list."""

    _done = Done()
    _dead_retention = "forever"

    def __init__(self, directory: Path, clock: Any) -> None:
        settings = StoreSettings(directory=directory, segment_bytes=64 << 10)
        self.store = MessageStore(settings, clock=clock)
        self.store.open()
        topics = Topics(topics_file(directory), default_queues=1, auto_create=False)
        topics.load((ref, log, self.store.range(ref)[1]) for ref, log in self.store.queues())
        for queue, retention in ((T, "transient"), (KEPT, "forever")):
            topics.create(CreateTopic(queue.topic, 1, retention))
        self.state = State()
        file = MetadataFile(directory / "copies.json", Kept, repair="Delete it.")
        log = JournalLog(self.store, file, clock=clock, state=self.state, form=FORM)
        super().__init__(self.store, topics, log=log, state=self.state)
        self.orders: list[Copy] = []
        self.freed: list[int] = []
        self.load()
        self.store.on_visible = lambda queues: self.journal_grew() if JOURNAL in queues else None

    async def _turn(self) -> None:
        self._news.clear()
        if self.orders:
            await self._finish(self.orders.pop(0))
            return
        self._close()
        await self._news_within(1_000)

    def _batches(self, order: Copy) -> Iterator[OrderBatch]:
        for part in order.parts:
            queue, columns = QueueRef(part.topic, 0), Columns([], [], [], [order.body.encode()], [])
            batch = encode_batch(
                queue, columns, born_first_ms=1, producer_id=9, first_sequence=part.first_sequence
            )
            yield OrderBatch(queue, batch, partial(encode_batch, DEAD, columns, born_first_ms=1))

    def _free_below(self, offset: int) -> None:
        self.freed.append(offset)

    def order(self, number: int, *queues: QueueRef) -> None:
        self.orders.append(Copy(str(number), [Part(*queue, number) for queue in queues]))
        self.look()

    def bodies(self, queue: QueueRef) -> list[bytes]:
        found: list[bytes] = []
        offset, end = self.store.range(queue)
        while len(found) < end - offset:
            for batch in self.store.read(queue, offset + len(found), 1 << 20):
                found += [record.body for record in decode_records(batch)]
        return found


@pytest.fixture
async def begin(tmp_path: Path, clock: Any) -> AsyncIterator[Callable[[], Copies]]:
    made: list[Copies] = []

    def begin() -> Copies:
        made.append(Copies(tmp_path, clock))
        return made[-1]

    yield begin
    await made[-1].aclose()
    await made[-1].store.aclose()


async def test_orders_are_carried_out_one_after_the_other_and_the_last_is_closed(
    begin: Callable[[], Copies], until: Until
) -> None:
    copies = begin()
    copies.start()
    for number in range(3):
        copies.order(number, T, KEPT)
    await until(lambda: copies.state.read_to == 4)
    assert copies.bodies(T) == copies.bodies(KEPT) == [b"0", b"1", b"2"]
    assert copies.state.unfinished is None


async def test_messages_that_a_queue_refuses_become_dead_letters(
    begin: Callable[[], Copies], until: Until
) -> None:
    copies = begin()
    copies.start()
    with capture_logs() as logs:
        copies.order(0, GONE, T)
        await until(lambda: copies.state.read_to == 2)
    assert (copies.bodies(DEAD), copies.bodies(T)) == ([b"0"], [b"0"])
    assert [(one["log_level"], one["journal"]) for one in logs] == [("error", "copies")]


async def test_an_order_waits_for_room_on_the_disk_and_is_then_carried_out_once(
    begin: Callable[[], Copies], until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE_MS", 1)
    copies, failures = begin(), [1, 2, 3]
    append = copies.store.append

    def full(batch: Any, *, retention: str) -> Any:
        if retention == "forever" and failures:
            failures.pop()
            raise StoreFull("no room")
        return append(batch, retention=retention)

    monkeypatch.setattr(copies.store, "append", full)
    copies.start()
    copies.order(0, T, KEPT)
    await until(lambda: copies.state.read_to == 2)
    assert (copies.bodies(T), copies.bodies(KEPT), failures) == ([b"0"], [b"0"], [])


async def test_a_start_finishes_the_order_that_the_last_one_did_not(
    begin: Callable[[], Copies], until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = begin()
    append = copies.store.append

    def end_before_the_other_log(batch: Any, *, retention: str) -> Any:
        if retention == "forever":
            raise StoreReadOnly("the disk failed")
        return append(batch, retention=retention)

    monkeypatch.setattr(copies.store, "append", end_before_the_other_log)
    copies.start()
    copies.order(0, T, KEPT)
    await until(lambda: copies._task is not None and copies._task.done())
    monkeypatch.undo()
    await copies.aclose()
    await copies.store.aclose()
    again = begin()
    assert (again.bodies(T), again.bodies(KEPT)) == ([b"0"], [])
    again.start()
    await until(lambda: again.state.unfinished is None)
    assert (again.bodies(T), again.bodies(KEPT)) == ([b"0"], [b"0"])


@pytest.mark.parametrize(
    ("queues", "expected"),
    [
        ((T,), [JOURNAL, T, "durable"]),
        ((T, KEPT), [JOURNAL, "durable", T, KEPT, "durable"]),
    ],
)
async def test_an_order_is_durable_before_a_batch_goes_to_the_other_log(
    begin: Callable[[], Copies],
    until: Until,
    monkeypatch: pytest.MonkeyPatch,
    queues: tuple[QueueRef, ...],
    expected: list[Any],
) -> None:
    copies, calls = begin(), list[Any]()
    append, durable = copies.store.append, copies.store.durable

    def noted_append(batch: Any, *, retention: str) -> Any:
        calls.append(read_header(batch).queue)
        return append(batch, retention=retention)

    def noted_durable() -> Any:
        calls.append("durable")
        return durable()

    monkeypatch.setattr(copies.store, "append", noted_append)
    monkeypatch.setattr(copies.store, "durable", noted_durable)
    copies.start()
    copies.order(0, *queues)
    await until(lambda: copies.state.read_to == 2)
    # Behind them the note that the order is carried out.
    assert calls == [*expected, JOURNAL, "durable"]


async def test_a_stop_does_not_wait_for_room_on_the_disk(
    begin: Callable[[], Copies], until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies, refused = begin(), list[str]()

    def full(_: Any, *, retention: str) -> Any:
        refused.append(retention)
        if len(refused) > 9:
            raise AssertionError("it tries again and again")
        raise StoreFull("no room")

    monkeypatch.setattr(copies.store, "append", full)
    copies.start()
    copies.order(0, T)
    await until(lambda: refused)
    await copies.aclose()
    assert len(refused) <= 2


async def test_a_defect_in_one_turn_ends_neither_the_worker_nor_its_order(
    begin: Callable[[], Copies], until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE_MS", 1)
    copies, failures = begin(), [RuntimeError("a defect")]
    made = copies._batches

    def failing(order: Copy) -> Iterator[OrderBatch]:
        if failures:
            raise failures.pop()
        return made(order)

    monkeypatch.setattr(copies, "_batches", failing)
    copies.start()
    copies.order(0, T)
    await until(lambda: copies.state.read_to == 2)
    assert copies.bodies(T) == [b"0"]


async def test_segments_go_up_to_what_is_still_needed_of_the_journal(
    begin: Callable[[], Copies], until: Until
) -> None:
    copies = begin()
    copies.start()
    for number in range(4):
        copies.order(number, T)
        filler = Columns([], [], [], [b"x" * 40_000], [])
        copies.store.append(encode_batch(T, filler, born_first_ms=1), retention="transient")
        await copies.store.durable()
    await until(lambda: copies.state.unfinished is None and not copies.orders)
    segments = copies.store.segments("transient")
    end = segments[-1].base
    # Nothing was kept yet: a start reads the journal from its beginning.
    assert copies.spare(segments, end) == segments[0].base
    assert copies.freed == [max(one.next_offsets.get(JOURNAL, 0) for one in segments[:-1])]
    await copies._log.keep()
    copies.state.lowest = None
    assert copies.spare(segments, end) == end
    copies.state.lowest = 0
    assert copies.spare(segments, end) == segments[0].base
    assert copies.spare(segments, 0) == 0


async def test_segments_go_once_all_in_sync_have_what_made_them_needless(
    begin: Callable[[], Copies], until: Until
) -> None:
    copies = begin()
    copies.start()
    for number in range(4):
        copies.order(number, T)
        filler = Columns([], [], [], [b"x" * 40_000], [])
        copies.store.append(encode_batch(T, filler, born_first_ms=1), retention="transient")
        await copies.store.durable()
    await until(lambda: copies.state.unfinished is None and not copies.orders)
    await copies._log.keep(always=True)
    segments, raw = copies.store.segments("transient"), copies.store.raw
    first, before, found_at = segments[0].base, segments[-1].base, raw.end("transient")
    # A leader acknowledges alone: the replicas lack what made the segments needless, then have that, and lack more.
    raw.keep_from("transient", before)
    assert copies.spare(segments, before) == first
    copies.store.append(
        encode_batch(T, Columns([], [], [], [b"x"], []), born_first_ms=1), retention="transient"
    )
    await copies.store.durable()
    raw.keep_from("transient", found_at - 1)
    assert copies.spare(segments, before) == first
    raw.keep_from("transient", found_at)
    assert copies.spare(segments, before) == before
    # The next offset is believed in the same way.
    copies.state.lowest = 0
    raw.keep_from("transient", raw.end("transient"))
    assert copies.spare(segments, before) == first


async def test_an_order_waits_until_all_in_sync_have_the_one_before(
    begin: Callable[[], Copies], until: Until
) -> None:
    copies = begin()
    raw, logs = copies.store.raw, ("transient", "forever")

    def have(*ends: int) -> None:
        for log, end in zip(logs, ends, strict=True):
            raw.keep_from(log, end)

    # The leader of a group acknowledges alone, and its replica has nothing yet.
    have(0, 0)
    copies.start()
    copies.order(0, KEPT)
    copies.order(1, KEPT)
    await until(lambda: raw._waiting)
    assert (copies.bodies(KEPT), copies.state.read_to) == ([], 1)
    # With the order, but without its message, another leader would carry it out again, with the same sequence.
    have(raw.end("transient"), 0)
    await until(lambda: copies.bodies(KEPT) == [b"0"] and raw._waiting)
    assert copies.state.read_to == 1
    have(raw.end("transient"), raw.end("forever"))
    await until(lambda: copies.state.read_to == 2)
    have(WHOLE_LOG, WHOLE_LOG)
    await until(lambda: copies.bodies(KEPT) == [b"0", b"1"])


async def test_a_stop_waits_for_the_order_under_way_and_keeps_the_state(
    begin: Callable[[], Copies],
) -> None:
    copies = begin()
    copies.start()
    copies.order(0, T)
    await asyncio.sleep(0)
    await copies.aclose()
    assert copies.bodies(T) == [b"0"]
    assert copies._log.kept_to == copies.state.read_to == 1

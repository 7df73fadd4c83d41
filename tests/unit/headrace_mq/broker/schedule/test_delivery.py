import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.broker.journal import worker
from headrace_mq.broker.metadata import topics_file
from headrace_mq.broker.schedule import scheduler as scheduler_module
from headrace_mq.broker.schedule.delivery import (
    BYTES_MAX,
    DEAD_SCHEDULE_QUEUE,
    PRODUCER_ID,
    Deliveries,
)
from headrace_mq.broker.schedule.journal import ScheduledBatch
from headrace_mq.broker.schedule.wheel import Entry
from headrace_mq.broker.topics.topics import Topics
from headrace_mq.errors import InvalidArgument, OffsetOutOfRange, StoreFull
from headrace_mq.message import QueueRef
from headrace_mq.protocol.administration import FreezeQueues
from headrace_mq.protocol.batch import Columns, assign, decode_records, encode_batch, read_header
from headrace_mq.protocol.bodies import CreateTopic
from headrace_mq.protocol.keys import queue_for_key
from headrace_mq.protocol.scheduled import AT_HEADER, SCHEDULE_QUEUE, TOPIC_HEADER

NOW = 1_700_000_000_000
DAY = 24 * 3_600_000
Open = Callable[..., Any]
Until = Callable[[Callable[[], object]], Awaitable[None]]


class ListedJournal:
    """Records in memory, one batch each unless they come together."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end = 0
        self.cold: set[int] = set()
        self.asked: list[int] = []

    def add(self, *bodies: bytes, topic: str = "t", key: str = "") -> list[Entry]:
        headers = [{"a": "b", TOPIC_HEADER: topic, AT_HEADER: str(NOW)}] * len(bodies)
        columns = Columns([key] * len(bodies), [], headers, list(bodies), [])
        batch = encode_batch(SCHEDULE_QUEUE, columns, born_first_ms=NOW)
        assign(batch, base_offset=self.end, position=0, appended_at_ms=NOW, epoch=1)
        self.batches.append(bytes(batch))
        entries = [Entry(NOW, self.end + n, self.end + n) for n in range(len(bodies))]
        self.end += len(bodies)
        return entries

    def read(self, _queue: QueueRef, offset: int, _bytes_max: int) -> list[bytes]:
        if offset > self.end:
            raise OffsetOutOfRange("beyond the end")
        return [batch for batch in self.batches if read_header(batch).next_offset > offset][:1]

    def read_now(self, queue: QueueRef, offset: int, bytes_max: int) -> list[bytes] | None:
        if offset in self.cold:
            self.asked.append(offset)
            return None
        return self.read(queue, offset, bytes_max)


@pytest.fixture
def journal() -> ListedJournal:
    return ListedJournal()


@pytest.fixture
def topics(tmp_path: Path) -> Topics:
    topics = Topics(topics_file(tmp_path), default_queues=4, auto_create=False)
    topics.load([])
    topics.create(CreateTopic("t", 4))
    topics.create(CreateTopic("one", 1))
    return topics


@pytest.fixture
def deliveries(journal: ListedJournal, topics: Topics) -> Deliveries:
    return Deliveries(journal, topics, epoch=3)


def places(parts: list[ScheduledBatch]) -> list[tuple[str, int, int, int]]:
    return [(part.topic, part.queue_id, part.first_sequence, len(part.entries)) for part in parts]


def test_a_key_goes_where_producers_send_it_and_the_others_take_turns(
    journal: ListedJournal, deliveries: Deliveries
) -> None:
    entries = journal.add(b"1", b"2", key="k") + journal.add(*[b"x"] * 8)
    delivery, left = deliveries.prepare(entries)
    assert left == []
    sizes = {part.queue_id: len(part.entries) for part in delivery.parts}
    home = queue_for_key("k", 4)
    assert sizes == {queue: 4 if queue == home else 2 for queue in range(4)}


def test_messages_pass_by_queues_that_are_frozen_for_writing(
    journal: ListedJournal, deliveries: Deliveries, topics: Topics
) -> None:
    topics.freeze(FreezeQueues("t", [3, 1], writing=True, reading=False, frozen=True))
    delivery, _ = deliveries.prepare(journal.add(b"1", key="k") + journal.add(*[b"x"] * 8))
    sizes = {part.queue_id: len(part.entries) for part in delivery.parts}
    home = [0, 2][queue_for_key("k", 2)]
    assert sizes == {queue: 4 + (queue == home) for queue in (0, 2)}


def test_a_topic_that_is_frozen_as_a_whole_takes_what_falls_due(
    journal: ListedJournal, deliveries: Deliveries, topics: Topics
) -> None:
    topics.freeze(FreezeQueues("t", [], writing=True, reading=False, frozen=True))
    delivery, _ = deliveries.prepare(journal.add(b"1", key="k"))
    assert [part.queue_id for part in delivery.parts] == [queue_for_key("k", 4)]


def test_sequences_of_a_queue_go_on_from_delivery_to_delivery(
    journal: ListedJournal, deliveries: Deliveries
) -> None:
    first = deliveries.prepare(journal.add(b"1", b"2", topic="one")).delivery
    second = deliveries.prepare(journal.add(b"3", topic="one")).delivery
    assert places(first.parts) == [("one", 0, 0, 2)]
    assert places(second.parts) == [("one", 0, 2, 1)]
    assert (first.epoch, second.epoch) == (3, 3)


def test_a_batch_has_the_messages_as_they_were_sent_and_is_the_same_each_time(
    journal: ListedJournal, deliveries: Deliveries
) -> None:
    delivery = deliveries.prepare(journal.add(b"1", b"2", topic="one", key="k")).delivery
    batch = deliveries.batch_of(delivery, delivery.parts[0])
    assert batch is not None
    records = decode_records(batch)
    assert [(r.body, r.key, dict(r.headers), r.born_at_ms) for r in records] == [
        (b"1", "k", {"a": "b"}, NOW),
        (b"2", "k", {"a": "b"}, NOW),
    ]
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch) == (PRODUCER_ID, 3)
    assert Deliveries(journal, None, epoch=9).batch_of(delivery, delivery.parts[0]) == batch  # type: ignore[arg-type]  # asks no topic


def test_a_delivery_takes_a_bounded_number_of_bytes_and_one_message_of_any_size(
    journal: ListedJournal, deliveries: Deliveries
) -> None:
    large = [journal.add(b"x" * (BYTES_MAX // 2), topic="one")[0] for _ in range(3)]
    huge = journal.add(b"x" * (BYTES_MAX + 1), topic="one")
    delivery, left = deliveries.prepare(large)
    assert (len(delivery.entries()), left) == (1, large[1:])
    assert len(delivery.parts) == 1
    delivery, left = deliveries.prepare(huge)
    assert (delivery.entries(), left) == (huge, [])


def test_a_delivery_ends_before_what_comes_from_the_disk_and_asks_for_the_rest_too(
    journal: ListedJournal, deliveries: Deliveries
) -> None:
    entries = [journal.add(b"%d" % n, topic="one")[0] for n in range(5)]
    journal.cold = {2, 4}
    delivery, left = deliveries.prepare(entries)
    assert (delivery.entries(), left) == (entries[:2], entries[2:])
    assert journal.asked == [2, 4]
    journal.cold = set()
    delivery, left = deliveries.prepare(left)
    assert (delivery.entries(), left) == (entries[2:], [])


def test_a_message_that_cannot_be_read_is_lost_alone(
    journal: ListedJournal, deliveries: Deliveries
) -> None:
    entries = [journal.add(b"%d" % n, topic="one")[0] for n in range(3)]
    del journal.batches[1]
    beyond = Entry(NOW, 99, 99)
    delivery, _ = deliveries.prepare([*entries, beyond])
    assert delivery.lost == [entries[1], beyond]
    assert delivery.parts[0].entries == [entries[0], entries[2]]
    assert deliveries.event(99) is None


def test_a_message_without_a_topic_goes_to_the_dead_letters_with_all_its_headers(
    journal: ListedJournal, deliveries: Deliveries, topics: Topics
) -> None:
    delivery, _ = deliveries.prepare(journal.add(b"1", topic="gone"))
    assert places(delivery.parts) == [(*DEAD_SCHEDULE_QUEUE, 0, 1)]
    batch = deliveries.batch_of(delivery, delivery.parts[0])
    assert batch is not None
    assert decode_records(batch)[0].headers[TOPIC_HEADER] == "gone"
    assert topics.find(DEAD_SCHEDULE_QUEUE.topic) is not None


def test_a_missing_topic_is_made_where_the_broker_may(
    journal: ListedJournal, tmp_path: Path
) -> None:
    topics = Topics(topics_file(tmp_path / "b"), default_queues=2, auto_create=True)
    topics.load([])
    delivery, _ = Deliveries(journal, topics, epoch=1).prepare(journal.add(b"1", topic="new"))
    assert delivery.parts[0].topic == "new"
    found: Any = topics.find("new")
    assert found.queues == 2


def test_a_refused_part_is_kept_among_the_dead_and_its_queue_waits_for_the_same_sequence(
    journal: ListedJournal, deliveries: Deliveries
) -> None:
    part = deliveries.prepare(journal.add(b"1", topic="one")).delivery.parts[0]
    dead = deliveries.dead_batch_of(part)
    assert dead is not None
    assert (read_header(dead).queue, read_header(dead).producer_id) == (DEAD_SCHEDULE_QUEUE, 0)
    following = deliveries.prepare(journal.add(b"2", topic="one")).delivery.parts[0]
    assert following.first_sequence == part.first_sequence


# --- driven by the scheduler -----------------------------------------------------------------------


async def test_a_full_disk_delays_deliveries_and_loses_none(
    open_schedule: Open, move: Any, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "PAUSE_MS", 1)
    rig = open_schedule()
    rig.full = True
    rig.schedule.start()
    await rig.enter(b"1", b"2", at_ms=0)
    for _ in range(10):
        await asyncio.sleep(0)
    assert (rig.bodies(), rig.schedule.describe().pending) == ([], 2)
    rig.full = False
    await until(lambda: rig.bodies() == [b"1", b"2"])
    append, refused = rig.store.append, []

    def full_at_times(batch: Any, *, retention: str) -> Any:
        refused.append(len(refused) % 3 < 2)
        if refused[-1]:
            raise StoreFull("no room")
        return append(batch, retention=retention)

    await rig.enter(b"3", b"4", at_ms=rig.clock.now + 5)
    monkeypatch.setattr(rig.store, "append", full_at_times)
    move(rig, 5)
    await until(lambda: rig.bodies() == [b"1", b"2", b"3", b"4"])
    assert sum(refused) >= 2


async def test_messages_that_come_from_the_disk_are_delivered_in_order_when_they_are_there(
    open_schedule: Open, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_module, "DISK_MS_MAX", 60_000)
    rig = open_schedule()
    bodies = [b"%d" % n for n in range(4)]
    for body in bodies:
        await rig.enter(body, at_ms=0)
    cold, asked = {1, 3}, asyncio.Event()
    read_now = rig.store.read_now

    def slow(queue: QueueRef, offset: int, bytes_max: int) -> Any:
        if offset in cold:
            asked.set()
            return None
        return read_now(queue, offset, bytes_max)

    monkeypatch.setattr(rig.store, "read_now", slow)
    rig.schedule.start()
    await asked.wait()
    await until(lambda: rig.bodies() == bodies[:1])
    for arrived in (1, 3):
        cold.remove(arrived)
        rig.visible({SCHEDULE_QUEUE})
        await until(lambda: len(rig.bodies()) == (3 if cold else 4))
    assert rig.bodies() == bodies


async def test_messages_to_write_again_may_be_read_from_the_disk(
    open_schedule: Open, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = open_schedule()
    await rig.enter(b"far", delay_ms=DAY)
    read_now, cold = rig.store.read_now, [True]
    monkeypatch.setattr(
        rig.store, "read_now", lambda *given: None if cold.pop() else read_now(*given)
    )
    cold[:] = [False, False, True]
    rig.schedule.start()
    segments = rig.store.segments("transient")
    end = segments[-1].end
    assert rig.schedule.spare(segments, end) == segments[0].base
    await until(lambda: rig.store.range(SCHEDULE_QUEUE) == (0, 2))
    assert rig.schedule.describe().pending == 1


async def test_more_than_one_delivery_takes_is_delivered_in_order(
    open_schedule: Open, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_module, "DELIVERED_MAX", 7)
    rig = open_schedule()
    bodies = [b"%d" % n for n in range(50)]
    await rig.enter(*bodies, at_ms=0)
    rig.schedule.start()
    await until(lambda: len(rig.bodies()) == 50)
    assert rig.bodies() == bodies


async def test_a_queue_that_refuses_a_delivery_sends_it_to_the_dead_letters(
    open_schedule: Open, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = open_schedule()
    append = rig.store.append

    def refuse(batch: Any, *, retention: str) -> Any:
        if retention == "forever":
            raise InvalidArgument("not here")
        return append(batch, retention=retention)

    monkeypatch.setattr(rig.store, "append", refuse)
    await rig.enter(b"1", topic="kept", at_ms=0)
    await rig.enter(b"2", at_ms=0)
    rig.schedule.start()
    await until(lambda: rig.bodies() == [b"2"])
    assert rig.bodies(DEAD_SCHEDULE_QUEUE) == [b"1"]

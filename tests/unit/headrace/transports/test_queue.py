"""The transport over a real broker on loopback."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from headrace.errors import BrokerUnreachable, HeadraceError
from headrace.transports import queue as queue_module
from headrace.transports.base import DAMAGED, Outgoing
from headrace.transports.queue import QueueTransport, _passed_by
from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.server import Broker
from headrace_mq.client.fetch.damage import DAMAGE_HEADER, FIRST_HEADER
from headrace_mq.client.fetch.delivery import RecordDelivery
from headrace_mq.client.trace.tracer import TracedDelivery
from headrace_mq.errors import ConnectionLost, NotLeader
from headrace_mq.message import QueueRef, Record
from headrace_mq.protocol.batch import Columns
from headrace_mq.settings import BrokerSettings, ProducerSettings, StoreSettings
from headrace_mq.testing.clock import ManualClock
from headrace_mq.testing.hostile import hostile_batches


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker on a free port."""
    settings = BrokerSettings(
        store=StoreSettings(directory=tmp_path / "mq", segment_bytes=1 << 20), port=0
    )
    broker = Broker(settings)
    await broker.start()
    yield broker
    await broker.aclose()


@pytest.fixture
async def transport(broker) -> AsyncIterator[QueueTransport]:
    """Connected, with the topic `t` of two queues."""
    transport = QueueTransport(broker.address)
    await transport.start()
    await transport.ensure_topic("t", queues=2, forever=True)
    yield transport
    await transport.aclose()


def outgoing(key: str, body: bytes) -> Outgoing:
    return Outgoing(topic="t", key=key, body=body, tag="tag", headers={"h": "1"})


async def test_what_is_published_arrives_whole_and_in_the_order_of_its_key(transport):
    await asyncio.gather(*[transport.publish(outgoing("k", bytes([n]))) for n in range(50)])
    subscription = await transport.subscribe("g", ["t"])
    received = []
    while len(received) < 50:
        received += await subscription.poll()
    assert [message.body for message in received] == [bytes([n]) for n in range(50)]
    first = received[0]
    assert (first.key, first.tag, first.headers, first.offset) == ("k", "tag", {"h": "1"}, 0)
    assert first.queue[0] == "t"
    await subscription.aclose()


async def test_what_was_acknowledged_is_not_delivered_to_the_next_member(transport):
    for n in range(4):
        await transport.publish(outgoing("k", bytes([n])))
    subscription = await transport.subscribe("g", ["t"])
    received = []
    while len(received) < 4:
        received += await subscription.poll()
    for message in received[:2]:
        subscription.ack(message)
    await subscription.aclose()
    again = await transport.subscribe("g", ["t"])
    assert (await again.poll())[0].body == bytes([2])
    await again.aclose()


async def test_a_caller_who_keeps_the_offsets_decides_where_each_queue_begins(transport):
    for n in range(4):
        await transport.publish(outgoing("k", bytes([n])))
    asked = []

    async def offsets(queues):
        asked.extend(queues)
        return dict.fromkeys(queues, 3)

    # The queue without messages has no offset 3: the consumer takes what there is.
    subscription = await transport.subscribe("g", ["t"], offsets=offsets)
    received = await subscription.poll()
    assert [message.body for message in received] == [bytes([3])]
    assert sorted(asked) == [("t", 0), ("t", 1)]
    subscription.seek(received[0].queue, 1)
    assert (await subscription.poll())[0].body == bytes([1])
    await subscription.aclose()


async def test_a_reply_reaches_the_process_whose_address_it_carries(broker, transport):
    replies: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
    transport.on_reply(lambda correlation, body: replies.put_nowait((correlation, body)))
    other = QueueTransport(broker.address)
    await other.start()
    await other.reply(transport.reply_address, "c-1", b"done")
    assert await replies.get() == ("c-1", b"done")
    await other.aclose()


async def test_a_reply_that_nobody_waits_for_is_dropped(transport):
    await transport.reply("nobody", "c-1", b"done")


async def test_a_broker_that_does_not_answer_in_time_is_a_timeout(tmp_path):
    settings = BrokerSettings(
        store=StoreSettings(directory=tmp_path / "mq", segment_bytes=1 << 20), port=0
    )
    broker = Broker(settings)
    await broker.start()
    transport, clock = QueueTransport(broker.address), ManualClock()
    transport._producer._clock = clock
    await transport.start()
    await transport.ensure_topic("t", queues=1, forever=False)
    await broker.aclose()
    publishing = asyncio.create_task(transport.publish(outgoing("k", b"")))
    await asyncio.sleep(0)
    clock.advance(ProducerSettings().send_timeout_ms)
    with pytest.raises(TimeoutError, match="within 30000 ms"):
        await publishing
    await transport.aclose()


async def test_a_broker_that_is_not_there_is_said_at_start():
    transport = QueueTransport("127.0.0.1:1", producer=ProducerSettings(send_timeout_ms=300))
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1"):
        await transport.start()
    await transport.aclose()


async def test_a_publisher_is_told_the_place_and_a_group_how_far_it_is(transport):
    places = [await transport.publish(outgoing("k", b"")) for _ in range(3)]
    assert [place.offset for place in places] == [0, 1, 2]
    assert len({place.queue for place in places}) == 1
    assert await transport.committed("g", "t") == {}
    subscription = await transport.subscribe("g", ["t"])
    received = []
    while len(received) < 3:
        received += await subscription.poll()
    for message in received[:2]:
        subscription.ack(message)
    await subscription.aclose()
    committed = await transport.committed("g", "t")
    assert committed[places[0].queue] == 2
    assert set(committed.values()) <= {0, 2}


async def test_a_scheduled_message_arrives_by_the_broker_once_it_is_due(transport):
    subscription = await transport.subscribe("later", ["t"])
    await transport.schedule(outgoing("k", b"due"), datetime(2000, 1, 1, tzinfo=UTC))
    (message,) = await subscription.poll()
    assert (message.key, message.body) == ("k", b"due")
    await subscription.aclose()
    with pytest.raises(HeadraceError, match="ahead"):
        await transport.schedule(outgoing("k", b"never"), datetime(9000, 1, 1, tzinfo=UTC))


async def test_who_does_not_wait_is_told_the_place_or_why_there_is_none(transport):
    told: asyncio.Queue = asyncio.Queue()
    assert transport.publish_soon(outgoing("k", b"1"), told.put_nowait)
    place = await told.get()
    assert place.offset == 0
    assert transport.publish_soon(outgoing("k", "no bytes"), told.put_nowait)
    assert isinstance(await told.get(), TypeError)


async def test_a_broker_that_does_not_say_whether_it_took_a_message_is_a_timeout_told(tmp_path):
    broker = Broker(
        BrokerSettings(
            store=StoreSettings(directory=tmp_path / "mq", segment_bytes=1 << 20), port=0
        )
    )
    await broker.start()
    transport, clock = QueueTransport(broker.address), ManualClock()
    transport._producer._clock = clock
    await transport.start()
    await transport.ensure_topic("t", queues=1, forever=True)
    await broker.aclose()
    told: asyncio.Queue = asyncio.Queue()
    assert transport.publish_soon(outgoing("k", b"1"), told.put_nowait)
    clock.advance(ProducerSettings().send_timeout_ms)
    assert isinstance(await told.get(), TimeoutError)
    await transport.aclose()


async def test_a_producer_without_room_takes_nothing(broker):
    transport = QueueTransport(broker.address, producer=ProducerSettings(buffer_bytes_max=1))
    await transport.start()
    await transport.ensure_topic("t", queues=1, forever=True)
    told: asyncio.Queue = asyncio.Queue()
    assert transport.publish_soon(outgoing("k", b"1"), told.put_nowait)
    assert not transport.publish_soon(outgoing("k", b"2"), told.put_nowait)
    assert (await told.get()).offset == 0
    await transport.aclose()


async def test_what_waits_is_counted_from_an_offset_and_dated_by_its_first_message(transport):
    before = datetime.now(UTC).replace(microsecond=0)
    place = await transport.publish(outgoing("k", b"0"))
    await transport.publish(outgoing("k", b"1"))
    for offset, count in ((0, 2), (1, 1), (2, 0)):
        found = await transport.waiting("t", {place.queue: offset})
        assert [each.queue for each in found] == [("t", 0), ("t", 1)]
        mine, other = found[place.queue], found[1 - place.queue]
        assert (mine.end, mine.count, other.end, other.count) == (2, count, 0, 0)
        assert other.since is None
        if count:
            assert before <= mine.since <= datetime.now(UTC)
        else:
            assert mine.since is None


async def test_what_nobody_can_decode_is_passed_by_and_counted(broker, transport):
    await transport.publish(outgoing("k", b"first"))
    ranges = await transport.waiting("t", {})
    (number,) = [one.queue[1] for one in ranges if one.end]
    store = broker._state.store
    store.append(hostile_batches(QueueRef("t", number))["no msgpack"], retention="forever")
    await store.durable()

    async def offsets(_queues):
        return {}

    keeping = await transport.subscribe("keeping", ["t"], offsets=offsets)
    received = []
    while len(received) < 2:
        received += await keeping.poll()
    assert [(one.offset, one.body) for one in received] == [(0, b"first"), (3, b"")]
    assert received[1].headers == {"kind": "rejection", DAMAGED: "1"}
    assert transport.damaged() == {"t": 3}
    await keeping.aclose()


async def test_groups_that_an_operator_paused_are_told_whether_they_are_its_own_or_not(
    broker, transport
):
    mine = await transport.subscribe("mine", ["t"])
    async with AdminClient(broker.address) as admin:
        for group in ("mine", "others"):
            await admin.set_group(group, consume=False)
        await admin.set_group("on", retries=1)
        assert await transport.paused() == ["mine"]
        assert await transport.paused(["others", "nobody", "on"]) == ["others"]
        await admin.set_group("mine", consume=True)
        assert await transport.paused() == []
    await mine.aclose()


async def test_a_process_with_a_name_has_it_in_every_group_and_as_a_producer(broker):
    async with AdminClient(broker.address) as admin:
        transport = QueueTransport(broker.address, name="till-3")
        await transport.start()
        await transport.ensure_topic("t", queues=2, forever=True)
        subscriptions = [await transport.subscribe(group, ["t"]) for group in ("g", "h")]
        for group in ("g", "h"):
            assert [one.member for one in (await admin.group(group)).members] == ["till-3"]
        assert transport.reply_address.startswith("till-3/")
        for subscription in subscriptions:
            await subscription.aclose()
        await transport.aclose()


@pytest.mark.parametrize(("share", "traced"), [(0.0, False), (0.01, True)])
async def test_a_subscription_looks_at_messages_for_a_trace_only_where_that_is_asked(
    broker, share: float, traced: bool
):
    transport = QueueTransport(broker.address, trace_share=share)
    await transport.start()
    await transport.ensure_topic("t", queues=2, forever=True)
    subscription = await transport.subscribe("g", ["t"])
    consumer = subscription._consumer
    assert (consumer._tracer is not None) is traced
    # Without a trace no message passes any code of it.
    assert type(consumer._delivering) is (TracedDelivery if traced else RecordDelivery)
    await subscription.aclose()
    await transport.aclose()


async def test_what_is_not_held_at_the_end_is_left_out_when_it_is_read(transport):
    place = await transport.publish(outgoing("k", b"first"))
    await transport.publish(outgoing("k", b"last"))
    pages = [page async for page in transport.read(("t", place.queue), 0, 5)]
    assert [each.body for page in pages for each in page] == [b"first", b"last"]


async def test_a_group_hears_of_damage_by_a_message_where_that_is_wished(broker, transport):
    place = await transport.publish(outgoing("k", b"first"))
    store = broker._state.store
    store.append(hostile_batches(QueueRef("t", place.queue))["no msgpack"], retention="forever")
    await store.durable()
    await transport.publish(outgoing("k", b"last"))
    transport.mark_damage("t")
    group = await transport.subscribe("g", ["t"])
    received = []
    while len(received) < 3:
        received += await group.poll()
    assert [(one.offset, one.body) for one in received] == [(0, b"first"), (3, b""), (4, b"last")]
    # Until it is acknowledged, the group does not stand behind it.
    group.ack(received[0])
    group.ack(received[2])
    await group.aclose()
    assert (await transport.committed("g", "t"))[place.queue] == 3
    again = await transport.subscribe("g", ["t"])
    (met, *_) = await again.poll()
    assert (met.offset, met.headers) == (3, {"kind": "rejection", DAMAGED: "3"})
    await again.aclose()


@pytest.mark.parametrize("first", ["", "x", "-1", "9" * 30, "7"])
def test_what_a_client_makes_look_like_a_marker_stands_for_itself(first):
    headers = {DAMAGE_HEADER: "no reason", FIRST_HEADER: first}
    record = Record(
        queue=QueueRef("t", 0), offset=5, key="", tag="", headers=headers, body=b"", born_at_ms=0,
        stored_at_ms=0,
    )  # fmt: skip
    assert _passed_by(record).headers == {"kind": "rejection", DAMAGED: "5"}


async def test_a_read_goes_on_from_the_next_leader_of_a_group(monkeypatch):
    asked = []

    class Reader:
        """Ends after each batch of two, as the leader changes."""

        def __init__(self, _address):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def read(self, _queue, start, end, **_):
            asked.append(start)
            if len(asked) == 2:
                raise ConnectionLost("closed by the broker")
            header = SimpleNamespace(base_offset=start, appended_at_ms=5_000)
            yield header, Columns([], [], [], [b"%d" % start, b"%d" % (start + 1)], []), 0, 2
            if start + 2 < end:
                raise NotLeader("it hands over")

    monkeypatch.setattr(queue_module, "BlockingReader", Reader)
    monkeypatch.setattr(queue_module, "_LEADER_PAUSE_MS", 0)
    transport = QueueTransport("a:1,b:1")
    found = [each.body async for page in transport.read(("t", 0), 0, 4) for each in page]
    assert found == [b"0", b"1", b"2", b"3"]
    assert asked == [0, 2, 2]
    stored = queue_module._stored_at("a:1,b:1", {QueueRef("t", 0): 4, QueueRef("t", 1): 7})
    assert {number: at.timestamp() for number, at in stored.items()} == {0: 5.0, 1: 5.0}


@pytest.mark.parametrize(
    ("address", "tries"), [("a:1", 1), ("a:1,b:1", queue_module._LEADER_TRIES_MAX + 1)]
)
async def test_a_read_is_tried_again_in_a_group_alone_and_not_for_ever(monkeypatch, address, tries):
    asked = []

    def refuse(place):
        asked.append(place)
        raise NotLeader("a replica")

    monkeypatch.setattr(queue_module, "BlockingReader", refuse)
    monkeypatch.setattr(queue_module, "_LEADER_PAUSE_MS", 0)
    with pytest.raises(NotLeader):
        [page async for page in QueueTransport(address).read(("t", 0), 0, 4)]
    assert len(asked) == tries


async def test_a_topic_says_where_messages_have_changed_since_an_epoch(
    broker, transport, monkeypatch
):
    def changed_from(_state, queue, epoch):
        return queue.queue_id + epoch

    monkeypatch.setattr(type(broker._state), "changed_from", changed_from)
    lineage = await transport.topic_lineage("t", {1: 4})
    assert lineage.epochs == {0: broker._state.epoch, 1: broker._state.epoch}
    assert lineage.changed == {1: 5}
    assert (await transport.topic_lineage("t")).changed == {}

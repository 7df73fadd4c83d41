"""Transactions and scheduled messages over the wire."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace_mq.client.producer.producer import Producer
from headrace_mq.errors import (
    BrokerStopping,
    InvalidArgument,
    ResponseCode,
    ScheduleFull,
    StoreFull,
    TopicInUse,
)
from headrace_mq.message import Message, QueueRef
from headrace_mq.protocol.administration import DeleteQueues, FreezeQueues
from headrace_mq.protocol.batch import Columns, decode_records, encode_batch
from headrace_mq.protocol.bodies import (
    CreateTopic,
    JoinGroup,
    QueueRanges,
    QueueRangesAnswer,
    decode,
    encode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import FLAG_ONEWAY
from headrace_mq.protocol.scheduled import (
    AT_HEADER,
    DELAY_HEADER,
    SCHEDULE_QUEUE,
    SCHEDULE_TOPIC,
    TOPIC_HEADER,
    CancelledScheduled,
    CancelScheduled,
    ScheduleDescription,
)
from headrace_mq.protocol.transactions import (
    TRANSACTION_QUEUE,
    TRANSACTION_TOPIC,
    Bundle,
    BundleEnds,
    BundlePart,
    ChecksAnswer,
    EndTransactions,
    TakeChecks,
    TransactionsDescription,
    TransactionsEnded,
)


def offer(**fields: int) -> bytearray:
    inner = encode_batch(QueueRef("t", 0), Columns([], [], [], [b"1", b"2"], []), born_first_ms=1)
    bundle = Bundle("g", "client", ["a", "b"], [BundlePart(bytes(inner), [0, 1])])
    columns = Columns([], [], [], [encode(bundle)], [])
    return encode_batch(TRANSACTION_QUEUE, columns, born_first_ms=1, **fields)


async def held(client: Any) -> int:
    """How many messages the topic has."""
    answer = await client.ask(RequestCode.QUEUE_RANGES, QueueRanges(["t"]))
    return decode(QueueRangesAnswer, answer).ranges[0].end


async def test_a_transaction_is_prepared_by_producing_and_decided_by_its_number(
    client: Any,
) -> None:
    await client.create("t")
    (stored,) = (await client.produce(offer(producer_id=9))).results
    assert (stored.code, await held(client)) == (ResponseCode.OK, 0)
    (again,) = (await client.produce(offer(producer_id=9))).results
    assert (again.base_offset, again.duplicate) == (stored.base_offset, True)
    described = await client.ask(RequestCode.DESCRIBE_TRANSACTIONS)
    assert decode(TransactionsDescription, described).undecided == 2
    ends = EndTransactions("g", [BundleEnds(stored.base_offset, [0], [1])])
    for _ in range(2):
        answer = decode(TransactionsEnded, await client.ask(RequestCode.END_TRANSACTIONS, ends))
        assert answer.otherwise == []
    assert await held(client) == 1


async def test_decisions_on_nothing_are_refused(client: Any) -> None:
    ends = EndTransactions("g", [BundleEnds(0, [0], [])])
    refusal = await client.refusal(RequestCode.END_TRANSACTIONS, ends)
    assert isinstance(refusal, InvalidArgument)


async def test_a_request_for_checks_waits_and_is_answered_with_nothing_in_the_end(
    client: Any,
) -> None:
    answer = await client.ask(RequestCode.TAKE_CHECKS, TakeChecks("g", "client", 1))
    assert decode(ChecksAnswer, answer).checks == []


async def test_a_transaction_that_stays_undecided_is_asked_for(
    start: Callable[..., Awaitable[Any]], connect: Any, clock: Any
) -> None:
    broker = await start(clock=clock, transaction_timeout_ms=1_000)
    client = await connect(broker)
    await client.create("t")
    await client.produce(offer())
    asked = client.send(RequestCode.TAKE_CHECKS, TakeChecks("g", "client", 15_000))
    # The broker has it when it has answered what came behind.
    assert await held(client) == 0
    clock.now += 1_000
    clock.monotonic += 1_000
    other = await connect(broker, "other")
    await other.ask(RequestCode.TAKE_CHECKS, TakeChecks("none", "other", 0))
    checks = decode(ChecksAnswer, (await client.answer(asked)).body).checks
    assert [check.transaction_id for check in checks] == ["a", "b"]


@pytest.mark.parametrize(
    "request_", [TakeChecks("", "c", 1), TakeChecks("g", "", 1), TakeChecks("g", "c", -1)]
)
async def test_a_senseless_request_for_checks_is_refused(client: Any, request_: TakeChecks) -> None:
    refusal = await client.refusal(RequestCode.TAKE_CHECKS, request_)
    assert isinstance(refusal, InvalidArgument)


async def test_clients_cannot_consume_the_journal_or_append_under_its_producer_id(
    client: Any, batch: Any
) -> None:
    join = JoinGroup("g", "m", [TRANSACTION_TOPIC], [])
    assert isinstance(await client.refusal(RequestCode.JOIN_GROUP, join), InvalidArgument)
    await client.create("t")
    (own,) = (await client.produce(batch("t", producer_id=2))).results
    (junk,) = (await client.produce(batch(TRANSACTION_TOPIC))).results
    assert own.code == junk.code == ResponseCode.INVALID_ARGUMENT


HOUR = 3_600_000


def sealed(*bodies: bytes, topic: str = "t", **when: int) -> bytearray:
    ((name, ms),) = when.items()
    header = {"at_ms": AT_HEADER, "delay_ms": DELAY_HEADER}[name]
    headers = [{TOPIC_HEADER: topic, header: str(ms)}] * len(bodies)
    columns = Columns([], [], headers, list(bodies), [])
    return encode_batch(SCHEDULE_QUEUE, columns, born_first_ms=1)


async def describe(client) -> ScheduleDescription:
    return decode(ScheduleDescription, await client.ask(RequestCode.DESCRIBE_SCHEDULE))


async def cancel(client, number: int) -> bool:
    body = await client.ask(RequestCode.CANCEL_SCHEDULED, CancelScheduled(number))
    return decode(CancelledScheduled, body).cancelled


async def test_a_message_is_scheduled_by_producing_it_and_can_be_cancelled_once(
    start, connect, clock
) -> None:
    client = await connect(await start(clock=clock))
    (stored,) = (await client.produce(sealed(b"1", b"2", delay_ms=HOUR))).results
    assert (stored.code, stored.base_offset) == (ResponseCode.OK, 0)
    assert await describe(client) == ScheduleDescription(2, clock.now + HOUR, 0)
    assert await cancel(client, 1) is True
    assert await cancel(client, 1) is False
    assert await cancel(client, -1) is False
    assert (await describe(client)).pending == 1


async def test_a_due_message_reaches_its_queue_in_a_running_broker(
    start, connect, clock, until
) -> None:
    broker = await start(clock=clock)
    client = await connect(broker)
    await client.create("t")
    await client.produce(sealed(b"1", at_ms=clock.now + 5))
    clock.now += 5
    broker._state.scheduler.look()
    store, queue = broker._state.store, QueueRef("t", 0)
    await until(lambda: store.range(queue) == (0, 1))
    (record,) = decode_records(store.read(queue, 0, 1)[0])
    assert (record.body, dict(record.headers)) == (b"1", {})


async def test_the_schedule_outlives_the_broker(start, connect, clock) -> None:
    first = await start(clock=clock)
    await (await connect(first)).produce(sealed(b"1", delay_ms=HOUR))
    await first.aclose()
    client = await connect(await start(clock=clock))
    assert await describe(client) == ScheduleDescription(1, clock.now + HOUR, 0)
    clock.now += 2 * HOUR
    assert (await describe(client)).late_ms in {0, HOUR}


async def test_messages_that_cannot_be_scheduled_are_refused_without_a_trace(
    start, connect, clock
) -> None:
    client = await connect(await start(clock=clock, scheduled_max=1))
    plain = encode_batch(SCHEDULE_QUEUE, Columns([], [], [], [b"x"], []), born_first_ms=1)
    refused = await client.produce(
        plain, sealed(b"x", topic="no spaces", at_ms=0), sealed(b"1", b"2", delay_ms=HOUR)
    )
    assert [result.code for result in refused.results] == [
        InvalidArgument.code,
        InvalidArgument.code,
        ScheduleFull.code,
    ]
    assert (await describe(client)).pending == 0


async def test_the_journal_always_has_one_queue(client) -> None:
    many = CreateTopic(SCHEDULE_TOPIC, 2)
    kept = CreateTopic(SCHEDULE_TOPIC, 1, "forever")
    for request in (many, kept):
        assert isinstance(await client.refusal(RequestCode.CREATE_TOPIC, request), InvalidArgument)
    await client.create(SCHEDULE_TOPIC, 0)
    await client.create(SCHEDULE_TOPIC, 1)
    frozen = FreezeQueues(SCHEDULE_TOPIC, [], writing=True, reading=True, frozen=True)
    await client.ask(RequestCode.FREEZE_QUEUES, frozen)
    deleted = await client.refusal(RequestCode.DELETE_QUEUES, DeleteQueues(SCHEDULE_TOPIC))
    assert isinstance(deleted, TopicInUse)


async def test_a_cancellation_that_is_not_durable_is_answered_with_the_failure(
    broker, client, monkeypatch
) -> None:
    await client.produce(sealed(b"1", delay_ms=HOUR))
    failed = asyncio.get_running_loop().create_future()
    failed.set_exception(StoreFull("there is no room on the disk now"))
    monkeypatch.setattr(broker._state.scheduler, "cancel", lambda number: failed)
    request = CancelScheduled(0)
    assert isinstance(await client.refusal(RequestCode.CANCEL_SCHEDULED, request), StoreFull)
    client.send(RequestCode.CANCEL_SCHEDULED, request, flags=FLAG_ONEWAY)
    monkeypatch.setattr(broker._state, "stopping", True)
    stopping = await client.refusal(RequestCode.CANCEL_SCHEDULED, request)
    assert isinstance(stopping, BrokerStopping)
    monkeypatch.setattr(broker._state, "stopping", False)
    assert client.answers == {}


async def test_a_full_schedule_refuses_messages_at_once_and_accepts_them_again_later(start) -> None:
    broker = await start(scheduled_max=1)
    message = Message(topic="t", body=b"x")
    async with Producer(broker.address) as producer:
        first = await producer.schedule(message, level="1h")
        with pytest.raises(ScheduleFull, match="scheduled_max"):
            await producer.schedule(message, level="1h")
        assert await producer.cancel(first.id)
        assert (await producer.schedule(message, level="1h")).id > first.id

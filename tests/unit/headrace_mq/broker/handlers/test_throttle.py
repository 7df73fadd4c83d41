import asyncio

import pytest

from headrace_mq.errors import BrokerStopping, ResponseCode, Throttled
from headrace_mq.protocol.administration import BrokerStatus
from headrace_mq.protocol.batch import decode_records, split_batches
from headrace_mq.protocol.bodies import (
    Fetch,
    FetchFrom,
    Heartbeat,
    ProduceAnswer,
    QueueRanges,
    QueueRangesAnswer,
    decode,
    decode_fetch_answer,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import FLAG_ONEWAY
from headrace_mq.protocol.limits import NO_RATES, QuotasAnswer, Rates, SetQuota

# Slow enough that no real time of a test makes a difference to what the broker's clock allows, and
# quick enough that the broker looks at it several times in a second.
A_SECOND = 1_000
WAIT_MS_MAX = 500


@pytest.fixture
async def slow(start, clock):
    """A broker that lets a topic have ten messages a second, by a clock that stands still."""
    return await start(
        clock=clock, topic_produce_messages=10, topic_fetch_messages=10, throttle_ms_max=WAIT_MS_MAX
    )


async def held(client, count: int) -> None:
    """Waits until so many requests wait; every one before was read by then."""
    while (await waiting(client)) != count:
        pass


async def waiting(client) -> int:
    return decode(BrokerStatus, await client.ask(RequestCode.BROKER_STATUS)).held


async def ends(client, topic: str = "t") -> int:
    body = await client.ask(RequestCode.QUEUE_RANGES, QueueRanges([topic]))
    return decode(QueueRangesAnswer, body).ranges[0].end


def ten(batch, topic: str = "t") -> bytearray:
    return batch(topic, 0, *[b"x"] * 10)


async def test_a_request_above_the_quota_is_stored_when_its_time_has_come(
    slow, connect, batch, clock
) -> None:
    client = await connect(slow)
    await client.create("t", 1)
    await client.produce(ten(batch))
    late = client.send(RequestCode.PRODUCE, ten(batch))
    await held(client, 1)
    assert await ends(client) == 10
    clock.monotonic += A_SECOND
    answer = decode(ProduceAnswer, (await client.answer(late)).body)
    assert answer.results[0].base_offset == 10


async def test_messages_after_a_held_request_keep_their_order_and_other_requests_do_not_wait(
    slow, connect, batch, clock
) -> None:
    client = await connect(slow)
    await client.create("t", 1)
    await client.create("free", 1)
    await client.produce(ten(batch))
    first = client.send(RequestCode.PRODUCE, batch("t", 0, b"first"))
    second = client.send(RequestCode.PRODUCE, batch("free", 0, b"second"))
    await held(client, 2)
    await client.ask(RequestCode.HEARTBEAT, Heartbeat("", "", []))
    clock.monotonic += A_SECOND
    for correlation in (first, second):
        assert (await client.answer(correlation)).code == ResponseCode.OK


async def test_another_connection_of_the_same_host_brings_nothing_more(
    start, connect, batch, clock
) -> None:
    broker = await start(clock=clock, client_produce_messages=10)
    one, other = await connect(broker, "one"), await connect(broker, "other")
    await one.create("t", 1)
    await one.produce(ten(batch))
    late = other.send(RequestCode.PRODUCE, ten(batch))
    await held(other, 1)
    assert await ends(other) == 10
    clock.monotonic += A_SECOND
    assert (await other.answer(late)).code == ResponseCode.OK


async def test_a_request_held_for_too_long_is_refused_and_not_stored(
    slow, connect, batch, clock
) -> None:
    client = await connect(slow)
    await client.create("t", 1)
    await client.produce(batch("t", 0, *[b"x"] * 100))
    late = client.send(RequestCode.PRODUCE, ten(batch))
    await held(client, 1)
    clock.monotonic += WAIT_MS_MAX
    assert (await client.answer(late)).code == ResponseCode.THROTTLED
    assert await ends(client) == 100


async def test_a_fetch_brings_what_the_quota_allows_and_the_next_one_comes_later(
    slow, connect, batch, clock
) -> None:
    client = await connect(slow)
    await client.create("t", 1)
    for _ in range(3):
        clock.monotonic += A_SECOND
        await client.produce(ten(batch))
    clock.monotonic += A_SECOND

    def records(body: memoryview) -> list[int]:
        _, batches = decode_fetch_answer(body)
        return [one.offset for part in split_batches(batches) for one in decode_records(part)]

    first = await client.ask(RequestCode.FETCH, Fetch([FetchFrom("t", 0, 0)], 1 << 20, 0))
    assert records(first) == [*range(10)]
    late = client.send(RequestCode.FETCH, Fetch([FetchFrom("t", 0, 10)], 1 << 20, 0))
    await held(client, 1)
    clock.monotonic += A_SECOND
    assert records((await client.answer(late)).body) == [*range(10, 20)]


async def test_a_parked_fetch_that_owes_waits_for_its_quota_when_messages_come(
    slow, connect, batch, clock
) -> None:
    client = await connect(slow)
    await client.create("t", 1)
    parked = [
        client.send(RequestCode.FETCH, Fetch([FetchFrom("t", 0, 0)], 1 << 20, 15_000))
        for _ in range(2)
    ]
    await client.produce(ten(batch))
    await held(client, 1)
    assert (await client.answer(parked[0])).code == ResponseCode.OK
    clock.monotonic += A_SECOND
    assert (await client.answer(parked[1])).code == ResponseCode.OK


async def test_a_quota_that_is_removed_lets_through_at_once_what_waits(
    start, connect, batch, clock
) -> None:
    client = await connect(await start(clock=clock))
    await client.create("t", 1)
    await client.ask(RequestCode.SET_QUOTA, SetQuota("topic", "t", Rates(produce_messages=1)))
    await client.produce(ten(batch))
    late = client.send(RequestCode.PRODUCE, ten(batch))
    await held(client, 1)
    await client.ask(RequestCode.SET_QUOTA, SetQuota("topic", "t", NO_RATES, remove=True))
    assert (await client.answer(late)).code == ResponseCode.OK


async def test_a_throttled_client_appears_in_the_description(slow, connect, batch, clock) -> None:
    client = await connect(slow)
    await client.create("t", 1)
    await client.produce(ten(batch))
    late = client.send(RequestCode.PRODUCE, ten(batch))
    await held(client, 1)
    clock.monotonic += A_SECOND
    await client.answer(late)
    answer = decode(QuotasAnswer, await client.ask(RequestCode.DESCRIBE_QUOTAS))
    (told,) = answer.throttled
    assert (told.kind, told.name, told.way, told.requests) == ("topic", "t", "produce", 1)
    assert told.waited_ms == A_SECOND


async def test_an_oneway_request_waits_as_well_and_is_answered_never(
    slow, connect, batch, clock
) -> None:
    client = await connect(slow)
    await client.create("t", 1)
    await client.produce(ten(batch))
    client.send(RequestCode.PRODUCE, ten(batch), flags=FLAG_ONEWAY)
    await held(client, 1)
    clock.monotonic += A_SECOND
    await held(client, 0)
    while await ends(client) != 20:
        pass
    assert client.answers == {}


async def test_a_damaged_batch_is_refused_by_itself_though_there_are_quotas(
    slow, connect, batch
) -> None:
    client = await connect(slow)
    await client.create("t", 1)
    damaged = batch("t", 0, b"x")
    damaged[-1] ^= 1
    answer = await client.produce(damaged, batch("t", 0, b"y"))
    assert [one.code for one in answer.results] == [ResponseCode.CORRUPT_BATCH, ResponseCode.OK]


async def test_names_that_are_no_topics_are_not_counted(slow, connect) -> None:
    client = await connect(slow)
    for number in range(5):
        asked = Fetch([FetchFrom(f"made.up.{number}", 0, 0)], 1 << 20, 0)
        await client.ask(RequestCode.FETCH, asked)
    assert len(slow._state.quotas) == 0


async def test_a_connection_that_goes_away_takes_along_what_waits(
    slow, connect, batch, clock
) -> None:
    client, other = await connect(slow), await connect(slow, "other")
    await client.create("t", 1)
    await client.produce(ten(batch))
    client.send(RequestCode.PRODUCE, ten(batch))
    await held(client, 1)
    client.writer.transport.abort()
    await held(other, 0)
    clock.monotonic += A_SECOND
    assert await ends(other) == 10


async def test_a_broker_that_stops_refuses_what_waits(slow, connect, batch) -> None:
    client = await connect(slow)
    await client.create("t", 1)
    await client.produce(ten(batch))
    late = client.send(RequestCode.PRODUCE, ten(batch))
    await held(client, 1)
    stopping = asyncio.create_task(slow.aclose())
    assert (await client.answer(late)).code == BrokerStopping.code
    await stopping


async def test_the_error_of_a_refusal_may_be_tried_again(slow, connect, batch, clock) -> None:
    assert Throttled.retriable
    client = await connect(slow)
    await client.create("t", 1)
    again = {"producer_id": 7, "first_sequence": 0}
    await client.produce(batch("t", 0, *[b"x"] * 60))
    refused = client.send(RequestCode.PRODUCE, batch("t", 0, b"y", **again))
    await held(client, 1)
    clock.monotonic += WAIT_MS_MAX
    assert (await client.answer(refused)).code == ResponseCode.THROTTLED
    clock.monotonic += 10 * A_SECOND
    answer = await client.produce(batch("t", 0, b"y", **again))
    assert (answer.results[0].base_offset, answer.results[0].duplicate) == (60, False)


async def test_requests_check_no_quota_if_none_is_set(client, batch, monkeypatch) -> None:
    def never(*_: object) -> bool:
        raise AssertionError("asked for quotas")

    for name in ("produce.hold_produce", "fetch.hold_fetch", "fetch.room_to_fetch"):
        monkeypatch.setattr(f"headrace_mq.broker.handlers.{name}", never)
    await client.create("t", 1)
    parked = client.send(RequestCode.FETCH, Fetch([FetchFrom("t", 0, 0)], 1 << 20, 15_000))
    answer = await client.produce(batch("t", 0, b"x"))
    assert answer.results[0].code == ResponseCode.OK
    assert (await client.answer(parked)).code == ResponseCode.OK
    await client.ask(RequestCode.SET_QUOTA, SetQuota("topic", "t", Rates(produce_messages=1)))
    # The same look tells that there is one now.
    refused = await client.refusal(RequestCode.PRODUCE, batch("t", 0, b"x"))
    assert refused.code == ResponseCode.INTERNAL_ERROR


async def test_a_client_that_reads_nothing_gets_nothing_more_when_its_quota_has_room(
    slow, connect, batch, clock, monkeypatch
) -> None:
    client, other = await connect(slow), await connect(slow, "other")
    await client.create("t", 1)
    await client.produce(ten(batch))
    asked = Fetch([FetchFrom("t", 0, 0)], 1 << 20, 0)
    await client.ask(RequestCode.FETCH, asked)
    late = client.send(RequestCode.FETCH, asked)
    await held(other, 1)
    connection = slow._state.clients["client"]
    with monkeypatch.context() as full:
        full.setattr(type(connection), "congested", property(lambda one: one is connection))
        clock.monotonic += A_SECOND
        await held(other, 0)
        assert len(slow._state.long_poll) == 1
    slow._state.long_poll.wake_connection(connection)
    assert (await client.answer(late)).code == ResponseCode.OK
    assert len(slow._state.long_poll) == 0

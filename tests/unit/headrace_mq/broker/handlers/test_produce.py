import asyncio

from headrace_mq.errors import (
    BrokerStopping,
    MalformedRequest,
    ResponseCode,
    StoreReadOnly,
    UnsupportedVersion,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.administration import FreezeQueues
from headrace_mq.protocol.batch import Columns, decode_records, encode_batch, split_batches
from headrace_mq.protocol.bodies import (
    Fetch,
    FetchFrom,
    QueueRanges,
    QueueRangesAnswer,
    decode,
    decode_fetch_answer,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import FLAG_ONEWAY
from headrace_mq.store.log.commit_gate import Durable


async def stored(client, topic: str, queue_id: int = 0) -> list[bytes]:
    request = Fetch([FetchFrom(topic, queue_id, 0)], 1 << 20, 5_000)
    _, batches = decode_fetch_answer(await client.ask(RequestCode.FETCH, request))
    return [record.body for view in split_batches(batches) for record in decode_records(view)]


async def end_of(client, topic: str) -> int:
    body = await client.ask(RequestCode.QUEUE_RANGES, QueueRanges([topic]))
    return decode(QueueRangesAnswer, body).ranges[0].end


async def test_each_batch_gets_its_offset_in_its_queue(client, batch) -> None:
    await client.create("t", 2)
    answer = await client.produce(
        batch("t", 0, b"a", b"b"), batch("t", 1, b"c"), batch("t", 0, b"d")
    )
    assert [(item.queue_id, item.base_offset, item.code) for item in answer.results] == [
        (0, 0, 0),
        (1, 0, 0),
        (0, 2, 0),
    ]
    assert await stored(client, "t", 0) == [b"a", b"b", b"d"]


async def test_naming_an_unknown_topic_creates_it(client, batch) -> None:
    answer = await client.produce(batch("new.topic", 3))
    assert answer.results[0].code == ResponseCode.OK


async def test_one_refused_batch_leaves_the_others_stored(client, batch) -> None:
    await client.create("t", 1)
    damaged = batch("t", 0, b"damaged")
    damaged[-1] ^= 1
    answer = await client.produce(
        batch("t", 0, b"a"),
        damaged,
        batch("t", 7),
        batch("no spaces allowed", 0),
        batch("t", 0, b"b"),
    )
    assert [item.code for item in answer.results] == [
        ResponseCode.OK,
        ResponseCode.CORRUPT_BATCH,
        ResponseCode.QUEUE_NOT_FOUND,
        ResponseCode.INVALID_ARGUMENT,
        ResponseCode.OK,
    ]
    assert all(item.sentence for item in answer.results if item.code)
    assert await stored(client, "t") == [b"a", b"b"]


async def test_an_unknown_topic_is_refused_where_topics_are_created_by_hand(
    start, connect, batch
) -> None:
    client = await connect(await start(auto_create_topics=False))
    answer = await client.produce(batch("t", 0))
    assert answer.results[0].code == ResponseCode.TOPIC_NOT_FOUND


async def test_a_message_without_a_key_is_refused_by_a_compacted_topic(client, batch) -> None:
    await client.create("t", 1, "compact")
    keyed = encode_batch(
        QueueRef("t", 0), Columns(["k"], [], [], [b"a"], []), born_first_ms=1, codec="zstd"
    )
    answer = await client.produce(batch("t", 0, b"x", b"y"), keyed)
    refused, taken = answer.results
    assert (refused.code, taken.code) == (ResponseCode.INVALID_ARGUMENT, ResponseCode.OK)
    assert "2 of 2 messages have none; send each with a key" in refused.sentence
    assert await stored(client, "t") == [b"a"]


async def test_a_repeated_batch_is_answered_with_its_first_offset(client, batch) -> None:
    await client.create("t", 1)
    again = {"producer_id": 7, "first_sequence": 0}
    first = await client.produce(batch("t", 0, b"a", **again))
    second = await client.produce(batch("t", 0, b"a", **again))
    assert (first.results[0].base_offset, first.results[0].duplicate) == (0, False)
    assert (second.results[0].base_offset, second.results[0].duplicate) == (0, True)
    assert await stored(client, "t") == [b"a"]


async def test_a_repeated_batch_is_not_refused_after_its_queue_was_frozen(client, batch) -> None:
    await client.create("t", 1)
    first, second = (batch("t", 0, b"a", producer_id=7, first_sequence=n) for n in range(2))
    await client.produce(first)
    await client.ask(RequestCode.FREEZE_QUEUES, FreezeQueues("t", [0], True, False, True))
    damaged = bytearray(first)
    damaged[-1] ^= 1
    answer = await client.produce(first, second, damaged)
    assert [(item.base_offset, item.code) for item in answer.results] == [
        (0, ResponseCode.OK),
        (-1, ResponseCode.QUEUE_FROZEN),
        (-1, ResponseCode.CORRUPT_BATCH),
    ]
    assert await stored(client, "t") == [b"a"]


async def test_a_missing_sequence_is_refused(client, batch) -> None:
    await client.create("t", 1)
    await client.produce(batch("t", 0, producer_id=7, first_sequence=0))
    answer = await client.produce(batch("t", 0, producer_id=7, first_sequence=5))
    assert answer.results[0].code == ResponseCode.SEQUENCE_GAP


async def test_bytes_behind_the_last_batch_refuse_the_whole_request(client, batch) -> None:
    await client.create("t", 1)
    error = await client.refusal(RequestCode.PRODUCE, batch("t", 0) + b"stray")
    assert isinstance(error, MalformedRequest)
    assert await client.closed()


async def test_a_request_that_was_refused_as_a_whole_stored_nothing(
    broker, connect, client, batch
) -> None:
    await client.create("t", 1)
    await client.refusal(RequestCode.PRODUCE, batch("t", 0) + b"stray")
    assert await end_of(await connect(broker), "t") == 0


async def test_an_empty_request_is_malformed(client) -> None:
    assert isinstance(await client.refusal(RequestCode.PRODUCE, b""), MalformedRequest)


async def test_a_batch_of_a_newer_format_is_called_new(client, batch) -> None:
    newer = batch("t", 0)
    newer[4] = 99
    assert isinstance(await client.refusal(RequestCode.PRODUCE, newer), UnsupportedVersion)


async def test_a_batch_too_large_to_be_fetched_again_is_refused(start, connect, batch) -> None:
    limit = 64 << 10
    client = await connect(await start(frame_bytes_max=limit))
    await client.create("t", 1)
    answer = await client.produce(batch("t", 0, bytes(limit - 200)))
    assert answer.results[0].code == ResponseCode.INVALID_ARGUMENT
    assert "smaller batches" in answer.results[0].sentence


async def test_a_oneway_request_is_stored_and_not_answered(client, batch) -> None:
    await client.create("t", 1)
    client.send(RequestCode.PRODUCE, batch("t", 0, b"a"), flags=FLAG_ONEWAY)
    client.send(RequestCode.PRODUCE, batch("t", 9, b"refused"), flags=FLAG_ONEWAY)
    assert await stored(client, "t") == [b"a"]
    await client.ask(RequestCode.DESCRIBE_BROKER)
    assert client.answers == {}


async def test_the_answer_waits_for_the_flush(broker, client, batch) -> None:
    await client.create("t", 1)
    flush = Durable(loop=asyncio.get_running_loop())
    broker._state.acknowledgements._durable = lambda: flush
    correlation = client.send(RequestCode.PRODUCE, batch("t", 0))
    # A later request on the same connection overtakes it.
    await client.ask(RequestCode.DESCRIBE_BROKER)
    assert correlation not in client.answers
    flush.settle(None)
    assert (await client.answer(correlation)).code == ResponseCode.OK


async def test_a_failed_flush_is_no_acknowledgement(broker, client, batch) -> None:
    await client.create("t", 1)
    flush = Durable(loop=asyncio.get_running_loop())
    flush.settle(StoreReadOnly("the disk failed; replace it"))
    broker._state.acknowledgements._durable = lambda: flush
    answer = await client.produce(batch("t", 0), batch("t", 9))
    assert [item.code for item in answer.results] == [
        ResponseCode.STORE_READ_ONLY,
        ResponseCode.QUEUE_NOT_FOUND,
    ]
    assert answer.results[0].base_offset == -1


async def test_a_defect_in_one_batch_keeps_the_answers_of_the_others(
    broker, client, batch, monkeypatch
) -> None:
    await client.create("t", 1)
    append, calls = broker._state.store.append, []

    def fails_once(view, **known):
        calls.append(view)
        if len(calls) == 2:
            raise RuntimeError("a defect")
        return append(view, **known)

    monkeypatch.setattr(broker._state.store, "append", fails_once)
    answer = await client.produce(*(batch("t", 0, body) for body in (b"a", b"b", b"c")))
    assert [item.code for item in answer.results] == [0, ResponseCode.INTERNAL_ERROR, 0]


async def test_a_stopping_broker_takes_no_more_messages(broker, client, batch) -> None:
    await client.create("t", 1)
    broker._state.stopping = True
    assert isinstance(await client.refusal(RequestCode.PRODUCE, batch("t", 0)), BrokerStopping)
    assert await end_of(client, "t") == 0


class HandDisk:
    """A disk that tests fill."""

    percent = 10.0

    def used_percent(self, directory: object) -> float:
        return self.percent


async def test_a_disk_that_is_nearly_full_refuses_until_there_is_room(
    start, connect, batch, until
) -> None:
    disk = HandDisk()
    broker = await start(disk=disk, stored={"disk_look_ms": 1})
    client = await connect(broker)
    await client.create("t", 1)
    await client.produce(batch("t", 0, b"a"))

    async def send(body: bytes) -> int:
        (result,) = (await client.produce(batch("t", 0, body))).results
        assert bool(result.code) == ("is 95.0 % full" in result.sentence)
        return result.code

    disk.percent = 95.0
    while await send(b"b") == ResponseCode.OK:
        pass
    assert await send(b"c") == ResponseCode.STORE_FULL
    before = await stored(client, "t")
    assert b"c" not in before
    disk.percent = 80.0
    while await send(b"d") == ResponseCode.STORE_FULL:
        pass
    assert (await stored(client, "t"))[len(before)] == b"d"
    assert broker._state.watermarks.early


async def test_a_broker_that_starts_on_a_full_disk_refuses_from_the_first_message(
    start, connect, batch
) -> None:
    disk = HandDisk()
    disk.percent = 99.0
    client = await connect(await start(disk=disk))
    assert (await client.produce(batch("t", 0))).results[0].code == ResponseCode.STORE_FULL


async def test_the_brokers_own_producer_ids_are_refused(client, batch) -> None:
    answer = await client.produce(*(batch(producer_id=number) for number in (1, 2, 3)))
    refused = ResponseCode.INVALID_ARGUMENT
    assert [result.code for result in answer.results] == [refused, refused, 0]
    assert "producer id 1" in answer.results[0].sentence

"""A search over the wire: answer by answer, within the limits of a frame."""

from typing import Any

import pytest

from headrace_mq.errors import InvalidArgument, TopicNotFound
from headrace_mq.message import QueueRef
from headrace_mq.protocol.administration import (
    DescribeProducers,
    FindMessages,
    ProducersAnswer,
    decode_find_answer,
)
from headrace_mq.protocol.batch import Columns, decode_records, encode_batch, split_batches
from headrace_mq.protocol.bodies import decode
from headrace_mq.protocol.codes import RequestCode

NEVER = (1 << 63) - 1


def asked(**values: Any) -> FindMessages:
    wanted = {
        "topic": "orders", "key": "k", "from_ms": 0, "to_ms": NEVER,
        "messages_max": 1_000, "bytes_max": 1 << 20,
    }  # fmt: skip
    return FindMessages(**wanted | values)


async def fill(client: Any, count: int) -> None:
    for n in range(count):
        columns = Columns(["k" if n % 2 else "other"], [], [], [b"%d" % n * 10], [])
        batch = encode_batch(QueueRef("orders", 0), columns, born_first_ms=0)
        await client.ask(RequestCode.PRODUCE, bytes(batch))


async def test_the_answer_holds_batches_with_the_key_and_where_to_go_on(client: Any) -> None:
    await fill(client, 9)
    found = []
    log, position = "", 0
    while True:
        body = await client.ask(
            RequestCode.FIND_MESSAGES, asked(messages_max=2, log=log, position=position)
        )
        answer, batches = decode_find_answer(body)
        records = [r for batch in split_batches(batches) for r in decode_records(batch)]
        assert len(records) == answer.messages <= 2
        found += [record.body[:1] for record in records]
        log, position = answer.log, answer.position
        if not log:
            break
    assert found == [b"1", b"3", b"5", b"7"]


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"topic": "none"}, TopicNotFound),
        ({"key": ""}, InvalidArgument),
        ({"key": "x" * 1_025}, InvalidArgument),
        ({"messages_max": 0}, InvalidArgument),
        ({"bytes_max": 0}, InvalidArgument),
        ({"log": "nowhere"}, InvalidArgument),
        ({"log": "forever", "position": -1}, InvalidArgument),
    ],
)
async def test_a_search_that_makes_no_sense_is_refused(
    client: Any, values: dict[str, Any], error: type[Exception]
) -> None:
    await fill(client, 1)
    with pytest.raises(error):
        await client.ask(RequestCode.FIND_MESSAGES, asked(**values))


async def test_a_position_that_no_answer_gave_finds_nothing_wrong(client: Any) -> None:
    await fill(client, 4)
    for position in (1, 200, 1 << 40, (1 << 63) - 1):
        for log in ("forever", "transient"):
            await client.ask(RequestCode.FIND_MESSAGES, asked(log=log, position=position))


async def test_the_sender_of_a_message_is_told_across_connections_and_restarts(
    start: Any, connect: Any, batch: Any
) -> None:
    broker = await start()
    first = await connect(broker, "first")
    await first.produce(batch(producer_id=7), batch(producer_id=8), batch())
    second = await connect(broker, "second")
    await second.produce(batch(producer_id=8, first_sequence=1))
    port = second.writer.get_extra_info("sockname")[1]

    async def told(client: Any) -> dict[int, tuple[str, str]]:
        body = await client.ask(RequestCode.DESCRIBE_PRODUCERS, DescribeProducers([7, 8, 9]))
        found = decode(ProducersAnswer, body).producers
        return {one.producer_id: (one.client_id, one.address) for one in found}

    before = await told(second)
    assert before.keys() == {7, 8}
    assert (before[7][0], before[8]) == ("first", ("second", f"127.0.0.1:{port}"))
    await broker.aclose()
    assert await told(await connect(await start())) == before


async def test_more_producers_than_one_answer_may_hold_are_refused(client: Any) -> None:
    asked_for = DescribeProducers(list(range(1_001)))
    assert isinstance(
        await client.refusal(RequestCode.DESCRIBE_PRODUCERS, asked_for), InvalidArgument
    )

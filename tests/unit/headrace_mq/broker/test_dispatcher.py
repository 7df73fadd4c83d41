import pytest

from headrace_mq.broker import dispatcher, refusals
from headrace_mq.broker.dispatcher import HANDLERS
from headrace_mq.errors import (
    BrokerError,
    FrameTooLarge,
    InvalidArgument,
    MalformedRequest,
    ResponseCode,
    UnknownRequest,
    UnsupportedVersion,
)
from headrace_mq.protocol.bodies import DescribeTopics, ErrorAnswer, Hello, QueueRanges, decode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import FLAG_ANSWER, encode_frame_head

PUSHED = {RequestCode.PUSHED_REPLY, RequestCode.PUSHED_GROUP_CHANGE}


def test_every_request_has_a_handler_and_no_push_has_one() -> None:
    assert set(HANDLERS) == set(RequestCode) - PUSHED


@pytest.mark.parametrize("code", sorted(set(HANDLERS) - {RequestCode.HELLO}))
async def test_nothing_is_served_before_hello(broker, connect, code: int) -> None:
    client = await connect(broker, "")
    refused = await client.refusal(code, b"")
    assert isinstance(refused, MalformedRequest)
    assert "HELLO" in str(refused)
    assert await client.closed()


async def test_frames_before_hello_are_small(broker, connect) -> None:
    client = await connect(broker, "")
    limit = broker._state.settings.frame_bytes_before_hello_max
    client.writer.write(encode_frame_head(RequestCode.HELLO, 1, limit))
    # No request in particular: its header may be as wrong as its length.
    answer = await client.answer(0)
    assert answer.code == FrameTooLarge.code
    assert await client.closed()


async def test_frames_may_be_large_right_behind_hello(broker, connect, batch) -> None:
    client = await connect(broker, "")
    hello = client.send(RequestCode.HELLO, Hello("c", 1, 1))
    large = client.send(RequestCode.PRODUCE, batch("t", 0, bytes(200_000)))
    assert (await client.answer(hello)).code == ResponseCode.OK
    assert (await client.answer(large)).code == ResponseCode.OK


async def test_no_frame_is_larger_than_the_limit_that_hello_told(broker, connect) -> None:
    client = await connect(broker, "")
    limit = (await client.hello()).frame_bytes_max
    client.writer.write(encode_frame_head(RequestCode.PRODUCE, 9, limit))
    assert (await client.answer(0)).code == FrameTooLarge.code


@pytest.mark.parametrize("code", [0, 99, 65_535, *sorted(PUSHED)])
async def test_an_unknown_code_is_refused_and_the_connection_goes_on(client, code: int) -> None:
    assert isinstance(await client.refusal(code), UnknownRequest)
    await client.ask(RequestCode.DESCRIBE_BROKER)


async def test_a_body_that_does_not_decode_closes_the_connection(client) -> None:
    refused = await client.refusal(RequestCode.CREATE_TOPIC, b"\xff\xff")
    assert isinstance(refused, MalformedRequest)
    assert await client.closed()


async def test_a_frame_of_another_version_than_agreed_is_refused(client) -> None:
    head = bytearray(encode_frame_head(RequestCode.DESCRIBE_BROKER, 77, 0))
    head[6] += 1
    client.writer.write(head)
    assert (await client.answer(77)).code == UnsupportedVersion.code
    assert await client.closed()


async def test_a_client_does_not_answer(client) -> None:
    client.writer.write(encode_frame_head(RequestCode.DESCRIBE_BROKER, 77, 0, FLAG_ANSWER))
    assert (await client.answer(77)).code == MalformedRequest.code
    assert await client.closed()


async def test_a_defect_is_answered_logged_and_survived(client, monkeypatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("a defect")

    logged: list[dict[str, object]] = []
    monkeypatch.setattr(
        refusals._log, "error", lambda event, **fields: logged.append(fields), raising=False
    )
    with monkeypatch.context() as patch:
        patch.setattr(dispatcher, "HANDLERS", {**HANDLERS, RequestCode.DESCRIBE_BROKER: fails})
        refused = await client.refusal(RequestCode.DESCRIBE_BROKER)
    assert type(refused) is BrokerError
    assert "log" in str(refused)
    assert "a defect" not in str(refused)
    assert isinstance(logged[0]["exc_info"], RuntimeError)
    await client.ask(RequestCode.DESCRIBE_BROKER)


async def test_an_answer_that_fits_no_frame_is_refused_with_a_way_out(start, connect) -> None:
    client = await connect(await start(frame_bytes_max=64 << 10))
    names = [("t" * 100) + str(number) for number in range(5)]
    for name in names:
        await client.create(name, 300)
    refused = await client.refusal(RequestCode.QUEUE_RANGES, QueueRanges(names))
    assert isinstance(refused, InvalidArgument)
    assert "less at a time" in str(refused)
    await client.ask(RequestCode.QUEUE_RANGES, QueueRanges(names[:1]))


async def test_a_refusal_carries_one_sentence(client) -> None:
    frame = await client.answer(client.send(99))
    assert frame.flags == FLAG_ANSWER
    assert decode(ErrorAnswer, frame.body).sentence.endswith("update the broker")


async def test_requests_of_one_write_are_all_answered(client) -> None:
    sent = [client.send(RequestCode.DESCRIBE_TOPICS, DescribeTopics()) for _ in range(100)]
    for correlation in sent:
        assert (await client.answer(correlation)).code == ResponseCode.OK

"""Figures of the overview come as events."""

import json
from typing import Any

import pytest

from headrace.console.live import Live
from headrace.console.safety import Safety
from headrace.console.sessions import Session, Sessions
from headrace.console.settings import ConsoleSettings
from headrace.figures.search import MessageFilter
from headrace_mq import AdminClient, Message, Producer
from headrace_mq._net.address import BrokerAddress


async def test_a_stream_begins_again_after_a_pause_and_tells_figures(broker: str, admin) -> None:
    settings = ConsoleSettings(live_ms=100)
    sessions = Sessions(BrokerAddress.parse(broker), settings)
    live = Live(sessions, Safety(), settings)
    session = sessions._shared = Session("", admin, None, 0)
    stream = live._counted(session, live._figures(session))
    assert await anext(stream) == b"retry: 2000\n\n"
    event = (await anext(stream)).decode()
    assert event.startswith("event: figures\ndata: {")
    assert json.loads(event.partition("data: ")[2])["topics"] == "0"
    live.stop()
    assert [part async for part in stream] == []
    assert live._open == 0


async def test_a_broker_that_goes_away_ends_the_stream_with_its_sentence() -> None:
    settings = ConsoleSettings()
    live = Live(Sessions(BrokerAddress.parse("127.0.0.1:1"), settings), Safety(), settings)
    session = Session("", AdminClient("127.0.0.1:1", timeout_ms=20), None, 0)
    stream = live._counted(session, live._figures(session))
    parts = [part async for part in stream]
    assert parts[-1].startswith(b"event: away\n")


@pytest.mark.parametrize("streams_max", [0])
async def test_no_more_streams_are_open_than_the_limit_allows(broker, console, streams_max) -> None:
    browser = await console(broker, streams_max=streams_max)
    answer = await browser.client.get("/live")
    assert (answer.status_code, "streams_max" in answer.text) == (503, True)


async def test_a_stream_ends_with_its_session(broker: str, admin) -> None:
    settings = ConsoleSettings(live_ms=100)
    live = Live(Sessions(BrokerAddress.parse(broker), settings), Safety(), settings)
    session = Session("ann", admin, None, 0)
    stream = live._counted(session, live._figures(session))
    assert [part async for part in stream] == [b"retry: 2000\n\n"]
    assert live._open == 0


async def test_new_messages_of_a_topic_come_in_their_order_and_the_rest_is_counted(
    broker: str, admin
) -> None:
    settings = ConsoleSettings(live_ms=100)
    sessions = Sessions(BrokerAddress.parse(broker), settings)
    live = Live(sessions, Safety(), settings)
    session = sessions._shared = Session("", admin, None, 0)
    await admin.create_topic("orders", 2)
    async with Producer(broker) as producer:
        await producer.send(Message(topic="orders", body=b"before"))
        stream = live._messages(session, "orders")
        assert _told(await anext(stream)) == {"messages": [], "left_out": 0}
        for number in range(3):
            await producer.send(Message(topic="orders", body=b"%d" % number, key="ann"))
        told = _told(await anext(stream))
        assert [one["body"] for one in told["messages"]] == ["0", "1", "2"]
        assert told["messages"][0]["stored"].startswith("20")
        await producer.send_many(
            [Message(topic="orders", body=b"%d" % n, key="ann") for n in range(150)]
        )
        told = _told(await anext(stream))
        assert [one["body"] for one in told["messages"]] == [str(n) for n in range(50, 150)]
        assert told["left_out"] == 50
    await stream.aclose()


def _told(event: bytes) -> Any:
    return json.loads(event.decode().partition("data: ")[2])


async def test_a_topic_that_does_not_exist_ends_the_stream_with_a_sentence(
    broker: str, admin
) -> None:
    settings = ConsoleSettings(live_ms=100)
    live = Live(Sessions(BrokerAddress.parse(broker), settings), Safety(), settings)
    session = Session("", admin, None, 0)
    parts = [part async for part in live._counted(session, live._messages(session, "tea"))]
    assert b"no topic 'tea'" in parts[-1]


async def test_new_messages_that_do_not_fit_a_filter_are_not_shown(broker, admin) -> None:
    settings = ConsoleSettings(live_ms=100)
    sessions = Sessions(BrokerAddress.parse(broker), settings)
    live = Live(sessions, Safety(), settings)
    session = sessions._shared = Session("", admin, None, 0)
    await admin.create_topic("orders", 1)
    stream = live._messages(session, "orders", MessageFilter("body.n > 1"))
    assert _told(await anext(stream))["messages"] == []
    async with Producer(broker) as producer:
        bodies = [Message(topic="orders", body=b'{"n": %d}' % n) for n in range(4)]
        await producer.send_many(bodies)
    told = _told(await anext(stream))
    assert [one["body"] for one in told["messages"]] == ['{"n": 2}', '{"n": 3}']
    assert told["left_out"] == 0


async def test_a_stream_with_a_wrong_filter_is_refused(browser, admin) -> None:
    await admin.create_topic("orders", 1)
    answer = await browser.client.get("/live/messages", params={"topic": "orders", "filter": "n >"})
    assert answer.status_code == 422
    assert "column 4" in answer.text

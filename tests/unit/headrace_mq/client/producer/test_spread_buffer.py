"""A producer's messages for two groups: each request goes to one of them, and one that is away stops its own queues."""

from collections.abc import Callable
from typing import Any

from headrace_mq._net.link import Link, LinkSettings
from headrace_mq.client.producer.send_buffer import SendBuffer
from headrace_mq.client.producer.spread_buffer import SpreadBuffer, buffer_for
from headrace_mq.client.spread.spread_link import SpreadLink
from headrace_mq.errors import ConnectionLost
from headrace_mq.message import Message
from headrace_mq.protocol.batch import read_header
from headrace_mq.protocol.bodies import DescribeTopics, ProduceAnswer, Produced, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.settings import ProducerSettings
from tests.unit.headrace_mq.client.two_groups import *  # noqa: F403 - the fixture is found by name
from tests.unit.headrace_mq.client.two_groups import FakeLink, links_of

Make = Callable[..., SpreadLink]
Until = Callable[[Callable[[], object]], Any]


async def opened(link: SpreadLink, clock: Any) -> SpreadBuffer:
    for each in links_of(link):
        each.options["on_ready"]()
    body = encode(DescribeTopics(["t"]))
    await link.request(RequestCode.DESCRIBE_TOPICS, body, timeout_ms=60_000)
    settings = ProducerSettings(reconnect_ms_min=1, reconnect_ms_max=2)
    buffer = SpreadBuffer(
        link,
        settings,
        clock,
        selector=lambda message, _queues: int(message.key),
        want_route=lambda _topic: None,
    )
    buffer.open_route("t", 4)
    return buffer


def put(buffer: SpreadBuffer, queue: int) -> Any:
    batch, _ = buffer.place(Message(topic="t", key=str(queue), body=b"x"))  # type: ignore[misc]  # there is room, so it is no future
    return batch


def queues(link: FakeLink) -> list[list[int]]:
    return [
        [read_header(memoryview(part)).queue.queue_id for part in parts]
        for _, parts, _ in link.submitted
    ]


def stored(link: FakeLink, place: int = -1) -> None:
    _, parts, receive = link.submitted[place]
    found = [read_header(memoryview(part)).queue for part in parts]
    receive(memoryview(encode(ProduceAnswer([Produced(*queue, 7) for queue in found]))))


def test_a_link_to_one_group_gets_the_usual_buffer(two_groups: Make) -> None:
    assert buffer_for(two_groups()) is SpreadBuffer
    assert buffer_for(Link("h:1", client_id="me", settings=LinkSettings((1, 5)))) is SendBuffer


async def test_a_request_carries_batches_of_one_group(
    two_groups: Make, clock: Any, until: Until
) -> None:
    link = two_groups()
    one, two = links_of(link)
    buffer = await opened(link, clock)
    batches = [put(buffer, number) for number in (0, 3, 1, 2)]
    await until(lambda: two.submitted)
    assert (queues(one), queues(two)) == ([[0, 1]], [[3, 2]])
    stored(one)
    assert [batch.settled for batch in batches] == [True, False, True, False]
    stored(two)
    await buffer.drained()


async def test_messages_for_a_group_that_is_away_wait_and_the_rest_goes_on(
    two_groups: Make, clock: Any, until: Until
) -> None:
    link = two_groups()
    one, two = links_of(link)
    buffer = await opened(link, clock)
    two.is_up = False
    late, early = put(buffer, 2), put(buffer, 0)
    await until(lambda: one.submitted)
    stored(one)
    assert (early.settled, late.settled) == (True, False)
    two.is_up = True
    await until(lambda: two.submitted)
    # Lost on the way: sent again, and of an unknown outcome.
    two.submitted.pop()[2](ConnectionLost("gone"))
    await until(lambda: two.submitted)
    assert late.refusals == []
    stored(two)
    assert late.settled
    await buffer.drained()

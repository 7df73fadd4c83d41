from collections.abc import Callable
from typing import Any

from headrace_mq._net.link import Link
from headrace_mq.client.producer.oneway import Oneway
from headrace_mq.client.spread.spread_link import SpreadLink
from headrace_mq.message import Message, QueueRef
from headrace_mq.protocol.batch import decode_records, read_header, split_batches
from headrace_mq.protocol.bodies import DescribeTopics, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.settings import ProducerSettings
from tests.unit.headrace_mq.client.two_groups import *  # noqa: F403 - the fixture is found by name
from tests.unit.headrace_mq.client.two_groups import links_of

PRODUCE = RequestCode.PRODUCE
FIRST, SECOND = QueueRef("t", 0), QueueRef("t", 1)
Until = Callable[[Callable[[], object]], Any]


def take(oneway: Oneway, queue: QueueRef, body: bytes) -> bool:
    return oneway.take(queue, Message(topic="t", body=body), len(body))


def sent(broker: Any) -> list[list[bytes]]:
    return [
        [record.body for batch in split_batches(request.body) for record in decode_records(batch)]
        for request in broker.seen
        if request.code == PRODUCE
    ]


async def test_messages_of_one_tick_go_together_per_queue_and_want_no_answer(
    broker: Any, link: Link, clock: Any, until: Until
) -> None:
    oneway = Oneway(link, ProducerSettings(), clock)
    for queue, body in ((FIRST, b"a"), (SECOND, b"b"), (FIRST, b"c")):
        assert take(oneway, queue, body)
    await until(lambda: broker.count(PRODUCE) == 2)
    assert sent(broker) == [[b"a", b"c"], [b"b"]]
    assert all(request.is_oneway for request in broker.seen if request.code == PRODUCE)
    assert read_header(broker.batches[FIRST][0]).producer_id == 0


async def test_batches_stay_within_the_settings(
    broker: Any, link: Link, clock: Any, until: Until
) -> None:
    settings = ProducerSettings(batch_messages_max=2, batch_bytes_max=100)
    oneway = Oneway(link, settings, clock)
    for body in (b"a", b"b", b"c", bytes(99), bytes(200)):
        take(oneway, FIRST, body)
    await until(lambda: broker.count(PRODUCE) == 3)
    assert sent(broker) == [[b"a", b"b"], [b"c", bytes(99)], [bytes(200)]]


async def test_without_a_connection_nothing_is_taken(
    broker: Any, link: Link, clock: Any, until: Until
) -> None:
    oneway = Oneway(link, ProducerSettings(), clock)
    await broker.stop()
    await until(lambda: not link.is_up)
    assert not take(oneway, FIRST, b"a")


async def test_messages_that_were_taken_when_the_connection_ends_are_lost(
    broker: Any, link: Link, clock: Any
) -> None:
    oneway = Oneway(link, ProducerSettings(), clock)
    assert take(oneway, FIRST, b"a")
    link.drop("for the test")
    oneway.flush()
    assert broker.count(PRODUCE) == 0


async def test_nothing_is_taken_for_a_queue_whose_group_is_away(
    two_groups: Callable[..., SpreadLink], clock: Any
) -> None:
    link = two_groups()
    one, two = links_of(link)
    body = encode(DescribeTopics(["t"]))
    await link.request(RequestCode.DESCRIBE_TOPICS, body, timeout_ms=60_000)
    two.is_up = False
    oneway = Oneway(link, ProducerSettings(), clock)
    assert take(oneway, FIRST, b"a")
    assert not take(oneway, QueueRef("t", 2), b"b")
    oneway.flush()
    assert (one.told, two.told) == ([PRODUCE], [])

"""A consumer's fetches of queues in two groups: each asks one of them."""

from collections.abc import Callable
from typing import Any

from headrace_mq._net.link import Link, LinkSettings
from headrace_mq.client.fetch.assigned_queues import AssignedQueues, limits_of
from headrace_mq.client.fetch.fetcher import Fetcher, GroupFilters
from headrace_mq.client.fetch.spread_fetcher import SpreadFetcher, fetcher_for
from headrace_mq.client.spread.spread_link import SpreadLink
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import DescribeTopics, Fetch, decode, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.settings import ConsumerSettings
from tests.unit.headrace_mq.client.two_groups import *  # noqa: F403 - the fixture is found by name
from tests.unit.headrace_mq.client.two_groups import FakeLink, links_of

Make = Callable[..., SpreadLink]
Until = Callable[[Callable[[], object]], Any]


def asked(link: FakeLink) -> list[list[int]]:
    return [
        [one.queue_id for one in decode(Fetch, parts[0]).queues] for _, parts, _ in link.submitted
    ]


def test_a_link_to_one_group_gets_the_usual_fetcher(two_groups: Make) -> None:
    assert fetcher_for(two_groups()) is SpreadFetcher
    assert fetcher_for(Link("h:1", client_id="me", settings=LinkSettings((1, 5)))) is Fetcher


async def test_each_group_is_asked_for_its_queues_and_one_that_is_away_when_it_is_back(
    two_groups: Make, clock: Any, until: Until
) -> None:
    link = two_groups()
    one, two = links_of(link)
    body = encode(DescribeTopics(["t"]))
    await link.request(RequestCode.DESCRIBE_TOPICS, body, timeout_ms=60_000)
    settings = ConsumerSettings()
    shares = AssignedQueues(limits_of(settings))
    fetcher = SpreadFetcher(
        link,
        shares,
        settings=settings,
        clock=clock,
        asking=GroupFilters("g", {}),
        on_records=lambda: None,
        on_error=lambda _error: None,
    )
    queues = [QueueRef("t", number) for number in range(4)]
    shares.assign(queues)
    for queue in queues:
        shares.start(queue, 0, known=False, committed=-1)
    two.is_up = False
    fetcher.pull_soon()
    await until(lambda: one.submitted)
    assert (asked(one), asked(two)) == ([[0, 1]], [])
    two.is_up = True
    fetcher.pull_soon()
    await until(lambda: two.submitted)
    assert (asked(one), asked(two)) == ([[0, 1]], [[2, 3]])
    fetcher.stop()

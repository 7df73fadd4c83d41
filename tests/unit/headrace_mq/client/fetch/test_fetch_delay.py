import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from headrace_mq._net.link import Link
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.fetch.fetch_delay import FEW_RECORDS, FetchDelay
from headrace_mq.client.fetch.fetcher import ASKED_FIRST_RECORDS
from headrace_mq.filters.filter import Filter
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import FetchAnswer, encode_fetch_answer
from headrace_mq.protocol.codes import RequestCode

# Longer than the test may last.
LONG_MS = 3_600_000


@pytest.fixture
def fetched() -> list[str]:
    return []


async def test_a_fetch_after_few_records_waits_until_the_application_polls(
    fetched: list[str],
) -> None:
    gathering = FetchDelay(LONG_MS)
    assert gathering.hold(1, lambda: fetched.append("a"))
    assert gathering.hold(FEW_RECORDS - 1, lambda: fetched.append("b"))
    assert fetched == []
    gathering.end()
    assert fetched == ["a", "b"]
    gathering.end()
    assert fetched == ["a", "b"]


async def test_it_waits_for_its_time_at_most_and_is_then_made_once(fetched: list[str]) -> None:
    made = asyncio.Event()
    gathering = FetchDelay(1)
    assert gathering.hold(1, lambda: (fetched.append("a"), made.set())[0])
    await made.wait()
    gathering.end()
    assert fetched == ["a"]


@pytest.mark.parametrize("records", [0, FEW_RECORDS])
async def test_an_answer_of_many_records_or_none_is_followed_at_once(records: int) -> None:
    assert not FetchDelay(LONG_MS).hold(records, pytest.fail)


async def test_without_a_time_nothing_waits() -> None:
    assert not FetchDelay(0).hold(1, pytest.fail)


async def test_a_fetch_may_put_off_the_next_one(fetched: list[str]) -> None:
    gathering = FetchDelay(LONG_MS)

    def fetch() -> None:
        fetched.append("a")
        assert gathering.hold(1, lambda: fetched.append("b"))

    assert gathering.hold(1, fetch)
    gathering.end()
    assert fetched == ["a"]
    gathering.end()
    assert fetched == ["a", "b"]


async def test_what_a_fetch_brought_early_is_polled_alone_and_the_next_poll_finds_all_that_came_since(
    broker: Any, make: Callable[..., Consumer], until: Callable[[Callable[[], object]], Any]
) -> None:
    broker.topics["t"] = 1
    queue = QueueRef("t", 0)
    broker.append(queue, [b"many"] * FEW_RECORDS)
    async with make(fetch_gather_ms=LONG_MS) as consumer:
        polled = await consumer.poll()
        assert len(polled) == FEW_RECORDS
        # So many are followed by a fetch at once, whose answer waits here for the next poll.
        broker.append(queue, [b"b"])
        beyond = replace(polled[0], offset=FEW_RECORDS)
        await until(lambda: consumer.holds(beyond))
        broker.append(queue, [b"c"])
        assert [record.body for record in await consumer.poll()] == [b"b"]
        # An answer, behind which a fetch of that poll would have been answered too.
        consumer.ack(polled[0])
        await consumer.commit()
        assert broker.count(RequestCode.FETCH) == 2
        broker.append(queue, [b"d"])
        assert [record.body for record in await consumer.poll()] == [b"c", b"d"]


@pytest.mark.parametrize(
    ("records", "filters", "order"),
    [
        (ASKED_FIRST_RECORDS - 1, {}, ["handled", "asked"]),
        (ASKED_FIRST_RECORDS, {}, ["asked", "handled"]),
        (1, {"t": Filter("_key IS NULL")}, ["asked", "handled"]),
    ],
)
async def test_what_takes_long_to_handle_or_to_find_is_asked_for_first(
    broker: Any, watch: Any, link: Link, clock: Any, until: Callable[[Callable[[], object]], Any],
    records: int, filters: Any, order: list[str],
) -> None:  # fmt: skip
    broker.held, queue = {RequestCode.FETCH}, QueueRef("t", 0)
    watched = watch(link, clock)
    pulling, seen = watched.pulling, []
    pulling._filters = filters
    watched.start(queue)
    parked = await broker.next(RequestCode.FETCH)
    fetch, loop = pulling._fetch, asyncio.get_running_loop()

    def asking(shares: Any) -> None:
        seen.append("asked")
        fetch(shares)

    pulling._fetch = asking
    # An application that waits goes on in a later turn of the loop, as fetches do.
    pulling._on_records = lambda: loop.call_soon(seen.append, "handled")
    parked.answer(encode_fetch_answer(FetchAnswer([], [])), broker.append(queue, [b"a"] * records))
    await until(lambda: len(seen) >= 2)
    assert seen == order

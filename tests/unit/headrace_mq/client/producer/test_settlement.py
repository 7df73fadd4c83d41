import asyncio

import pytest

from headrace_mq.client.batch.batch import Batch
from headrace_mq.client.producer.settlement import all_placed, report, settled
from headrace_mq.errors import SendTimeout
from headrace_mq.message import QueueRef


async def test_cancelling_one_who_waits_leaves_the_others_waiting() -> None:
    loop, batch = asyncio.get_running_loop(), Batch(QueueRef("t", 0))
    first, second = (asyncio.create_task(settled(batch, loop)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not second.done()
    batch.stored(0, duplicate=False)
    await second


async def test_places_are_waited_for_and_the_first_failure_is_raised() -> None:
    loop, batch = asyncio.get_running_loop(), Batch(QueueRef("t", 0))
    good, bad = loop.create_future(), loop.create_future()
    waiting = asyncio.create_task(all_placed([(batch, 0), good]))
    await asyncio.sleep(0)
    good.set_result((batch, 1))
    assert await waiting == [(batch, 0), (batch, 1)]
    bad.set_exception(SendTimeout("late"))
    with pytest.raises(SendTimeout):
        await all_placed([(batch, 0), bad])


async def test_a_report_passes_on_failures_cancellations_and_results() -> None:
    loop, batch = asyncio.get_running_loop(), Batch(QueueRef("t", 0))
    batch.stored(5, duplicate=False)
    places = [loop.create_future() for _ in range(3)]
    results = [loop.create_future() for _ in range(3)]
    places[0].set_result((batch, 2))
    places[1].set_exception(SendTimeout("late"))
    places[2].cancel()
    for result, place in zip(results, places, strict=True):
        report(result, place)
    assert (await results[0]).offset == 7
    with pytest.raises(SendTimeout):
        await results[1]
    assert results[2].cancelled()

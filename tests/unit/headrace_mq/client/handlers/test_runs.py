import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.handlers.failures import Failure, Settled, Verdict
from headrace_mq.message import QueueRef, Record

A = QueueRef("t", 0)
Until = Callable[[Callable[[], object]], Any]


async def test_run_handles_and_acknowledges_until_the_consumer_is_closed(
    broker: Any, consumer: Consumer
) -> None:
    handled: list[bytes] = []
    last = asyncio.Event()

    async def handle(record: Record) -> None:
        if record.body == b"b" and b"tried" not in handled:
            handled.append(b"tried")
            raise LookupError
        handled.append(record.body)
        if record.body == b"c":
            last.set()

    running = asyncio.create_task(consumer.run(handle))
    broker.append(A, [b"a"])
    broker.append(A, [b"b"])
    await asyncio.sleep(0)
    broker.append(A, [b"c"])
    await last.wait()
    while consumer._shares.get(A).window.lowest_unfinished < 3:  # type: ignore[union-attr]  # assigned
        await asyncio.sleep(0)
    await consumer.aclose()
    await running
    assert sorted(handled) == [b"a", b"b", b"c", b"tried"]
    assert broker.offsets["g", A] == 3


async def test_batches_are_handled_and_acknowledged_together(
    broker: Any, consumer: Consumer, until: Until
) -> None:
    batches: list[list[bytes]] = []

    async def handle(records: Sequence[Record]) -> None:
        batches.append([record.body for record in records])

    running = asyncio.create_task(consumer.run_batches(handle, records_max=2, wait_ms=60_000))
    broker.append(A, [b"a", b"b", b"c", b"d"])
    await until(lambda: batches == [[b"a", b"b"], [b"c", b"d"]])
    await consumer.aclose()
    await running
    assert broker.offsets["g", A] == 4


@pytest.mark.parametrize(("records_max", "wait_ms"), [(0, 0), (1, -1)])
async def test_a_batch_holds_something(consumer: Consumer, records_max: int, wait_ms: int) -> None:
    async def handle(records: Sequence[Record]) -> None: ...

    with pytest.raises(ValueError, match="at least 1 record"):
        await consumer.run_batches(handle, records_max=records_max, wait_ms=wait_ms)


async def test_a_failure_that_is_settled_elsewhere_is_acknowledged(
    broker: Any, consumer: Consumer, until: Until
) -> None:
    class DeadLetters:
        async def decide(self, failure: Failure) -> Verdict:
            return Settled("dead letters")

    async def handle(record: Record) -> None:
        raise LookupError

    running = asyncio.create_task(consumer.run(handle, on_failure=DeadLetters()))
    broker.append(A, [b"a"])
    await until(lambda: (share := consumer._shares.get(A)) and share.window.lowest_unfinished == 1)
    await consumer.aclose()
    await running


async def test_closing_waits_for_the_record_being_handled_and_commits_it(
    broker: Any, consumer: Consumer
) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    async def handle(record: Record) -> None:
        begun.set()
        await gate.wait()

    running = asyncio.create_task(consumer.run(handle))
    broker.append(A, [b"a"])
    await begun.wait()
    closing = asyncio.create_task(consumer.aclose())
    await asyncio.sleep(0)
    assert not closing.done()
    gate.set()
    await closing
    await running
    assert broker.offsets["g", A] == 1


async def test_cancelling_run_cancels_its_handlers_and_keeps_the_consumer(
    broker: Any, consumer: Consumer
) -> None:
    begun = asyncio.Event()

    async def handle(record: Record) -> None:
        begun.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(consumer.run(handle))
    broker.append(A, [b"a"])
    await begun.wait()
    running.cancel()
    await asyncio.wait([running])
    broker.append(A, [b"b"])
    assert [record.body for record in await consumer.poll()] == [b"b"]

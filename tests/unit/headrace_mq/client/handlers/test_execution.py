import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.handlers.execution import BatchLimits, HandlerRun, check_async, one_by_one
from headrace_mq.client.handlers.failures import Failure, Settled, Verdict
from headrace_mq.errors import Closed, DataCorrupt
from headrace_mq.message import QueueRef, Record
from headrace_mq.settings import ConsumerSettings

A, B = QueueRef("t", 0), QueueRef("t", 1)
Until = Callable[[Callable[[], object]], Any]


def record(offset: int, key: str = "", queue: QueueRef = A) -> Record:
    return Record(
        queue=queue, offset=offset, key=key, tag="", headers={}, body=b"", born_at_ms=0,
        stored_at_ms=0,
    )  # fmt: skip


class Deliveries:
    """What a test delivers."""

    def __init__(self, *batches: list[Record]) -> None:
        self.batches: asyncio.Queue[list[Record] | Exception] = asyncio.Queue()
        for batch in batches:
            self.batches.put_nowait(batch)
        self.asked: list[int | None] = []
        self.acked: list[int] = []
        self.revoked: set[QueueRef] = set()

    def close(self) -> None:
        self.batches.put_nowait(Closed("closed"))

    async def poll(self, records_max: int | None = None) -> list[Record]:
        self.asked.append(records_max)
        batch = await self.batches.get()
        if isinstance(batch, Exception):
            raise batch
        return batch

    async def begin(self, record: Record) -> bool:
        return record.queue not in self.revoked

    def end(self, record: Record, *, done: bool) -> None:
        if done:
            self.acked.append(record.offset)


class Gates:
    """A handler that says what it began and goes on when it is let."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.gates: dict[int, asyncio.Future[None]] = {}

    async def handle(self, record: Record) -> None:
        self.begun.append(record.offset)
        self.gates[record.offset] = asyncio.get_running_loop().create_future()
        await self.gates[record.offset]

    def open(self, offset: int) -> None:
        self.gates.pop(offset).set_result(None)

    def fail(self, offset: int, error: BaseException) -> None:
        self.gates.pop(offset).set_exception(error)


def run(deliveries: Deliveries, handler: Any, **settings: Any) -> asyncio.Task[None]:
    chosen = ConsumerSettings(**{"retry_ms_min": 1, "retry_ms_max": 2} | settings)
    return asyncio.create_task(HandlerRun(deliveries, one_by_one(handler), chosen).run())


async def test_a_key_is_handled_in_order_and_several_keys_at_once(until: Until) -> None:
    gates = Gates()
    deliveries = Deliveries([record(0, "a"), record(1, "b"), record(2, "a"), record(3, "b")])
    task = run(deliveries, gates.handle)
    await until(lambda: gates.begun == [0, 1])
    gates.open(1)
    await until(lambda: gates.begun == [0, 1, 3])
    deliveries.batches.put_nowait([record(4, "a")])
    gates.open(0)
    await until(lambda: gates.begun == [0, 1, 3, 2])
    gates.open(2)
    await until(lambda: gates.begun == [0, 1, 3, 2, 4])
    gates.open(3)
    gates.open(4)
    deliveries.close()
    await task
    assert deliveries.acked == [1, 0, 2, 3, 4]


async def test_records_without_a_key_are_handled_at_once(until: Until) -> None:
    gates = Gates()
    deliveries = Deliveries([record(0), record(1), record(2)])
    task = run(deliveries, gates.handle)
    await until(lambda: gates.begun == [0, 1, 2])
    for offset in (2, 0, 1):
        gates.open(offset)
    deliveries.close()
    await task


async def test_a_queue_is_handled_in_order_and_several_queues_at_once(
    until: Until,
) -> None:
    gates = Gates()
    deliveries = Deliveries([record(0, "a"), record(1, "b"), record(2), record(3, "a", B)])
    task = run(deliveries, gates.handle, handling="per_queue")
    await until(lambda: gates.begun == [0, 3])
    for offset in (0, 1):
        gates.open(offset)
        await until(lambda done=offset: gates.begun[-1] == done + 1)
    gates.open(2)
    gates.open(3)
    deliveries.close()
    await task
    assert deliveries.acked == [0, 1, 2, 3]


async def test_parallel_nothing_waits_for_anything(until: Until) -> None:
    gates = Gates()
    deliveries = Deliveries([record(0, "a"), record(1, "a"), record(2, "a", B)])
    task = run(deliveries, gates.handle, handling="parallel")
    await until(lambda: gates.begun == [0, 1, 2])
    for offset in (1, 2, 0):
        gates.open(offset)
        await until(lambda done=offset: done in deliveries.acked)
    deliveries.close()
    await task
    assert deliveries.acked == [1, 2, 0]


places = st.lists(
    st.tuples(st.sampled_from([A, B]), st.sampled_from(["", "a", "b"])), min_size=1, max_size=30
)


@pytest.mark.parametrize("handling", ["per_key", "per_queue", "parallel"])
@hypothesis_settings(max_examples=30, deadline=None)
@given(records=places, turns=st.lists(st.integers(0, 9), min_size=1), places_max=st.integers(1, 4))
def test_promised_order_holds_when_handlers_finish_in_any_order(
    handling: Any, records: list[tuple[QueueRef, str]], turns: list[int], places_max: int
) -> None:
    async def play() -> None:
        begun: list[Record] = []
        running: list[tuple[Record, asyncio.Future[None]]] = []

        async def handle(record: Record) -> None:
            assert len(running) < places_max
            begun.append(record)
            gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            running.append((record, gate))
            await gate

        sent = [record(n, key, queue) for n, (queue, key) in enumerate(records)]
        deliveries = Deliveries(sent)
        task = run(deliveries, handle, handling=handling, handlers_max=places_max)
        turn = 0
        while len(deliveries.acked) < len(sent):
            if running:
                running.pop(turns[turn % len(turns)] % len(running))[1].set_result(None)
                turn += 1
            await asyncio.sleep(0)
        deliveries.close()
        await task
        assert sorted(deliveries.acked) == list(range(len(sent)))
        chains: dict[Any, list[int]] = defaultdict(list)
        for one in begun:
            if handling == "per_queue":
                chains[one.queue].append(one.offset)
            elif handling == "per_key" and one.key:
                chains[one.queue, one.key].append(one.offset)
        assert all(chain == sorted(chain) for chain in chains.values())

    asyncio.run(play())


async def test_a_batch_holds_what_is_there_up_to_its_limit_in_order(until: Until) -> None:
    batches: list[list[int]] = []
    gates: list[asyncio.Future[None]] = []

    async def handle(records: Sequence[Record]) -> None:
        batches.append([one.offset for one in records])
        gates.append(asyncio.get_running_loop().create_future())
        await gates[-1]

    deliveries = Deliveries([record(n, f"k{n}") for n in range(5)] + [record(9, "", B)])
    handling = HandlerRun(deliveries, handle, ConsumerSettings(), batch=BatchLimits(3, 0))
    task = asyncio.create_task(handling.run())
    await until(lambda: batches == [[0, 1, 2], [9]])
    gates[0].set_result(None)
    await until(lambda: batches == [[0, 1, 2], [9], [3, 4]])
    for gate in gates[1:]:
        gate.set_result(None)
    deliveries.close()
    await task
    assert sorted(deliveries.acked) == [0, 1, 2, 3, 4, 9]


async def test_a_batch_waits_for_more_until_it_is_full_its_time_is_up_or_the_end_comes(
    until: Until,
) -> None:
    batches: list[list[int]] = []

    async def handle(records: Sequence[Record]) -> None:
        batches.append([one.offset for one in records])

    deliveries = Deliveries([record(0)])
    handling = HandlerRun(deliveries, handle, ConsumerSettings(), batch=BatchLimits(2, 60_000))
    task = asyncio.create_task(handling.run())
    await until(deliveries.batches.empty)
    await asyncio.sleep(0)
    assert batches == []
    deliveries.batches.put_nowait([record(1), record(2)])
    await until(lambda: batches == [[0, 1]])
    deliveries.close()
    await task
    assert batches == [[0, 1]]

    deliveries = Deliveries([record(0)])
    handling = HandlerRun(deliveries, handle, ConsumerSettings(), batch=BatchLimits(2, 1))
    task = asyncio.create_task(handling.run())
    await until(lambda: batches == [[0, 1], [0]])
    deliveries.close()
    await task


async def test_one_key_in_two_queues_is_two_orders(until: Until) -> None:
    gates = Gates()
    deliveries = Deliveries([record(0, "a", A), record(1, "a", B)])
    task = run(deliveries, gates.handle)
    await until(lambda: gates.begun == [0, 1])
    gates.open(0)
    gates.open(1)
    deliveries.close()
    await task


async def test_no_more_keys_than_the_limit_are_handled_at_a_time(until: Until) -> None:
    gates = Gates()
    deliveries = Deliveries([record(n, f"k{n}") for n in range(4)])
    task = run(deliveries, gates.handle, handlers_max=2)
    await until(lambda: gates.begun == [0, 1])
    await asyncio.sleep(0)
    assert gates.begun == [0, 1]
    gates.open(1)
    await until(lambda: gates.begun == [0, 1, 2])
    gates.open(0)
    await until(lambda: gates.begun == [0, 1, 2, 3])
    gates.open(2)
    gates.open(3)
    deliveries.close()
    await task


async def test_with_priorities_a_record_is_taken_only_when_it_can_be_handled_at_once(
    until: Until,
) -> None:
    gates = Gates()
    deliveries = Deliveries(*([record(offset)] for offset in range(4)))
    task = run(deliveries, gates.handle, priorities=2, handlers_max=2)
    await until(lambda: gates.begun == [0, 1])
    assert deliveries.asked == [1, 1]
    gates.open(0)
    await until(lambda: gates.begun == [0, 1, 2])
    assert deliveries.asked == [1, 1, 1]
    for offset in (1, 2):
        gates.open(offset)
    await until(lambda: gates.begun == [0, 1, 2, 3])
    deliveries.close()
    gates.open(3)
    await task
    assert deliveries.acked == [0, 1, 2, 3]


@pytest.mark.parametrize("error", [LookupError("defect"), asyncio.CancelledError()])
async def test_a_failed_record_is_handled_again_before_the_next_of_its_key(
    until: Until, error: BaseException
) -> None:
    gates = Gates()
    deliveries = Deliveries([record(0, "a"), record(1, "a"), record(2, "b")])
    task = run(deliveries, gates.handle)
    await until(lambda: gates.begun == [0, 2])
    gates.fail(0, error)
    gates.open(2)
    await until(lambda: gates.begun == [0, 2, 0])
    assert deliveries.acked == [2]
    gates.open(0)
    await until(lambda: gates.begun == [0, 2, 0, 1])
    gates.open(1)
    deliveries.close()
    await task
    assert deliveries.acked == [2, 0, 1]


async def test_records_of_a_revoked_queue_are_dropped_and_not_tried_again(until: Until) -> None:
    gates = Gates()
    deliveries = Deliveries([record(0, "a"), record(1, "a"), record(2, "a", B)])
    task = run(deliveries, gates.handle)
    await until(lambda: gates.begun == [0, 2])
    deliveries.revoked.add(A)
    gates.fail(0, LookupError())
    gates.open(2)
    await until(lambda: deliveries.acked == [2])
    deliveries.close()
    await task
    assert gates.begun == [0, 2]


async def test_the_end_finishes_what_is_being_handled_and_begins_nothing(until: Until) -> None:
    gates = Gates()
    deliveries = Deliveries([record(0, "a"), record(1, "a")])
    task = run(deliveries, gates.handle)
    await until(lambda: gates.begun == [0])
    deliveries.close()
    await asyncio.sleep(0)
    assert not task.done()
    gates.open(0)
    await task
    assert gates.begun == [0]
    assert deliveries.acked == [0]


async def test_the_end_does_not_wait_for_the_next_attempt(until: Until) -> None:
    gates = Gates()
    deliveries = Deliveries([record(0, "a")])
    task = run(deliveries, gates.handle, retry_ms_min=60_000, retry_ms_max=60_000)
    await until(lambda: gates.begun == [0])
    gates.fail(0, LookupError())
    deliveries.close()
    await task
    assert deliveries.acked == []


async def test_an_error_of_poll_cancels_the_handlers_and_is_raised(until: Until) -> None:
    gates = Gates()
    deliveries = Deliveries([record(0, "a")])
    task = run(deliveries, gates.handle)
    await until(lambda: gates.begun == [0])
    deliveries.batches.put_nowait(DataCorrupt("a batch"))
    with pytest.raises(DataCorrupt):
        await task
    assert gates.gates[0].cancelled()


async def test_cancelling_the_run_cancels_the_handlers(until: Until) -> None:
    gates = Gates()
    deliveries = Deliveries([record(0, "a")])
    task = run(deliveries, gates.handle)
    await until(lambda: gates.begun == [0])
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert gates.gates[0].cancelled()
    assert deliveries.acked == []


async def _good(record: Record) -> None: ...


def _plain(record: Record) -> None: ...


class _Callable:
    async def __call__(self, record: Record) -> None: ...


@pytest.mark.parametrize("handler", [_good, partial(_good), _Callable(), _Callable().__call__])
def test_async_handlers_of_every_form_are_taken(handler: Any) -> None:
    check_async(handler)


@pytest.mark.parametrize("handler", [_plain, partial(_plain), lambda _: None, object()])
def test_a_handler_that_is_not_async_is_refused_with_its_name(handler: Any) -> None:
    with pytest.raises(TypeError, match=r"handler .* is not async; write it as `async def`"):
        check_async(handler)


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

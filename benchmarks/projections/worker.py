"""
The process that is measured: projections that follow a topic, or a rebuild of one.

    python -m benchmarks.projections.worker live|lag|rebuild|sealed|apart|bare ASKED

ASKED is JSON. What it found out is printed as JSON on one line; "ready" before, where it waits.
"""

import asyncio
import gc
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import asyncpg
import msgspec
import structlog
import uvloop
from sqlalchemy import make_url

from benchmarks.projections.account import Balance, Deposited, app, projections
from headrace.projections.runner import ProjectionRunner
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.local.rebuild import rebuild_together
from headrace.serialization import Serializer
from headrace.settings import Settings
from headrace.stores.memory.store import MemoryEventStore
from headrace.transports.base import Incoming, OffsetLoader, QueueId, Subscription
from headrace.transports.queue import QueueTransport
from headrace_mq.client.sync.reader import BlockingReader
from headrace_mq.message import QueueRef

Said = dict[str, Any]

TOPIC = "bench.events"
LIMIT_S = 600
# How often a runner is asked for its place; it answers from memory.
LOOK_S = 0.005
# What `headrace run` sets.
GC_THRESHOLDS = (50_000, 20, 100)


def ends(broker: str) -> dict[QueueId, int]:
    with BlockingReader(broker) as reader:
        return {(each.topic, each.queue_id): each.end for each in reader.ranges([TOPIC])}


def runner_of(
    number: int, models: ReadModels, transport: Any, serializer: Serializer
) -> ProjectionRunner[Balance]:
    return ProjectionRunner(
        projection=projections[number],
        app_name=app.name,
        read_models=models,
        store=MemoryEventStore(),
        transport=transport,
        serializer=serializer,
        settings=Settings(),
    )


async def live(asked: Mapping[str, Any]) -> Said:
    """Projections side by side in one process, from the topic's beginning to its end."""
    targets = ends(asked["broker"])
    models, transport = ReadModels(asked["read_models"]), QueueTransport(asked["broker"])
    await transport.start()
    serializer = app.serializer
    runners = [
        runner_of(number, models, transport, serializer) for number in range(asked["projections"])
    ]
    for projection in projections[: len(runners)]:
        await models.ensure(projection)
    settle()
    began, began_cpu = time.perf_counter(), time.process_time()
    await asyncio.wait_for(asyncio.gather(*(reach(each, targets) for each in runners)), LIMIT_S)
    seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    rows = await models.reader(projections[0]).count()
    await transport.aclose()
    await models.aclose()
    return {"events": sum(targets.values()), "rows": rows, "seconds": seconds, "cpu": cpu}


async def reach(runner: ProjectionRunner[Balance], targets: Mapping[QueueId, int]) -> None:
    """Runs a runner up to these offsets, without asking the database how far it is."""
    task = asyncio.create_task(runner.run())
    while any(runner.progress().get(queue, 0) < end for queue, end in targets.items()):
        await asyncio.sleep(LOOK_S)
        assert not runner.status.failed, runner.status
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class _Timed:
    """A transport whose subscriptions note when a message is polled, and acknowledged."""

    def __init__(self, transport: QueueTransport) -> None:
        self._transport = transport
        # Of each message: from sending to the poll that takes it, from there to the end of its
        # transaction.
        self.parts: list[tuple[float, float]] = []

    async def subscribe(
        self, group: str, topics: Sequence[str], *, offsets: OffsetLoader | None = None
    ) -> Subscription:
        subscription = await self._transport.subscribe(group, topics, offsets=offsets)
        return _TimedSubscription(subscription, self.parts)


class _TimedSubscription:
    """Polls when it is polled, as what a runner waits for may depend on that."""

    def __init__(self, subscription: Subscription, parts: list[tuple[float, float]]) -> None:
        self._subscription = subscription
        self._parts = parts
        self._taken: dict[tuple[QueueId, int], float] = {}
        self.seek = subscription.seek
        self.aclose = subscription.aclose

    async def poll(self) -> list[Incoming]:
        messages = await self._subscription.poll()
        now = time.monotonic()
        self._taken.update(((each.queue, each.offset), now) for each in messages)
        return messages

    def ack(self, message: Incoming) -> None:
        taken = self._taken.pop((message.queue, message.offset))
        sent = float(message.headers["sent"])
        self._parts.append((taken - sent, time.monotonic() - taken))
        self._subscription.ack(message)


async def lag(asked: Mapping[str, Any]) -> Said:
    """One projection beside a paced sender: from sending to the end of the transaction."""
    models, transport = ReadModels(asked["read_models"]), QueueTransport(asked["broker"])
    await transport.start()
    await models.ensure(projections[0])
    timed = _Timed(transport)
    task = asyncio.create_task(runner_of(0, models, timed, app.serializer).run())
    settle()
    print("ready", flush=True)
    began_cpu = 0.0
    while len(timed.parts) < asked["events"]:
        await asyncio.sleep(0.05)
        if len(timed.parts) <= asked["warm_up"]:
            began_cpu = time.process_time()
    cpu = time.process_time() - began_cpu
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await transport.aclose()
    await models.aclose()
    said: Said = {"cpu": cpu}
    measured = timed.parts[asked["warm_up"] :]
    for part, seconds in {
        "": [sum(each) for each in measured],
        "queue_": [each[0] for each in measured],
        "applying_": [each[1] for each in measured],
    }.items():
        cuts = statistics.quantiles(seconds, n=100)
        said |= {f"{part}p50_ms": cuts[49] * 1e3, f"{part}p99_ms": cuts[98] * 1e3}
    return said


async def rebuilt(asked: Mapping[str, Any], *, apart: bool = False) -> Said:
    """Rebuilds in this process without comparing: in one pass, or apart from each other."""
    some = projections[: asked["projections"]]
    names = [projection.name for projection in some]
    models = ReadModels(asked["read_models"])
    for projection in some:
        await models.ensure(projection)
    await models.aclose()
    passes = [[name] for name in names] if apart else [names]
    events = rows = 0
    began, began_cpu = time.perf_counter(), time.process_time()
    for one_pass in passes:
        outcomes = await rebuild_together(
            "benchmarks.projections.account:app",
            one_pass,
            broker=asked["broker"],
            read_models_url=asked["read_models"],
            event_store_url=asked.get("event_store"),
            verify=False,
        )
        for report in outcomes.values():
            assert not isinstance(report, Exception), report
            assert report.switched, report
            events += report.events
            rows += report.rows
    seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    return {"events": events, "rows": rows, "seconds": seconds, "cpu": cpu}


class _Event(msgspec.Struct, gc=False):
    data: dict[str, Any]


class _Stream(msgspec.Struct, gc=False):
    aggregate_id: str
    events: list[_Event]


async def bare(asked: Mapping[str, Any]) -> Said:
    """The least that a rebuild can do: decode, a model per event and per row, COPY."""
    url = make_url(asked["read_models"])
    connection = await asyncpg.connect(
        host=str(url.query.get("host", url.host)), user=url.username, database=url.database
    )
    await connection.execute("CREATE TABLE bare (k TEXT PRIMARY KEY, b BIGINT, t BIGINT)")
    decode = msgspec.json.Decoder(_Stream).decode
    settle()
    rows: dict[str, Balance] = {}
    events = 0

    def fold(stream: _Stream) -> None:
        for event in stream.events:
            fact = Deposited.model_validate(event.data)
            row = rows.get(stream.aggregate_id)
            rows[stream.aggregate_id] = Balance(
                account_id=stream.aggregate_id,
                balance=fact.balance,
                transactions=row.transactions + 1 if row else 1,
            )

    began, began_cpu = time.perf_counter(), time.process_time()
    with BlockingReader(asked["broker"]) as reader:
        for queue, end in ends(asked["broker"]).items():
            for _, columns, first, last in reader.read(QueueRef(*queue), 0, end):
                for body in columns.bodies[first:last]:
                    fold(decode(body))
                events += last - first
    records = [tuple(row.__dict__.values()) for row in rows.values()]
    await connection.copy_records_to_table("bare", records=records)
    seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    await connection.close()
    return {"events": events, "rows": len(rows), "seconds": seconds, "cpu": cpu}


def settle() -> None:
    gc.set_threshold(*GC_THRESHOLDS)
    gc.collect()
    gc.freeze()


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    task, asked = sys.argv[1:]
    run = {
        "live": live,
        "lag": lag,
        "rebuild": rebuilt,
        "sealed": rebuilt,
        "apart": partial(rebuilt, apart=True),
        "bare": bare,
    }[task]
    print(json.dumps(uvloop.run(run(json.loads(asked)))), flush=True)


if __name__ == "__main__":
    main()

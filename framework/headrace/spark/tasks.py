"""
How reading a topic is divided among the tasks of a job.

    what is read, in bytes ─▶ tasks wanted = min(cores, bytes / 64 MiB)
      each aggregate in one queue, and tasks are kept busy by queues   a task reads whole queues
      otherwise                                                        a task reads ranges of offsets;
                                                                       streams are brought together by
                                                                       aggregate before they are folded

Used by jobs that read the event topic, before they read it; asks the broker, and runs a job of its own
where the broker cannot say that aggregates have kept their queues. It must not know a database.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from headrace.app import load_app
from headrace.errors import ProjectionError
from headrace.events.publisher import event_topic
from headrace.spark.executor.doubts import seal_of
from headrace.spark.executor.fold import RECORD_SCHEMA, Batches
from headrace.spark.executor.plan import FoldPlan, module_folder
from headrace.spark.executor.streams import find_moved
from headrace.spark.topic import fetch_ranges, fetch_settled, message_bytes
from headrace_mq.errors import MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import QueueRange
from headrace_mq.spark.offsets import QueueSlice, split_slices
from headrace_mq.spark.reader import rarely_collecting

__all__ = ["TASK_BYTES_MIN", "by_key", "divide", "divide_plan", "plan_events"]

# Bytes of messages for which another task is wanted: some seconds of folding, next to which starting a
# task is nothing.
TASK_BYTES_MIN: Final = 64 << 20
# What an event costs where streams are brought together, next to what it costs where queues are read
# whole: queues stay whole while their largest share takes no longer than that.
_TOGETHER_COST: Final = 2.0
# Of a message, where none can be looked at.
_MESSAGE_BYTES: Final = 500.0


def plan_events(
    app: str,
    wanted: Callable[[Sequence[QueueRange]], Sequence[QueueSlice]],
    *,
    broker: str,
    event_store_url: str | None,
    projection: str = "",
) -> FoldPlan:
    """Returns what to read of an application's event topic, not divided yet.

    Args:
        app: the application's import path.
        wanted: chooses from what the broker holds.
        broker: its address, as every executor reaches it.
        event_store_url: fills gaps, and knows foreign messages.
        projection: the projection's name, where one is folded.

    Raises:
        ProjectionError: the broker is away or has no such topic, or does not hold what is wanted.
    """
    application = load_app(app)
    try:
        slices = wanted(fetch_ranges(broker, [event_topic(application.name)]))
    except (MessageQueueError, ValueError) as error:
        raise ProjectionError(f"the events of {app}: {error}") from error
    return FoldPlan(
        app=app,
        folder=module_folder(app),
        projection=projection,
        broker=broker,
        event_store=event_store_url,
        slices=tuple(slices),
        seal=seal_of(event_store_url, application.serializer),
    )


def divide_plan(
    session: SparkSession,
    plan: FoldPlan,
    *,
    onto: bool = False,
    task_bytes_min: int = TASK_BYTES_MIN,
) -> FoldPlan:
    """Returns a plan with its slices divided among tasks; blocks.

    Args:
        session: where it will run.
        plan: reads a topic; its slices are of whole queues, as far as they are to be read.
        onto: streams are brought together anyway, because they are folded onto what is known.
        task_bytes_min: bytes of messages for which another task is wanted.

    Raises:
        ConnectionLost: the broker cannot be reached from here.
        PySparkException: executors cannot read the topic.
    """
    slices = plan.slices
    if not slices:
        return plan
    topic = slices[0].queue.topic
    cores = _cores(session)
    sizes = message_bytes(plan.broker, slices)
    # Asked after the slices were planned: what came since is not read.
    moved = not (onto or fetch_settled(plan.broker, topic)) and _have_moved(
        session,
        replace(plan, groups=_packed([each.records for each in slices], min(cores, len(slices)))),
        len(fetch_ranges(plan.broker, [topic], patient=True)),
    )
    return divide(
        plan,
        {piece.queue: sizes.get(piece.queue, _MESSAGE_BYTES) for piece in slices},
        cores=cores,
        task_bytes_min=task_bytes_min,
        together=onto or moved,
    )


def divide(
    plan: FoldPlan,
    sizes: Mapping[QueueRef, float],
    *,
    cores: int,
    task_bytes_min: int = TASK_BYTES_MIN,
    together: bool = False,
) -> FoldPlan:
    """Returns a plan with its slices divided among tasks; pure.

    Args:
        plan: its slices are of whole queues.
        sizes: bytes of a message of each queue, more or less.
        cores: how many tasks run at a time.
        task_bytes_min: bytes of messages for which another task is wanted.
        together: streams have to be brought together: an aggregate may stand in two queues.
    """
    weights = [_bytes(piece, sizes) for piece in plan.slices]
    total = sum(weights)
    wanted = max(1, min(cores, -int(-total // task_bytes_min)))
    groups = _packed(weights, min(cores, len(plan.slices)))
    largest = max(sum(weights[place] for place in group) for group in groups)
    if not together and largest <= _TOGETHER_COST * total / wanted:
        return replace(plan, groups=groups, together=False)
    pieces = list(_pieces(plan.slices, sizes, total / wanted))
    count = max(wanted, len(groups))
    groups = _packed([_bytes(piece, sizes) for piece in pieces], min(count, len(pieces)))
    return replace(plan, slices=tuple(pieces), groups=groups, together=True)


def by_key(frame: DataFrame, tasks: int | None = None) -> DataFrame:
    """Brings the records of each key together, in the order in which they are folded.

    Args:
        frame: records.
        tasks: into so many partitions; None: as many as the session says.
    """
    order = ("key", "moment", "queue", "offset", "turn")
    brought = frame.repartition("key") if tasks is None else frame.repartition(tasks, "key")
    return brought.sortWithinPartitions(*order)


def _have_moved(session: SparkSession, plan: FoldPlan, queues: int) -> bool:
    """Whether a message stands in another queue than its key's; ends at the first one of each task."""
    step = partial(find_moved, queues)

    # A function of its own travels by value, with the plan; the step it calls by name.
    def run(batches: Batches) -> Batches:
        with rarely_collecting():
            yield from step(plan, batches)

    count = len(plan.tasks)
    found = session.range(0, count, 1, count).mapInArrow(run, RECORD_SCHEMA)
    return bool(found.select("key").toArrow().num_rows)


def _cores(session: SparkSession) -> int:
    try:
        return max(1, session.sparkContext.defaultParallelism)
    except AttributeError:
        # Spark Connect has no context; this many tasks are made of a shuffle there.
        return max(1, int(session.conf.get("spark.sql.shuffle.partitions") or 1))


def _bytes(piece: QueueSlice, sizes: Mapping[QueueRef, float]) -> float:
    return max(1.0, piece.records * sizes[piece.queue])


def _pieces(
    slices: Iterable[QueueSlice], sizes: Mapping[QueueRef, float], piece_bytes: float
) -> Iterable[QueueSlice]:
    """Cuts slices into pieces of at most so many bytes, those of one slice alike."""
    for whole in slices:
        count = -int(-_bytes(whole, sizes) // piece_bytes)
        yield from split_slices([whole], -(-whole.records // count))


def _packed(weights: Sequence[float], count: int) -> tuple[tuple[int, ...], ...]:
    """Divides places into groups of about the same weight, heavy ones first."""
    groups: list[list[int]] = [[] for _ in range(count)]
    lightest = [(0.0, number) for number in range(count)]
    for place in sorted(range(len(weights)), key=lambda each: -weights[each]):
        weight, number = heapq.heappop(lightest)
        groups[number].append(place)
        heapq.heappush(lightest, (weight + weights[place], number))
    return tuple(tuple(sorted(group)) for group in groups if group)

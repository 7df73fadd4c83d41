"""
Rebuilding a projection in this process: the topic folded in memory, then the switch.

    begin (or go on with) a shadow ─▶ capture where the topic ends ─▶ fold and write up to there
    ─▶ catch up ─▶ compare with the live rows ─▶ switch

Needs no Java. What is written is one transaction with its offsets, so a rebuild that was killed goes on
where it stood when it is run again. Sits between: the command line and the parts of this package.
Must never know Spark.
"""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from headrace._domain.stream import EventStream
from headrace._eventing.publisher import event_topic
from headrace._projecting.read_models import ReadModels
from headrace._runtime.clock import Clock, SystemClock
from headrace.app import load_app
from headrace.errors import ProjectionError, SerializationError, UnknownMessageType
from headrace.rebuilding.building import Building, open_missing_reader, open_read_models
from headrace.rebuilding.gathering import Gathering
from headrace.rebuilding.phases import Phases, Progress
from headrace.rebuilding.report import RebuildReport
from headrace.rebuilding.switch import Means, Outcome, Shadow, bring_live
from headrace.rebuilding.topic import EventTopic, Portion
from headrace.serialization import Serializer
from headrace.transports.base import QueueId

__all__ = ["check", "rebuild"]

# How long a live generation that is behind may take to catch up before comparing is given up.
_LIVE_WAIT_MS: Final = 60_000
# Messages per transaction: what a kill makes to be done again, a few seconds' work, and so many that
# most rows are touched by several of them and written once.
_MESSAGES_MAX: Final = 200_000
# Instead of Python's 700 allocations, 10 and 10 collections.
_GC_THRESHOLDS: Final = (50_000, 20, 100)
# Messages that are decoded and folded together: little memory, and no more stops than needed.
_PORTION_MAX: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replayed:
    start: Mapping[QueueId, int]
    end: Mapping[QueueId, int]
    events: int
    rows: int


async def rebuild(  # noqa: PLR0913 - one argument per choice of the command line
    app: str,
    projection_name: str,
    *,
    broker: str,
    read_models_url: str,
    event_store_url: str | None = None,
    verify: bool = True,
    switch: bool = True,
    take_over: bool = False,
    live_wait_ms: int = _LIVE_WAIT_MS,
    messages_max: int = _MESSAGES_MAX,
    report: Progress | None = None,
    clock: Clock | None = None,
) -> RebuildReport:
    """Builds a projection anew beside the live one, compares the two, and switches to the new one.

    Args:
        app: the application's import path, such as `samples.bank:app`.
        projection_name: which of its projections.
        broker: `host:port`.
        read_models_url: where the projection's tables are.
        event_store_url: fills gaps of the event topic; without it a gap is an error.
        verify: compare row for row with the live generation, at equal offsets, before switching.
        switch: make the result live if nothing speaks against it.
        take_over: begin even if another rebuild seems to be running; its result is gone on with.
        live_wait_ms: how long to wait for a live generation that is behind.
        messages_max: messages per transaction.
        report: called at the start of each phase, and of each queue.
        clock: measures the phases.

    Returns:
        What was done. Not switched, though asked to: `reason` says why, and the rebuilt table is
        kept until the next rebuild.

    Raises:
        RebuildRunning: another rebuild of the projection is under way.
        ProjectionError: the events cannot be read or folded, or versions are missing; nothing that
            anybody reads was changed.
    """
    application = load_app(app)
    projection = application.projection(projection_name)
    serializer = application.serializer
    portion_max = min(messages_max, _PORTION_MAX)
    topic = EventTopic(broker, event_topic(application.name), messages_max=portion_max)
    store_url = None if event_store_url == "memory://" else event_store_url
    phases = Phases(clock or SystemClock(), report)
    async with (
        open_missing_reader(store_url, serializer) as missing,
        open_read_models(read_models_url, projection) as read_models,
    ):
        building = Building(read_models, projection)
        means = Means(
            feed=topic.read, serializer=serializer, missing=missing, live_wait_ms=live_wait_ms
        )
        phases.begin("begin")
        shadow = await building.begin(take_over=take_over, adopt=True)
        try:
            with _rarely_collecting():
                replayed = await _replay(read_models, shadow, topic, means, phases, messages_max)
            phases.begin("switch")
            outcome = await bring_live(read_models, shadow, means, verify=verify, switch=switch)
            await building.finish(shadow, outcome)
        except Exception:
            await building.give_up(shadow)
            raise
        phases.end()
        return _report(read_models, shadow, replayed, outcome, phases.seconds)


async def check(
    app: str, projection_name: str, *, read_models_url: str, **choices: Any
) -> RebuildReport:
    """Builds a projection anew, compares it with the live one, and drops it again.

    Args:
        app: the application's import path.
        projection_name: which of its projections.
        read_models_url: where the projection's tables are.
        choices: as `rebuild` takes them, without `verify` and `switch`.

    Returns:
        What was found. `compared` is None where the two could not be compared; `reason` says why.

    Raises:
        RebuildRunning, ProjectionError: as `rebuild`.
    """
    found = await rebuild(
        app, projection_name, read_models_url=read_models_url, switch=False, **choices
    )
    async with open_read_models(
        read_models_url, load_app(app).projection(projection_name)
    ) as read_models:
        await read_models.drop_generation(projection_name, found.generation)
    reason = found.reason.partition("; not switched")[0]
    return replace(found, reason=reason)


async def _replay(
    read_models: ReadModels,
    shadow: Shadow,
    topic: EventTopic,
    means: Means,
    phases: Phases,
    messages_max: int,
) -> _Replayed:
    phases.begin("capture")
    ranges = await topic.ranges()
    name = shadow.projection.name
    offsets = await read_models.offsets(name, shadow.generation)
    start = {queue: offsets.get(queue, 0) for queue in ranges}
    end = {queue: last for queue, (_, last) in ranges.items()}
    for queue, (first, _) in ranges.items():
        if first > start[queue]:
            raise ProjectionError(
                f"projection {name}: {queue[0]}/{queue[1]} begins at offset {first}, so that events"
                f" from {start[queue]} on are gone; a topic of events is kept for ever"
            )
    phases.begin("fold", sum(end[queue] - start[queue] for queue in ranges))
    gathering: Gathering[Any] = Gathering(
        read_models=read_models,
        shadow=shadow,
        missing=means.missing,
        offsets=offsets,
        messages_max=messages_max,
    )
    events = 0
    for queue, last in end.items():
        async for portion in topic.bodies(queue, start[queue], last):
            streams = _decode(queue, portion, means.serializer)
            await gathering.add(queue, portion.offsets[-1] + 1, streams)
            events += sum(len(stream.events) for stream in streams)
    await gathering.write()
    rows = await read_models.reader(shadow.projection, generation=shadow.generation).count()
    return _Replayed(start=start, end=end, events=events, rows=rows)


def _decode(queue: QueueId, portion: Portion, serializer: Serializer) -> list[EventStream]:
    """Decodes a portion, without rejections and without what took no version."""
    streams: list[EventStream] = []
    for offset, body in zip(portion.offsets, portion.bodies, strict=True):
        try:
            stream = serializer.decode_stream(body)
        except (SerializationError, UnknownMessageType) as error:
            topic, number = queue
            raise ProjectionError(
                f"the event message at {topic}/{number} offset {offset} does not decode: {error}"
            ) from error
        if stream.version is not None:
            streams.append(stream)
    return streams


@contextmanager
def _rarely_collecting() -> Iterator[None]:
    """Makes Python look for cyclic garbage rarely: streams and rows by the thousand are none."""
    before = gc.get_threshold()
    gc.set_threshold(*_GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _report(
    read_models: ReadModels,
    shadow: Shadow,
    replayed: _Replayed,
    outcome: Outcome,
    seconds: Mapping[str, float],
) -> RebuildReport:
    def named(offsets: Mapping[QueueId, int]) -> dict[str, int]:
        return {f"{topic}/{number}": offset for (topic, number), offset in offsets.items()}

    target = read_models.target(shadow.projection, shadow.generation)
    return RebuildReport(
        projection=shadow.projection.name,
        generation=shadow.generation,
        table=str(target.table.name),
        start="offsets" if any(replayed.start.values()) else "zero",
        start_offsets=named(replayed.start),
        end_offsets=named(replayed.end),
        caught_up_offsets=named(outcome.offsets),
        events=replayed.events,
        caught_up=outcome.caught_up,
        rows=replayed.rows,
        compared=outcome.compared,
        mismatches=outcome.mismatches,
        differences=outcome.differences,
        switched=outcome.switched,
        reason=outcome.reason,
        seconds={**seconds, "total": round(sum(seconds.values()), 3)},
        events_per_second=round(replayed.events / max(seconds["fold"], 0.001), 1),
    )

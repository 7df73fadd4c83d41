"""
Rebuilding projections in this process: the topic folded in memory, then the switch of each.

    begin (or go on with) a shadow each ─▶ capture where the topic ends ─▶ read and decode it once,
    fold and write for each ─▶ catch up ─▶ compare with the live rows ─▶ switch

Needs no Java. What is written is one transaction with its offsets, so a rebuild that was killed
goes on where it stood when it is run again; of several, reading begins where the one furthest
behind stands. Used by the command line; uses the other modules of this package. It must not know
Spark.
"""

import gc
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal, Required, TypedDict, Unpack

from headrace._runtime.clock import Clock, SystemClock
from headrace.app import App, load_app
from headrace.projections.definition.projection import Projection
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.decode import Decoder, Undecodable, context_read
from headrace.rebuild.event_topic import Portion
from headrace.rebuild.left_out import LeftOut
from headrace.rebuild.local.moment import Moment, ranges_before
from headrace.rebuild.local.part import Base, Part
from headrace.rebuild.local.partial_rebuild import Mending, Refolded, Wanted
from headrace.rebuild.local.refold import refold
from headrace.rebuild.local.rows_in_memory import KEPT_MAX
from headrace.rebuild.owner import Kind
from headrace.rebuild.phases import Phases, Progress
from headrace.rebuild.report import RebuildReport
from headrace.rebuild.shadow import Building, open_read_models
from headrace.rebuild.source import Events, Opened, Source, open_events
from headrace.rebuild.switch import Means, Shadow
from headrace.serialization import JsonSerializer
from headrace.transports.base import QueueId

__all__ = ["INCREMENT_MAX", "Choices", "fold_increment_here", "rebuild", "rebuild_together"]

# How long a live generation that is behind may take to catch up before comparing is given up.
_LIVE_WAIT_MS: Final = 60_000
# Messages per transaction: what a kill makes to be done again, some seconds' work, and so many that
# most rows are touched by several of them and written once: folding waits for each transaction.
_MESSAGES_MAX: Final = 1_000_000
# Instead of Python's 700 allocations, 10 and 10 collections.
_GC_THRESHOLDS: Final = (50_000, 20, 100)
# Messages that are read from the broker together.
_PORTION_MAX: Final = 5_000
# Messages that are decoded and then folded: so few that what was decoded is still in the processor's
# cache when it is folded, and is forgotten there.
_PIECE_MAX: Final = 100
# Messages up to which what came since the live rows is folded in this process: seconds, if each touches
# a row of its own that has to be read and written. Other engines move every row to find those.
INCREMENT_MAX: Final = 100_000


class Choices(TypedDict, total=False):
    """What a rebuild can be asked for.

    Attributes:
        broker: `host:port`. None: there is none, which only a rebuild from the store can do without;
            the live projection then reads the event topic from its beginning.
        read_models_url: where the projections' tables are.
        event_store_url: fills gaps of the event topic, and knows foreign messages; without it a gap
            is an error, and all that stands in the topic is believed.
        source: folds the event "topic", or the event "store" in the order of its positions.
        start: "zero" folds everything; "offsets" folds what came into the topic since onto a copy of
            the live rows, as they are.
        verify: compare row for row with the live generation, at equal offsets or versions, before
            switching.
        switch: make the result live if nothing speaks against it.
        as_of: build a table of the events before a moment, which never goes live; from the topic alone.
        accept: how many rows may differ; True: any number. Where a number is given and nothing could be
            compared, the result does not go live.
        take_over: begin even if another rebuild seems to be running; its result is gone on with.
        live_wait_ms: how long to wait for a live generation that is behind; from the store, for one
            that stands still, of which a rebuild leaves the rows out that lack events.
        messages_max: messages per transaction.
        clock: measures the phases.
    """

    broker: Required[str | None]
    read_models_url: Required[str]
    event_store_url: str | None
    source: Source
    start: Literal["zero", "offsets"]
    verify: bool
    switch: bool
    accept: int
    as_of: Moment | None
    take_over: bool
    live_wait_ms: int
    messages_max: int
    clock: Clock | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    """The same, with what holds where nothing was asked for."""

    broker: str | None
    read_models_url: str
    event_store_url: str | None = None
    source: Source = "topic"
    start: Literal["zero", "offsets"] = "zero"
    verify: bool = True
    switch: bool = True
    accept: int = False
    as_of: Moment | None = None
    take_over: bool = False
    live_wait_ms: int = _LIVE_WAIT_MS
    messages_max: int = _MESSAGES_MAX
    clock: Clock | None = None
    base: Base | None = None

    @property
    def kind(self) -> Kind:
        """What shadows are filled from."""
        if self.base is not None:
            return "export"
        if self.as_of is not None:
            return "moment"
        if self.source == "store":
            return "store"
        return "copy" if self.start == "offsets" else "topic"


async def rebuild(
    app: str,
    projection_name: str,
    *,
    wanted: Wanted | None = None,
    report: Progress | None = None,
    **choices: Unpack[Choices],
) -> RebuildReport:
    """Rebuilds a projection next to the live one, compares the two, and switches to the new one.

    Args:
        app: the application's import path, such as `samples.bank:app`.
        projection_name: which of its projections.
        wanted: fold these rows alone, from zero, among live rows that stay as they are.
        report: called at the start of each phase.
        choices: as `Choices` tells them.

    Returns:
        What was done. Not switched, though asked to: `reason` says why, and the rebuilt table is
        kept until the next rebuild.

    Raises:
        RebuildRunning: another rebuild of the projection is under way.
        ProjectionError: the events cannot be read or folded, or versions are missing; nothing that
            anybody reads was changed.
    """
    if wanted is not None:
        return await _mend(app, projection_name, wanted, report, _Chosen(**choices))
    told = None if report is None else lambda _, phase, ahead: report(phase, ahead)
    outcomes = await rebuild_together(app, [projection_name], report=told, **choices)
    outcome = outcomes[projection_name]
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


async def rebuild_together(
    app: str,
    projection_names: Sequence[str],
    *,
    report: Callable[[str, str, int], None] | None = None,
    base: Base | None = None,
    **choices: Unpack[Choices],
) -> dict[str, RebuildReport | Exception]:
    """Rebuilds several projections in one pass: each message is read and decoded once for all.

    Each has its own shadow, offsets and switch, so that the failure of one costs the others nothing,
    and each goes on where it stood after a kill.

    Args:
        app: the application's import path, such as `samples.bank:app`.
        projection_names: which of its projections.
        report: called with the projection's name at the start of each of its phases.
        base: makes what each begins with, in place of the begin of the topic.
        choices: as `Choices` tells them.

    Returns:
        By name, in the order asked for: what was done, or what `rebuild` would have raised.

    Raises:
        ProjectionNotFound: the application has no projection of a name; nothing was begun.
    """
    application, chosen = load_app(app), _Chosen(base=base, **choices)
    projections = [application.projection(name) for name in dict.fromkeys(projection_names)]
    outcomes: dict[str, RebuildReport | Exception] = {}
    async with _open(application, chosen) as found, AsyncExitStack() as opened:
        parts: list[Part] = []
        for projection in projections:
            told = None if report is None else partial(report, projection.name)
            phases = Phases(chosen.clock or SystemClock(), told)
            try:
                read_models = await opened.enter_async_context(
                    open_read_models(chosen.read_models_url, projection)
                )
                part_of = partial(
                    Part, read_models, means=found.means, phases=phases, origin=found.origin
                )
                parts.append(
                    await _begin(read_models, projection, chosen, phases, part_of, found.means)
                )
            except Exception as error:  # noqa: BLE001 - it ends this one; the others go on
                outcomes[projection.name] = error
        decoding = (application.serializer_at(found.event_store), found.means.left_out)
        ranges = partial(_ranges, found, chosen.as_of)
        await _replay(found.events, _going_on(parts), decoding, chosen.messages_max, ranges)
        for part in _going_on(parts):
            async with part.attempt():
                if chosen.as_of is not None:
                    await part.set_aside(chosen.as_of.text)
                    continue
                await part.bring_live(
                    verify=chosen.verify, switch=chosen.switch, accept=chosen.accept
                )
    for part in parts:
        outcome = part.failure or part.report
        assert outcome is not None, "a part ends with one of them"
        outcomes[part.name] = outcome
    return {projection.name: outcomes[projection.name] for projection in projections}


async def fold_increment_here(
    shadow: Shadow,
    read_models: ReadModels,
    found: Opened,
    serializer: JsonSerializer,
    ranges: Mapping[QueueId, tuple[int, int]],
    *,
    phases: Phases,
    wishes: Mapping[str, Any],
) -> RebuildReport:
    """Folds what came since onto a shadow that is a copy of the live rows, and brings it live.

    Args:
        shadow: a copy, which stands where the ranges begin.
        read_models: where it is.
        found: the events.
        serializer: knows the event types.
        ranges: where reading begins and ends, per queue.
        phases: what is being done.
        wishes: what becomes of the result, as `Part.bring_live` takes it.

    Raises:
        ProjectionError: the events cannot be read or folded; nothing that anybody reads was changed.
    """
    part = Part(read_models, shadow, found.means, phases, origin=found.origin)
    await _fold_ranges(found.events, ranges, [part], (serializer, found.means.left_out))
    if part.failure is not None:
        raise part.failure
    await part.bring_live(**wishes)
    assert part.report is not None, "it went to its end"
    return replace(part.report, start="offsets")


async def _mend(
    app: str,
    projection_name: str,
    wanted: Wanted,
    report: Progress | None,
    chosen: _Chosen,
) -> RebuildReport:
    """Rebuilds some rows; rows in memory are written at once, for any `messages_max`."""
    assert chosen.kind == "topic", (
        "single rows are rebuilt from the topic, from their first event on"
    )
    application = load_app(app)
    projection = application.projection(projection_name)
    async with (
        _open(application, chosen) as found,
        open_read_models(chosen.read_models_url, projection) as read_models,
    ):
        topic, means = found.topic, found.means
        assert topic is not None, "its events are there"
        target = read_models.target(projection, 0)
        serializer = application.serializer_at(found.event_store)

        async def fold(keys: frozenset[str], ends: Mapping[QueueId, int]) -> Refolded:
            with _rarely_collecting():
                return await refold(topic, target, serializer, means.missing, keys=keys, ends=ends)

        mending = Mending(
            projection=projection,
            read_models=read_models,
            topic=topic,
            means=means,
            refold=fold,
            phases=Phases(chosen.clock or SystemClock(), report),
        )
        return await mending.run(
            wanted,
            verify=chosen.verify,
            switch=chosen.switch,
            accept=chosen.accept,
            take_over=chosen.take_over,
        )


def _open(application: App, chosen: _Chosen) -> AbstractAsyncContextManager[Opened]:
    return open_events(
        application,
        chosen.source,
        (chosen.broker, chosen.event_store_url),
        switch=chosen.switch,
        live_wait_ms=chosen.live_wait_ms,
        messages_max=min(chosen.messages_max, _PORTION_MAX),
    )


async def _begin(
    read_models: ReadModels,
    projection: Projection[Any],
    chosen: _Chosen,
    phases: Phases,
    part_of: "Callable[[Shadow], Part]",
    means: Means,
) -> Part:
    phases.begin("begin")
    building = Building(read_models, projection)
    shadow = await building.begin(
        chosen.kind,
        take_over=chosen.take_over,
        adopt=True,
        keep_finished=not chosen.switch or chosen.as_of is not None,
        as_of=None if chosen.as_of is None else chosen.as_of.text,
        epochs=means.epochs,
    )
    part = part_of(shadow)
    if chosen.kind == "copy":
        async with part.attempt():
            await part.copy_live()
    if chosen.base is not None:
        async with part.attempt():
            await part.lay(chosen.base)
    return part


async def _ranges(found: Opened, as_of: Moment | None) -> Mapping[QueueId, tuple[int, int]]:
    ranges = await found.events.ranges()
    if as_of is None:
        return ranges
    assert found.topic is not None, "a moment is one of the topic"
    return await ranges_before(found.topic, as_of, ranges)


async def _replay(
    events: Events,
    parts: Sequence[Part],
    decoding: tuple[JsonSerializer, LeftOut],
    messages_max: int,
    ranges_of: Callable[[], Awaitable[Mapping[QueueId, tuple[int, int]]]],
) -> None:
    """Folds events for all parts, from where each stands to where they end now, or at a moment."""
    if not parts:
        return
    for part in parts:
        part.begin("capture")
    try:
        ranges = await ranges_of()
    except Exception as error:  # noqa: BLE001 - it is what ended each of them
        for part in parts:
            await part.fail(error)
        return
    await _fold_ranges(events, ranges, parts, decoding, messages_max=messages_max)


async def _fold_ranges(
    events: Events,
    ranges: Mapping[QueueId, tuple[int, int]],
    parts: Sequence[Part],
    decoding: tuple[JsonSerializer, LeftOut],
    *,
    messages_max: int = _MESSAGES_MAX,
) -> None:
    """Folds events for all parts, from where each stands to the ends of ranges, and writes.

    What ends a part early is its `failure`.

    Args:
        events: the topic or the store.
        ranges: the first offset held and the next readable one of every queue.
        parts: begun.
        decoding: the serializer that knows the event types, and what is left out.
        messages_max: messages per transaction.
    """
    serializer, left_out = decoding
    # Together they hold in memory what one alone may hold.
    kept_max = max(1, KEPT_MAX // len(parts))
    for part in parts:
        async with part.attempt():
            await part.stand(
                ranges,
                starts=await events.starts(),
                messages_max=messages_max,
                kept_max=kept_max,
            )
    decoder = Decoder(
        serializer,
        lambda event: any(part.reacts_to(event) for part in parts),
        context=context_read(part.projection for part in parts),
    )
    with _rarely_collecting():
        for queue, (_, end) in ranges.items():
            await _read_queue(events, queue, end, parts, (decoder, left_out))
            for part in _going_on(parts):
                part.passed(queue)
        for part in _going_on(parts):
            async with part.attempt():
                await part.write()


async def _read_queue(
    events: Events,
    queue: QueueId,
    end: int,
    parts: Sequence[Part],
    decoder: tuple[Decoder, LeftOut],
) -> None:
    waiting = _waiting(parts, queue, end)
    if not waiting:
        return
    start = min(part.position(queue) for part in waiting)
    try:
        async with aclosing(events.bodies(queue, start, end)) as portions:
            async for portion in portions:
                reads_back = any(part.reads_back for part in waiting)
                for piece in portion.pieces(_PORTION_MAX if reads_back else _PIECE_MAX):
                    await _give(queue, piece, waiting, decoder)
                if not _going_on(waiting):
                    return
    except Exception as error:  # noqa: BLE001 - it is what ended each that needed more
        for part in _waiting(parts, queue, end):
            await part.fail(error)


async def _give(
    queue: QueueId,
    portion: Portion,
    parts: Sequence[Part],
    decoder_and_left_out: tuple[Decoder, LeftOut],
) -> None:
    """Decodes a portion as far as a part needs it, and lets each part fold it.

    An aggregate with a stream that does not decode is left out from there on, as live readers park
    it; one that cannot be named ends the parts that need it.
    """
    decoder, left_out = decoder_and_left_out
    end = portion.offsets[-1] + 1
    while waiting := _waiting(parts, queue, end):
        start = min(part.position(queue) for part in waiting)
        try:
            decoded = left_out.decode(decoder, queue, portion, start)
        except Undecodable as error:
            for part in waiting:
                if part.position(queue) <= error.offset:
                    await part.fail(error)
            continue
        for part in waiting:
            try:
                await part.add(queue, decoded)
            except Exception as error:  # noqa: BLE001 - it ends this part; the others go on
                await part.fail(error)


def _waiting(parts: Sequence[Part], queue: QueueId, end: int) -> list[Part]:
    return [part for part in parts if part.needs(queue, end)]


def _going_on(parts: Sequence[Part]) -> list[Part]:
    return [part for part in parts if part.failure is None]


@contextmanager
def _rarely_collecting() -> Iterator[None]:
    """Makes Python look for cyclic garbage rarely: streams and rows by the thousand are none."""
    before = gc.get_threshold()
    gc.set_threshold(*_GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)

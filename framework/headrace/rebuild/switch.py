"""
From a finished shadow to the live generation: catch up, compare at equal offsets, switch.

    shadow behind live     apply the messages between, as the live runner does
    live behind shadow     wait for the live runner, for a bounded time
    level                  lock the projection ─▶ still level? ─▶ compare ─▶ switch, one transaction

All rows are compared before the lock, and under it those that changed since. While the lock is held
the live runner waits, so both stand still: what is compared is what is switched. Used by `rebuild`; uses the generations of a projection. It must not know Spark.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from headrace.errors import ProjectionError
from headrace.events.belief import Belief
from headrace.lineage.generation_epochs import GenerationEpochs
from headrace.projections.batch_transaction import (
    Applied,
    Batch,
    MissingReader,
    apply_batch,
    decode_batch,
)
from headrace.projections.definition.projection import Projection
from headrace.projections.definition.shape import RowShape
from headrace.projections.tables import generations
from headrace.projections.tables.comparison import NO_A, NO_B, Comparison, compare
from headrace.projections.tables.contents import Moved, read_offsets
from headrace.projections.tables.index.live import make_indexes
from headrace.projections.tables.origins import note_use
from headrace.projections.tables.read_models import ReadModels
from headrace.projections.tables.survey import Survey, open_survey
from headrace.rebuild.left_out import LeftOut
from headrace.serialization import Serializer
from headrace.stores.database.tables import projections
from headrace.transports.base import Incoming, QueueId

__all__ = [
    "OTHER_FIELDS",
    "Advanced",
    "Feed",
    "Means",
    "RebuildOutcome",
    "Shadow",
    "accepted",
    "accepts",
    "advance",
    "bring_live",
    "decode_around",
    "keep",
    "note_applied",
    "release",
    "tell_comparison",
]

# Yields the messages of a queue from one offset up to another, exclusive, some at a time.
Feed = Callable[[QueueId, int, int], AsyncIterator[Sequence[Incoming]]]

# Where each queue of what is fed began, if above 0.
Starts = Callable[[], Awaitable[Mapping[QueueId, int]]]

# Rounds of catching up before giving up; the live runner can only get ahead in the moment between
# the end of a round and the lock.
_ROUNDS_MAX: Final = 50
# Why nothing was compared where the columns have changed.
OTHER_FIELDS: Final = "the live generation has other columns: nothing was compared"


# The same where nothing folds the live rows any more.
_NONE_RUNS: Final = (
    "nothing was compared, because no service of version {version} brings the live rows up to date"
)
# How long live rows of another version are waited for: a service that folds them is soon done.
_OTHER_VERSION_WAIT_MS: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadow:
    """A generation that is filled and belongs to this rebuild."""

    projection: Projection[Any]
    generation: int
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildOutcome:
    """How it ended; the fields are those of `RebuildReport`."""

    caught_up: int = 0
    offsets: Mapping[QueueId, int]
    compared: int | None = None
    mended: int | None = None
    mismatches: int = 0
    differences: tuple[tuple[str, Any, Any], ...] = ()
    columns: Mapping[str, int] = field(default_factory=dict)
    samples: Mapping[str, tuple[tuple[str, Any, Any], ...]] = field(default_factory=dict)
    behind: int = 0
    ahead: int = 0
    switched: bool = False
    reason: str = ""


async def _from_zero() -> Mapping[QueueId, int]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What catching up needs.

    Attributes:
        feed: reads messages of the event topic.
        serializer: decodes them.
        missing: reads streams that the topic lacks.
        live_wait_ms: how long to wait for a live generation that is behind.
        starts: asks where queues began; who stands there has read nothing.
        epochs: notes those of the topic's brokers; None: there is no topic.
        belief: has counted what of the topic was not believed; None: all of it was.
        left_out: aggregates with a stream that does not decode, as folding has found them.
    """

    feed: Feed
    serializer: Serializer
    missing: MissingReader
    live_wait_ms: int
    starts: Starts = _from_zero
    epochs: GenerationEpochs | None = None
    belief: Belief | None = None
    left_out: LeftOut = field(default_factory=LeftOut)

    @property
    def foreign(self) -> int:
        """How many messages of the topic were not believed."""
        return 0 if self.belief is None else self.belief.foreign


@dataclass(frozen=True, slots=True, kw_only=True)
class Advanced:
    """How much was applied; rejections count among the messages."""

    messages: int
    events: int


async def bring_live(
    read_models: ReadModels,
    shadow: Shadow,
    means: Means,
    *,
    verify: bool,
    switch: bool,
    accept: int = False,
    mended: Collection[str] | None = None,
) -> RebuildOutcome:
    """Brings a shadow level with the live generation, compares them, and switches if all is well.

    If it does not switch, for a reason that is no error, the shadow's table stays in place.

    Args:
        read_models: where both are.
        shadow: filled, and this owner's.
        means: of catching up.
        verify: compare before switching.
        switch: make the shadow live if nothing speaks against it.
        accept: how many rows may differ; True: any number, False: none, unless the live rows are of
            another version.
        mended: keys whose rows may differ; None: none may.

    Raises:
        ProjectionError: the shadow is no longer this owner's, or cannot catch up.
    """
    async with AsyncExitStack() as stack:
        survey = partial(_survey, read_models, shadow, mended=mended, stack=stack)
        return await _bring_live(
            read_models, shadow, means, survey, verify=verify, switch=switch, accept=accept
        )


async def _bring_live(
    read_models: ReadModels,
    shadow: Shadow,
    means: Means,
    begin_survey: Callable[[int], Awaitable["_Surveyed"]],
    *,
    verify: bool,
    switch: bool,
    accept: int,
) -> RebuildOutcome:
    name = shadow.projection.name
    if switch:
        await make_indexes(read_models, shadow.projection, shadow.generation)
    state = await read_models.state(name)
    must_be_level = verify and shadow.projection.has_columns_of(state.fingerprint)
    not_compared = OTHER_FIELDS
    accept = accepted(accept, state.version, shadow)
    other_version = state.version != shadow.projection.version
    if other_version:
        means = replace(means, live_wait_ms=min(means.live_wait_ms, _OTHER_VERSION_WAIT_MS))
    starts = await means.starts()
    caught_up, surveyed = 0, None
    for _ in range(_ROUNDS_MAX):
        note = None if surveyed is None else surveyed.note
        caught_up += await _catch_up(read_models, shadow, means, note)
        late = await _wait_for_live(read_models, shadow, means) if must_be_level else ""
        if late and other_version and accepts(RebuildOutcome(offsets={}), accept):
            must_be_level, not_compared = False, _NONE_RUNS.format(version=state.version)
        elif late:
            offsets = await read_models.offsets(name, shadow.generation)
            return RebuildOutcome(caught_up=caught_up, offsets=offsets, reason=late)
        if must_be_level and surveyed is None:
            # All rows before the lock, and what changed meanwhile under it.
            surveyed = await begin_survey((await read_models.state(name)).generation)
            continue
        async with read_models.begin() as connection:
            state = await generations.lock_state(connection, name)
            live = _read(await read_offsets(connection, name, state.generation), starts)
            ours = _read(await read_offsets(connection, name, shadow.generation), starts)
            if _ahead(live, ours) or (must_be_level and live != ours):
                continue
            outcome = RebuildOutcome(caught_up=caught_up, offsets=ours)
            if must_be_level and surveyed is not None:
                outcome = await surveyed.compare(connection, state.generation, outcome)
            elif verify:
                outcome = replace(outcome, reason=not_compared)
            if switch and accepts(outcome, accept):
                await generations.switch(
                    connection, shadow.projection, shadow.generation, shadow.owner
                )
                outcome = replace(outcome, switched=True)
            return outcome if outcome.switched else keep(read_models, shadow, outcome, accept)
    raise ProjectionError(
        f"projection {name}: the live generation was ahead again after each of {_ROUNDS_MAX} rounds"
        " of catching up; run the rebuild when fewer events come in"
    )


def accepted(accept: int, live_version: int, shadow: Shadow) -> int:
    """Returns how many rows may differ: any number where the definition has another version."""
    return accept or live_version != shadow.projection.version


def accepts(outcome: RebuildOutcome, accept: int) -> bool:
    """Whether what was found does not speak against a switch.

    Args:
        outcome: of comparing.
        accept: how many rows may differ; True: any number, also if nothing was compared or live rows
            have events that the event store lacks. A number is kept only where rows were compared.
    """
    if accept is True:
        return True
    if accept and outcome.compared is None:
        return False
    return outcome.mismatches <= accept and not outcome.ahead


def keep(
    read_models: ReadModels, shadow: Shadow, outcome: RebuildOutcome, accept: int
) -> RebuildOutcome:
    """Returns the outcome of a shadow that differs and is kept, with what can be done with it."""
    if accept is not True and outcome.mismatches > accept > 0:
        outcome = replace(outcome, reason=f"{outcome.reason}, more than the {accept} expected")
    if not (outcome.mismatches or outcome.ahead):
        return outcome
    name = shadow.projection.name
    table = read_models.table_for(shadow.projection, shadow.generation).name
    return replace(
        outcome,
        reason=f"{outcome.reason}; not switched: people still read the rows from before, and the"
        f" rebuilt ones are kept in {table} until the next rebuild. If they are right,"
        f" because the code has changed, put them in place with `headrace projection switch {name}`,"
        " which folds nothing again",
    )


async def release(connection: AsyncConnection, shadow: Shadow) -> None:
    """Ends a rebuild that keeps its table: the next one may begin, and will drop it.

    Services of its version fold events into it meanwhile, if another version is live.
    """
    ended = await connection.execute(
        update(projections)
        .where(
            projections.c.name == shadow.projection.name,
            projections.c.rebuild_owner == shadow.owner,
        )
        .values(rebuild_generation=None, rebuild_owner=None, rebuild_started_at=None)
    )
    if ended.rowcount:
        await note_use(connection, shadow.projection.name, shadow.generation, by_command=True)


async def advance(
    read_models: ReadModels,
    shadow: Shadow,
    means: Means,
    ends: Mapping[QueueId, int],
    note: Callable[[Collection[str]], None] | None = None,
) -> Advanced:
    """Applies each queue's messages from where the shadow stands up to an offset, exclusive.

    Every portion of the feed is a transaction with its offsets. `note` hears the keys of rows that code
    of any version may have changed.

    Raises:
        ProjectionError: the shadow is no longer this owner's, or an event cannot be folded.
    """
    name = shadow.projection.name
    target = read_models.target(shadow.projection, shadow.generation)
    ours = await read_models.offsets(name, shadow.generation)
    applied = events = 0
    ahead = list(_ahead(ends, ours).items())
    while ahead:
        queue, end = ahead.pop()
        async for messages in means.feed(queue, ours.get(queue, 0), end):
            batch = decode_around(messages, ours, means)
            async with read_models.begin() as connection:
                outcome = await apply_batch(connection, target, batch, missing=means.missing)
            if isinstance(outcome, Moved) and outcome.offsets.get(queue, 0) > ours.get(queue, 0):
                # A service of its version folds into it, too: go on behind that.
                ours.update(outcome.offsets)
                ahead += [(queue, end)] if ours[queue] < end else []
                break
            if not isinstance(outcome, Applied):
                raise ProjectionError(
                    f"projection {name}: generation {shadow.generation} is no longer the shadow"
                    f" that {shadow.owner} builds; run the rebuild again"
                )
            ours.update(batch.end)
            if note is not None:
                note_applied(note, shadow, batch, outcome)
            applied += len(messages)
            events += sum(len(stream.events) for stream in batch.streams)
    return Advanced(messages=applied, events=events)


def note_applied(
    note: Callable[[Collection[str]], None], shadow: Shadow, batch: Batch, applied: Applied
) -> None:
    """Notes the keys of rows that a batch has changed here, or may change by code of another version."""
    note(applied.keys)
    if shadow.projection.keyed_by_aggregate:
        note({stream.aggregate_id for stream in batch.streams})


def decode_around(
    messages: Sequence[Incoming], positions: Mapping[QueueId, int | None], means: Means
) -> Batch:
    """Decodes messages, as `decode_batch`, without aggregates that are left out.

    An aggregate with a stream that does not decode is left out from there on, as live readers park it.

    Raises:
        ProjectionError: too many are.
    """
    left_out = means.left_out
    believed = left_out.pass_over(messages)
    try:
        return decode_batch(believed, positions, means.serializer)
    except ProjectionError:
        for each in believed:
            try:
                decode_batch([each], positions, means.serializer)
            except ProjectionError as error:
                if not left_out.note(each.key, each.queue, each.offset, str(error)):
                    raise
        return decode_batch(left_out.pass_over(messages), positions, means.serializer)


async def _catch_up(
    read_models: ReadModels,
    shadow: Shadow,
    means: Means,
    note: Callable[[Collection[str]], None] | None,
) -> int:
    name = shadow.projection.name
    if means.epochs is not None:
        await means.epochs.settle(read_models, (name, shadow.generation))
    live = await read_models.offsets(name, await read_models.generation(name))
    return (await advance(read_models, shadow, means, live, note)).messages


async def _wait_for_live(read_models: ReadModels, shadow: Shadow, means: Means) -> str:
    """Returns why the live generation could not be waited for; empty when it is no longer behind."""
    ours = await read_models.offsets(shadow.projection.name, shadow.generation)
    ours = _read(ours, await means.starts())
    try:
        await read_models.wait_for_offsets(shadow.projection, ours, timeout_ms=means.live_wait_ms)
    except ProjectionError as error:
        return (
            f"nothing was compared, because the live generation is behind the rebuilt one: {error};"
            " start the application and run the rebuild again, or put the rebuilt rows in place"
            f" with `headrace projection switch {shadow.projection.name}`"
        )
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Surveyed:
    """What was compared before the lock; no survey: nothing was."""

    read_models: ReadModels
    shadow: Shadow
    live: int
    mended: Collection[str] | None
    survey: Survey[Any] | None

    def note(self, keys: Collection[str]) -> None:
        if self.survey is not None:
            self.survey.note(keys)

    async def compare(
        self, connection: AsyncConnection, live: int, outcome: RebuildOutcome
    ) -> RebuildOutcome:
        """Tells what differs now, in the transaction that has locked the projection."""
        if self.survey is not None and live == self.live:
            found = await self.survey.compare(connection)
        else:
            ours = self.shadow.projection, live, self.shadow.generation
            found = await compare(self.read_models, *ours, expected=self.mended or ())
        told = tell_comparison(outcome, found, self.shadow.projection.shape)
        return told if self.mended is None else replace(told, mended=found.expected)


async def _survey(
    read_models: ReadModels,
    shadow: Shadow,
    live: int,
    *,
    mended: Collection[str] | None,
    stack: AsyncExitStack,
) -> _Surveyed:
    survey = await stack.enter_async_context(
        open_survey(read_models, shadow.projection, (live, shadow.generation), mended or ())
    )
    return _Surveyed(
        read_models=read_models, shadow=shadow, live=live, mended=mended, survey=survey
    )


def tell_comparison(
    outcome: RebuildOutcome, found: Comparison[Any], shape: RowShape[Any]
) -> RebuildOutcome:
    """Returns an outcome with what a comparison of the live rows with the shadow's has found.

    Args:
        outcome: to which it is added.
        found: by the comparison.
        shape: of the rows.
    """
    return replace(
        outcome,
        compared=found.rows,
        mismatches=found.mismatches,
        differences=tuple(
            (one.key, _values(shape, one.a), _values(shape, one.b)) for one in found.differences
        ),
        columns=found.columns,
        samples={
            name: tuple(
                (one.key, _value(shape, one.a, name), _value(shape, one.b, name))
                for one in differing
            )
            for name, differing in found.samples.items()
        },
        reason=f"{found.mismatches} of {found.rows} rows differ from the live ones"
        if found.mismatches
        else "",
    )


def _values(shape: RowShape[Any], row: Any) -> Any:
    return None if row is None else shape.readable(row)


def _value(shape: RowShape[Any], row: Any, column: str) -> Any:
    """Returns what a report tells of a row: a column; all of one that the other side lacks."""
    values = _values(shape, row)
    return values if values is None or column in {NO_A, NO_B} else values[column]


def _ahead(ones: Mapping[QueueId, int], others: Mapping[QueueId, int]) -> dict[QueueId, int]:
    return {queue: offset for queue, offset in ones.items() if offset > others.get(queue, 0)}


def _read(offsets: Mapping[QueueId, int], starts: Mapping[QueueId, int]) -> dict[QueueId, int]:
    # A queue of which nothing was read may or may not have a stored offset, which is where it began.
    return {queue: offset for queue, offset in offsets.items() if offset > starts.get(queue, 0)}

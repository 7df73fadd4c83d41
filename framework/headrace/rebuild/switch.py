"""
From a finished shadow to the live generation: catch up, compare at equal offsets, switch.

    shadow behind live     apply the messages between, as the live runner does
    live behind shadow     wait for the live runner, for a bounded time
    level                  lock the projection ─▶ still level? ─▶ compare ─▶ switch, one transaction

While the lock is held the live runner waits, so both stand still: what is compared is what is
switched. Used by `rebuild`; uses the generations of a projection. It must not know Spark.
"""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from headrace.errors import ProjectionError
from headrace.events.belief import Belief
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
from headrace.projections.tables.contents import read_offsets
from headrace.projections.tables.live_indexes import make_indexes
from headrace.projections.tables.read_models import ReadModels
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
    "release",
    "tell_comparison",
]

# Yields the messages of a queue from one offset up to another, exclusive, some at a time.
Feed = Callable[[QueueId, int, int], AsyncIterator[Sequence[Incoming]]]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What catching up needs.

    Attributes:
        feed: reads messages of the event topic.
        serializer: decodes them.
        missing: reads streams that the topic lacks.
        live_wait_ms: how long to wait for a live generation that is behind.
        belief: has counted what of the topic was not believed; None: all of it was.
        left_out: aggregates with a stream that does not decode, as folding has found them.
    """

    feed: Feed
    serializer: Serializer
    missing: MissingReader
    live_wait_ms: int
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
    caught_up = 0
    for _ in range(_ROUNDS_MAX):
        caught_up += await _catch_up(read_models, shadow, means)
        late = await _wait_for_live(read_models, shadow, means) if must_be_level else ""
        if late and other_version and accepts(RebuildOutcome(offsets={}), accept):
            must_be_level, not_compared = False, _NONE_RUNS.format(version=state.version)
        elif late:
            offsets = await read_models.offsets(name, shadow.generation)
            return RebuildOutcome(caught_up=caught_up, offsets=offsets, reason=late)
        async with read_models.begin() as connection:
            state = await generations.lock_state(connection, name)
            live = _read(await read_offsets(connection, name, state.generation))
            ours = _read(await read_offsets(connection, name, shadow.generation))
            if _ahead(live, ours) or (must_be_level and live != ours):
                continue
            outcome = RebuildOutcome(caught_up=caught_up, offsets=ours)
            if must_be_level:
                outcome = await _compare(read_models, shadow, state.generation, outcome, mended)
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
    """Ends a rebuild that keeps its table: the next one may begin, and will drop it."""
    await connection.execute(
        update(projections)
        .where(
            projections.c.name == shadow.projection.name,
            projections.c.rebuild_owner == shadow.owner,
        )
        .values(rebuild_generation=None, rebuild_owner=None, rebuild_started_at=None)
    )


async def advance(
    read_models: ReadModels, shadow: Shadow, means: Means, ends: Mapping[QueueId, int]
) -> Advanced:
    """Applies each queue's messages from where the shadow stands up to an offset, exclusive.

    Every portion of the feed is a transaction with its offsets.

    Raises:
        ProjectionError: the shadow is no longer this owner's, or an event cannot be folded.
    """
    name = shadow.projection.name
    target = read_models.target(shadow.projection, shadow.generation)
    ours = await read_models.offsets(name, shadow.generation)
    applied = events = 0
    for queue, end in _ahead(ends, ours).items():
        async for messages in means.feed(queue, ours.get(queue, 0), end):
            batch = decode_around(messages, ours, means)
            async with read_models.begin() as connection:
                outcome = await apply_batch(connection, target, batch, missing=means.missing)
            if not isinstance(outcome, Applied):
                raise ProjectionError(
                    f"projection {name}: generation {shadow.generation} is no longer the shadow"
                    f" that {shadow.owner} builds; run the rebuild again"
                )
            ours.update(batch.end)
            applied += len(messages)
            events += sum(len(stream.events) for stream in batch.streams)
    return Advanced(messages=applied, events=events)


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


async def _catch_up(read_models: ReadModels, shadow: Shadow, means: Means) -> int:
    name = shadow.projection.name
    live = await read_models.offsets(name, await read_models.generation(name))
    return (await advance(read_models, shadow, means, live)).messages


async def _wait_for_live(read_models: ReadModels, shadow: Shadow, means: Means) -> str:
    """Returns why the live generation could not be waited for; empty when it is no longer behind."""
    ours = await read_models.offsets(shadow.projection.name, shadow.generation)
    try:
        await read_models.wait_for_offsets(shadow.projection, ours, timeout_ms=means.live_wait_ms)
    except ProjectionError as error:
        return (
            f"nothing was compared, because the live generation is behind the rebuilt one: {error};"
            " start the application and run the rebuild again, or put the rebuilt rows in place"
            f" with `headrace projection switch {shadow.projection.name}`"
        )
    return ""


async def _compare(
    read_models: ReadModels,
    shadow: Shadow,
    live: int,
    outcome: RebuildOutcome,
    mended: Collection[str] | None,
) -> RebuildOutcome:
    found = await compare(
        read_models, shadow.projection, live, shadow.generation, expected=mended or ()
    )
    told = tell_comparison(outcome, found, shadow.projection.shape)
    return told if mended is None else replace(told, mended=found.expected)


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


def _read(offsets: Mapping[QueueId, int]) -> dict[QueueId, int]:
    # A queue of which nothing was read may or may not have a stored offset of 0.
    return {queue: offset for queue, offset in offsets.items() if offset}

"""
A rebuild that begins with exported files, folded in columns, and goes on as one without Spark does.

    files ─▶ rows, versions, offsets: one transaction ─▶ the topic's tail, event by event ─▶ compare, switch

Used by the command line and notebooks. Nothing of it needs Java, or a Spark session.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, Unpack

from sqlalchemy import Connection, Table, insert

from headrace.app import App, load_app
from headrace.errors import HeadraceError, ProjectionError
from headrace.events.publisher import event_topic
from headrace.lineage.marks import note_epochs
from headrace.projections.definition.declared import NotInColumns
from headrace.projections.definition.projection import Projection
from headrace.projections.tables.contents import Target, begin_at, store_offsets
from headrace.projections.tables.read_models import ReadModels
from headrace.projections.tables.statements import copy_into
from headrace.rebuild.local.part import Laid
from headrace.rebuild.local.rebuild import Choices
from headrace.rebuild.local.rebuild import rebuild_together as rebuild_here
from headrace.rebuild.report import RebuildReport
from headrace.rebuild.switch import Shadow
from headrace.spark.archive import ExportedPart, counts_of, identity_of, known_epochs, parts_of
from headrace.spark.columns.files import check_columns, find_files, find_versions
from headrace.spark.columns.fold import fold_files, rows_of
from headrace.spark.columns.groups import Groups
from headrace.spark.columns.touches import ColumnPlan, plan_columns
from headrace.spark.held_offsets import check_follows, check_same_topic
from headrace.spark.topic import fetch_ranges
from headrace.stores.database.tables import projection_versions
from headrace.transports.base import QueueId
from headrace.transports.topic_reader import topic_identity
from headrace_mq.errors import MessageQueueError

__all__ = ["rebuild", "rebuild_together", "unsuited"]

# Rows per statement where there is no COPY.
_STATEMENT_ROWS_MAX: Final = 10_000


async def rebuild(
    app: str, projection_name: str, *, export: Path, **choices: Unpack[Choices]
) -> RebuildReport:
    """Rebuilds a projection of declared folds from exported files, and the topic's tail.

    Args:
        app: the application's import path, such as `samples.bank:app`.
        projection_name: which of its projections.
        export: the folder that `headrace events export` has written into.
        choices: as for a rebuild without Spark; the source is the topic, and the start zero.

    Raises:
        ProjectionError: the projection has to be folded event by event, files are missing or not what
            was exported, or as for a rebuild without Spark.
    """
    outcomes = await rebuild_together(app, [projection_name], export=export, **choices)
    outcome = outcomes[projection_name]
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


async def rebuild_together(
    app: str,
    projection_names: Sequence[str],
    *,
    export: Path,
    report: Callable[[str, str, int], None] | None = None,
    **choices: Unpack[Choices],
) -> dict[str, RebuildReport | Exception]:
    """Rebuilds several, each from its own columns; the tail is read once for all of them.

    Args:
        app: the application's import path, such as `samples.bank:app`.
        projection_names: which of its projections.
        export: the folder that `headrace events export` has written into.
        report: called with the projection's name at the start of each of its phases.
        choices: as for `rebuild`.

    Returns:
        By name, in the order asked for: what was done, or what `rebuild` would have raised.

    Raises:
        ProjectionError: nothing was exported into the folder, or another topic; nothing was begun.
        ProjectionNotFound: the application has no projection of a name; nothing was begun.
    """
    application = load_app(app)
    topic = event_topic(application.name)
    parts = parts_of(export, topic)
    await _check_topic(choices.get("broker"), topic, parts)
    plans = {
        name: _planned(application, application.projection(name))
        for name in dict.fromkeys(projection_names)
    }

    # Who wants the store's word gets it for all events, also for those that were exported.
    vouched = choices.get("event_store_url") not in {None, "memory://"}

    async def base(read_models: ReadModels, shadow: Shadow) -> Laid:
        plan = plans[shadow.projection.name]
        made = await asyncio.to_thread(_make, export, parts, plan, application, vouched)
        return await _lay(read_models, shadow, made)

    return await rebuild_here(app, projection_names, report=report, base=base, **choices)


async def _check_topic(broker: str | None, topic: str, parts: Sequence[ExportedPart]) -> None:
    """Raises ProjectionError where the broker has another topic than the one that was exported, or lost some of it."""
    if broker is None:
        return
    try:
        found = await topic_identity(broker, topic)
    except MessageQueueError:
        # Reading the topic's tail says what is wrong there.
        return
    check_same_topic(topic, identity_of(parts), found)
    if known := known_epochs(parts):
        for one in await asyncio.to_thread(fetch_ranges, broker, [topic], known=known):
            end = parts[-1].end.get(one.queue_id, 0)
            if one.kept(end) < end:
                check_follows(one, end)


def unsuited(
    application: App, projection_names: Sequence[str], export: Path, *, vouched: bool
) -> str:
    """Returns why exported files cannot be folded in columns; empty: they can.

    Only what the files say of themselves is looked at, not the events in them.

    Args:
        application: whose events.
        projection_names: which of its projections.
        export: the folder that `headrace events export` has written into.
        vouched: only events that an event store has vouched for are wanted.
    """
    registry = application.serializer.events
    try:
        parts = parts_of(export, event_topic(application.name))
        for name in projection_names:
            plan = plan_columns(application.projection(name), registry.types.values())
            for file in find_files(export, parts, plan, registry, vouched=vouched, checked=False):
                check_columns(file, plan)
    except (HeadraceError, OSError) as error:
        # What can be used instead does not matter: something else is chosen.
        return str(error).partition("; ")[0]
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """What a shadow begins with."""

    plan: ColumnPlan
    groups: Groups | None
    versions: dict[str, int]
    parts: Sequence[ExportedPart]

    @property
    def offsets(self) -> dict[QueueId, int]:
        last = self.parts[-1]
        return {(last.topic, queue): offset for queue, offset in last.end.items()}


def _planned(application: App, projection: Projection[Any]) -> ColumnPlan:
    try:
        return plan_columns(projection, application.serializer.events.types.values())
    except NotInColumns as error:
        raise ProjectionError(f"{error}; use --engine replay or --engine spark") from error


def _make(
    folder: Path,
    parts: Sequence[ExportedPart],
    plan: ColumnPlan,
    application: App,
    vouched: bool,
) -> _Made:
    files = find_files(folder, parts, plan, application.serializer.events, vouched=vouched)
    groups = fold_files(plan, files)
    return _Made(plan=plan, groups=groups, versions=find_versions(folder, parts), parts=parts)


async def _lay(read_models: ReadModels, shadow: Shadow, made: _Made) -> Laid:
    target = read_models.target(shadow.projection, shadow.generation)
    if not await read_models.transact(partial(_write, target=target, made=made)):
        raise ProjectionError(
            f"projection {shadow.projection.name}: generation {shadow.generation} is no longer the"
            f" shadow that {shadow.owner} builds; run the rebuild again"
        )
    topic = made.parts[0].topic
    begin = {queue: part.start[queue] for part in reversed(made.parts) for queue in part.start}
    return Laid(
        start={(topic, queue): offset for queue, offset in begin.items()},
        messages=sum(part.messages for part in made.parts),
        counts=counts_of(made.parts),
    )


def _write(connection: Connection, *, target: Target[Any], made: _Made) -> bool:
    if begin_at(connection, target, dict.fromkeys(made.offsets)) is not None:
        return False
    if made.groups is not None:
        _insert(connection, target.table, rows_of(made.plan, made.groups))
    name, generation = target.projection.name, target.generation
    versions = ((name, generation, *one) for one in made.versions.items())
    _insert(connection, projection_versions, versions)
    store_offsets(connection, target, made.offsets)
    # Those in which the files were written, which may be older than the rebuild's.
    note_epochs(connection, (name, generation), made.parts[-1].epochs)
    return True


def _insert(connection: Connection, table: Table, records: Iterator[tuple[Any, ...]]) -> None:
    """Inserts records, a value per column in order, into a table that has none of their keys."""
    if connection.dialect.name == "postgresql":
        copy_into(connection, table, records)
        return
    # One statement for many rows of plain values: SQLAlchemy's own way takes five times as long.
    dialect = connection.dialect
    statement = str(insert(table).compile(dialect=dialect))
    types = (column.type.dialect_impl(dialect) for column in table.columns)
    adapted = [
        (place, adapt)
        for place, each in enumerate(types)
        if (adapt := each.bind_processor(dialect)) is not None
    ]
    while some := list(islice(records, _STATEMENT_ROWS_MAX)):
        for place, adapt in adapted:
            some = [(*row[:place], adapt(row[place]), *row[place + 1 :]) for row in some]
        connection.exec_driver_sql(statement, some)

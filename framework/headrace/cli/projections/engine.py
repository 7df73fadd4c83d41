"""
Which engine rebuilds a projection where none was named: the one that is done first.

    exported files      ─▶ declared folds, and files that fit: in columns; else Spark
    the topic, or store ─▶ how many messages ─▶ below the crossing point: replay; from there on: Spark

Used by `projection`; asks the broker or the event store how much there is, or looks at the files.
"""

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

from sqlalchemy.exc import SQLAlchemyError

from headrace.app import App
from headrace.cli.application.databases import existing_read_models
from headrace.errors import HeadraceError
from headrace.events.publisher import event_topic
from headrace.rebuild.event_topic import EventTopic
from headrace.rebuild.stored_events import open_stored_events
from headrace.transports.base import QueueId

__all__ = ["Choice", "Size", "choose", "chosen", "crossing"]

# From the command line to the first event: Java, the session, workers, the first compilation.
_SPARK_START_MS: Final = 20_000
# Of a fold in Python, measured with 3,000,000 events on one machine: what an event costs a replay, which
# has one core, and what it costs all cores of Spark together. A row costs both the same.
_REPLAY_US: Final = 6.2
_SPARK_US: Final = 8.2


class Size(NamedTuple):
    """How much there is.

    Attributes:
        messages: to be read.
        rows: that are live now, of the largest projection.
    """

    messages: int
    rows: int


class Choice(NamedTuple):
    """An engine, and why this one; the sentence is empty where there was nothing to choose by."""

    engine: str
    why: str


def chosen(
    app: App,
    names: Sequence[str],
    choices: Mapping[str, Any],
    *,
    needs_spark: str,
    few: bool,
    export: Path | None = None,
) -> Choice:
    """Returns the engine for a rebuild.

    Args:
        app: whose projections.
        names: of the projections.
        choices: as `rebuild_together` takes them.
        needs_spark: what only Spark does, of what was asked for; empty for nothing.
        few: only some rows are rebuilt.
        export: a folder of exported events to read; None: all is read from the broker or the store.
    """
    if needs_spark:
        return Choice("spark", f"{needs_spark} needs it")
    if export is not None:
        why = _not_in_columns(app, names, choices, export, few=few)
        if why:
            return Choice("spark", f"--from-export needs it: {why}")
        return Choice("columns", "declared folds of exported files, which need no Spark")
    if few:
        return Choice("replay", "only some rows are rebuilt")
    if lacking := _lacking_of_spark():
        return Choice("replay", lacking)
    try:
        size = asyncio.run(_measure(app, names, choices))
    except (HeadraceError, SQLAlchemyError, OSError):
        # The engine finds out the same, and says what to do.
        return Choice("replay", "")
    return choose(size, os.cpu_count() or 1)


def choose(size: Size, cores: int) -> Choice:
    """Returns the engine that is done first."""
    what = f"{size.messages:,} messages to read, {size.rows:,} rows now"
    limit = crossing(cores)
    if limit is None:
        return Choice("replay", f"{what}; on one core Spark is slower for any number")
    if size.messages < limit:
        return Choice(
            "replay",
            f"{what}; below {limit:,} messages the start of Spark takes longer than {cores} cores save",
        )
    return Choice(
        "spark", f"{what}; from {limit:,} messages on {cores} cores save more than its start takes"
    )


def crossing(cores: int) -> int | None:
    """Returns the number of messages from which on Spark is done first; None: it never is."""
    saved_us = _REPLAY_US - _SPARK_US / cores
    # Rounded: the machine is not the one that was measured.
    return None if saved_us <= 0 else round(_SPARK_START_MS * 1_000 / saved_us / 100_000) * 100_000


def _not_in_columns(
    app: App, names: Sequence[str], choices: Mapping[str, Any], export: Path, *, few: bool
) -> str:
    """Returns why exported files are not folded in columns; empty: they are."""
    if few:
        return "only some rows are rebuilt"
    if choices["start"] != "zero":
        return "live rows are gone on with"
    from headrace.spark.columns.rebuild import unsuited

    vouched = choices["event_store_url"] not in {None, "memory://"}
    return unsuited(app, names, export, vouched=vouched)


def _lacking_of_spark() -> str:
    if find_spec("pyspark") is None:
        return "Spark is not installed (pip install 'headrace[spark]')"
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        return "Spark needs Java, which is not installed"
    return ""


async def _measure(app: App, names: Sequence[str], choices: Mapping[str, Any]) -> Size:
    if choices["source"] == "store":
        async with open_stored_events(choices["event_store_url"], messages_max=1) as stored:
            # Positions begin at 1.
            ranges = {
                key: (max(first, 1), end) for key, (first, end) in (await stored.ranges()).items()
            }
    else:
        topic = EventTopic(choices["broker"], event_topic(app.name), messages_max=1)
        ranges = await topic.ranges()
    messages, rows = 0, 0
    onto = choices.get("start") == "offsets"
    for name in names:
        stood, held = await _live(app, name, choices["read_models_url"])
        begins = stood if onto else {}
        ahead = sum(
            max(end - max(first, begins.get(queue, 0)), 0) for queue, (first, end) in ranges.items()
        )
        messages, rows = max(messages, ahead), max(rows, held)
    return Size(messages, rows)


async def _live(app: App, name: str, url: str) -> tuple[dict[QueueId, int], int]:
    """Returns where a projection stands, and how many rows it has; nothing where it never ran."""
    try:
        async with existing_read_models(url) as models:
            generation = await models.generation(name)
            rows = await models.reader(app.projection(name)).count()
            return await models.offsets(name, generation), rows
    except (HeadraceError, SQLAlchemyError):
        return {}, 0

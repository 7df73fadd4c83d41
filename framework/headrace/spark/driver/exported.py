"""
What a rebuild with Spark reads of a folder of exported events.

    declared, and all typed files fit ─▶ columns: one query over them, and over the topic's tail
    anything else                     ─▶ messages, as if they came from the broker, and why

Used by `rebuild`; uses the parts of an export, and what the engine in columns asks of their files. It must
not know a broker.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headrace.app import App
from headrace.errors import HeadraceError
from headrace.events.publisher import event_topic
from headrace.projections.definition.projection import Projection
from headrace.spark.archive import (
    ArchiveFile,
    ExportedPart,
    after_archive,
    check_messages,
    counts_of,
    message_files,
    parts_of,
)
from headrace.spark.columns.files import check_columns, find_files, version_files
from headrace.spark.columns.touches import plan_columns
from headrace.spark.executor.plan import FoldPlan
from headrace.spark.job import refuses_overflow
from headrace.spark.native import NativeFold, TypedFiles, plan_native

__all__ = ["Exported", "find_exported", "finding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What there is of a topic in files, and how it is read.

    Attributes:
        folder: where the parts are.
        parts: of the export, oldest first.
        messages: files with the messages.
        native: the projection as SQL over typed files; None where messages are read.
        why: messages are read, in a few words.
    """

    folder: Path
    parts: tuple[ExportedPart, ...]
    messages: tuple[ArchiveFile, ...]
    native: NativeFold | None = None
    why: str = ""

    @property
    def counts(self) -> Counter[str]:
        """What the gate counted when the parts were exported, as a job counts it."""
        return counts_of(self.parts)

    @property
    def read_as(self) -> str:
        """What is read of the files, for a report."""
        return "columns" if self.native is not None else f"messages: {self.why}"

    def unsuited(self, spark: SparkSession, messages: int, messages_min: int) -> str:
        """Returns why typed files are not for this session, or not worth a query; empty: they are."""
        if self.native is None:
            return ""
        if messages < messages_min:
            return f"fewer than {messages_min:,} are folded before Spark has compiled a query"
        if not refuses_overflow(spark):
            return "spark.sql.ansi.enabled is off, so sums would wrap around"
        return ""

    def as_messages(self, why: str) -> "Exported":
        """Returns the same, read as messages, each file of which is checked; itself, if it is so already.

        Raises:
            ProjectionError: a file is missing, or not what was exported.
        """
        if self.native is None and self.why:
            return self
        check_messages(self.folder, self.parts)
        return replace(self, native=None, why=why)

    def tail(self, plan: FoldPlan) -> FoldPlan:
        """Returns what of a plan lies behind the files."""
        behind = (after_archive(self.messages, piece) for piece in plan.slices)
        return replace(plan, slices=tuple(filter(None, behind)), archive=())


def finding(
    folder: str | Path | None, *, some_rows: bool, start: str
) -> Callable[..., Exported] | None:
    """Returns what looks into a folder of exported events, as a rebuild needs it; None without one."""
    if folder is None:
        return None
    why = "only some rows are folded" if some_rows else "it goes on from live rows"
    not_whole = why if some_rows or start == "offsets" else ""
    return partial(find_exported, Path(folder), not_whole=not_whole)


def find_exported(
    folder: Path,
    application: App,
    projection: Projection[Any],
    vouched: bool,
    *,
    not_whole: str = "",
) -> Exported:
    """Returns what is in a folder, and how a projection is folded from it.

    Args:
        folder: that `headrace events export` has written into.
        application: whose events.
        projection: which one.
        vouched: only events that an event store has vouched for are wanted.
        not_whole: why the projection is not folded from the first event on; empty: it is.

    Raises:
        ProjectionError: nothing was exported into the folder, or another topic; or parts are missing; or
            files that are read are not what was exported.
    """
    parts = tuple(parts_of(folder, event_topic(application.name)))
    found = Exported(folder=folder, parts=parts, messages=message_files(folder, parts))
    if not_whole:
        return found.as_messages(not_whole)
    try:
        files = _typed(folder, parts, application, projection, vouched=vouched)
    except HeadraceError as error:
        # What to do instead does not matter here: it is done.
        return found.as_messages(str(error).partition("; ")[0])
    native = plan_native(application.serializer, projection, files=files)
    assert native is not None, "columns and SQL take the same projections"
    return replace(found, native=native)


def _typed(
    folder: Path,
    parts: Sequence[ExportedPart],
    application: App,
    projection: Projection[Any],
    *,
    vouched: bool,
) -> TypedFiles:
    registry = application.serializer.events
    plan = plan_columns(projection, registry.types.values())
    places = {each: place for place, each in enumerate(plan.folds.types)}
    events: dict[int, list[str]] = {}
    for file in find_files(folder, parts, plan, registry, vouched=vouched):
        check_columns(file, plan)
        events.setdefault(places[file.event_type], []).append(str(file.path.absolute()))
    return TypedFiles(
        events={place: tuple(paths) for place, paths in events.items()},
        versions=tuple(str(path.absolute()) for path in version_files(folder, parts)),
        parts=parts[-1].number,
    )

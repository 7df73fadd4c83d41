"""
Which exported files a projection is made of, and whether they are what they were and fit its events.

Typed files hold what the application's classes made of events when they were exported. A class that
has changed since makes something else of them, so its files are refused, and not read as if they fitted.

Used by `fold`; uses the parts of an export.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.domain.message import DomainEvent
from headrace.domain.registry import Registry
from headrace.errors import ProjectionError
from headrace.projections.definition.shape import ColumnKind
from headrace.spark.archive import ExportedPart, check_file, part_folder
from headrace.spark.columns.terms import COLUMN_TYPES
from headrace.spark.columns.touches import ColumnPlan, EventTable
from headrace.spark.executor.decode import fields_of

__all__ = [
    "TypedFile",
    "check_columns",
    "find_files",
    "find_versions",
    "read_events",
    "version_files",
]

# Events that are read from a file at once: some ten megabytes of columns.
_EVENTS_MAX: Final = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedFile:
    """The events of one type that one part has of one queue."""

    path: Path
    event_type: type[DomainEvent]
    queue_id: int
    part: int


def find_files(
    folder: Path,
    parts: Sequence[ExportedPart],
    plan: ColumnPlan,
    registry: Registry[DomainEvent],
    *,
    vouched: bool = False,
    checked: bool = True,
) -> list[TypedFile]:
    """Returns the files with the events that a projection reads.

    Args:
        folder: of the export.
        parts: of it.
        plan: what is read.
        registry: which event types, and versions of them, the application has.
        vouched: only events that an event store has vouched for are wanted.
        checked: each file is read once and compared with its digest.

    Raises:
        ProjectionError: a file is missing or not what was exported, or holds what an earlier version of
            a class has made; or a part leaves events out, or was not vouched for.
    """
    found: list[TypedFile] = []
    for part in parts:
        place = part_folder(folder, part.number)
        _check_part(place, part, vouched=vouched)
        for name in sorted({each.message_name for each in plan.folds.types}):
            paths = list(_paths(place, part, f"events/{name}", checked=checked))
            if sum(pq.read_metadata(path).num_rows for path in paths) != part.events.get(name, 0):
                raise ProjectionError(
                    f"{place}/events/{name} does not hold the {part.events.get(name, 0)} events that"
                    " export.json tells of; restore it from a copy, or export into an empty folder"
                )
            found += _of_type(paths, name, part.number, plan, registry)
    return found


def version_files(folder: Path, parts: Sequence[ExportedPart]) -> Iterator[Path]:
    """Yields the files with the last versions of aggregates, part by part.

    Raises:
        ProjectionError: a file is missing or not what was exported.
    """
    for part in parts:
        yield from _paths(part_folder(folder, part.number), part, "versions")


def find_versions(folder: Path, parts: Sequence[ExportedPart]) -> dict[str, int]:
    """Returns the last version of each aggregate in the parts.

    Raises:
        ProjectionError: a file is missing or not what was exported.
    """
    versions: dict[str, int] = {}
    for path in version_files(folder, parts):
        ids, numbers = pq.read_table(path).columns
        # Of an aggregate that stands in two queues the higher one.
        for aggregate_id, version in zip(ids.to_pylist(), numbers.to_pylist(), strict=True):
            if versions.get(aggregate_id, 0) < version:
                versions[aggregate_id] = version
    return versions


def check_columns(file: TypedFile, plan: ColumnPlan) -> None:
    """Checks that a file has the columns that a projection reads; its rows are not looked at.

    Raises:
        ProjectionError: the file does not have them, or cannot be read.
    """
    try:
        _check_columns(file, pq.read_schema(file.path), plan.paths(file.event_type))
    except (OSError, pa.ArrowException) as error:
        raise ProjectionError(f"{file.path} cannot be read: {error}") from error


def read_events(file: TypedFile, plan: ColumnPlan) -> Iterator[EventTable]:
    """Yields the events of a file, some at a time, with the columns that a projection reads.

    Raises:
        ProjectionError: the file does not have them, or cannot be read.
    """
    paths = plan.paths(file.event_type)
    try:
        with pq.ParquetFile(file.path) as parquet:
            _check_columns(file, parquet.schema_arrow, paths)
            metadata = parquet.metadata
            groups: list[int] = []
            rows = 0
            for group in range(metadata.num_row_groups):
                groups.append(group)
                rows += metadata.row_group(group).num_rows
                if rows >= _EVENTS_MAX or group + 1 == metadata.num_row_groups:
                    table = parquet.read_row_groups(groups, columns=paths)
                    yield EventTable(table, queue_id=file.queue_id, part=file.part)
                    groups, rows = [], 0
    except (OSError, pa.ArrowException) as error:
        raise ProjectionError(f"{file.path} cannot be read: {error}") from error


def _check_part(place: Path, part: ExportedPart, *, vouched: bool) -> None:
    if vouched and not part.vouched:
        raise ProjectionError(
            f"{place} was exported without an event store that vouches for its events, or by an older"
            " version; export into an empty folder with --event-store, or use --unsealed"
        )
    if part.left_out:
        named = next(iter(part.left_out))
        raise ProjectionError(
            f"{place} leaves out events of {len(part.left_out)} aggregates, such as {named}, because a"
            " stream did not decode; use --engine replay or --engine spark, which look at it again"
        )
    if part.unknown:
        # Other readers stop at them, for each of their aggregates.
        named = next(iter(part.unknown))
        raise _of_other_classes(place, f"has events of which there was no class, such as {named}")


def _paths(place: Path, part: ExportedPart, kind: str, *, checked: bool = True) -> Iterable[Path]:
    """Yields the files of a kind, each checked where the part says what it was."""
    if not part.files:
        yield from sorted((place / kind).glob("*.parquet"))
    for name, digest in part.files.items():
        if name.startswith(f"{kind}/"):
            if checked:
                check_file(place / name, digest)
            yield place / name


def _of_type(
    paths: Sequence[Path], name: str, part: int, plan: ColumnPlan, registry: Registry[DomainEvent]
) -> Iterator[TypedFile]:
    for path in paths:
        queue, _, version = path.stem.removeprefix("queue-").partition("-v")
        event_type = registry.types.get((name, int(version)))
        if event_type is None:
            raise _of_other_classes(
                path,
                f"holds version {version} of {name}, which the application reads as a newer one",
            )
        if event_type in plan.folds.types:
            yield TypedFile(path=path, event_type=event_type, queue_id=int(queue), part=part)


def _check_columns(file: TypedFile, schema: pa.Schema, paths: Sequence[str]) -> None:
    wanted = {each.name: each.kind for each in fields_of(file.event_type)}
    for path in paths:
        name, _, member = path.partition(".")
        there = schema.field(name).type if name in schema.names else None
        if there is not None and member:
            there = there.field(member).type if there.get_field_index(member) >= 0 else None
        if there is None:
            raise _of_other_classes(file.path, f"has no column {path}")
        if name in wanted and not _fits(there, wanted[name]):
            raise _of_other_classes(file.path, f"has {path} as {there}")


def _fits(there: pa.DataType, kind: ColumnKind | None) -> bool:
    if kind is ColumnKind.TEXT:
        return bool(pa.types.is_string(there))
    return kind is not None and there == COLUMN_TYPES[kind]


def _of_other_classes(where: Path, what: str) -> ProjectionError:
    return ProjectionError(
        f"{where} {what}; export into an empty folder with the application as it is now, or use"
        " --engine replay or --engine spark"
    )

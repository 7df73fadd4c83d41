"""
Reads and writes the offsets, versions and rows of one generation of a projection.

All of it is done in bulk, within the caller's transaction. The transaction begins by locking the
projection's row and checking that the generation is still in use.

Used by `batch_transaction` and every other module that writes rows and offsets together.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel
from sqlalchemy import Connection, Table
from sqlalchemy.ext.asyncio import AsyncConnection

from headrace.errors import ProjectionError
from headrace.projections.definition.projection import Projection
from headrace.projections.tables.index.statements import naming_unique
from headrace.projections.tables.origins import is_followed, lock_state_now
from headrace.projections.tables.row_tables import row_of, values_of
from headrace.projections.tables.statements import (
    PARKED,
    Together,
    copy_into,
    delete_by,
    gone_keys,
    listed,
    listed_keys,
    offsets_of,
    rows_among,
    upsert,
    versions_among,
    write_together,
)
from headrace.stores.database.parked import ParkedStore
from headrace.stores.database.tables import projection_offsets, projection_versions
from headrace.transports.base import QueueId

__all__ = [
    "Moved",
    "OtherFields",
    "Switched",
    "Target",
    "begin_at",
    "begin_read",
    "delete_rows",
    "find_rows",
    "find_versions",
    "lock",
    "place_of",
    "read_offsets",
    "replace_offsets",
    "store_new_rows",
    "store_new_versions",
    "store_offsets",
    "store_rows",
    "store_versions",
    "write_offsets",
    "write_rows",
    "write_versions",
]

R = TypeVar("R", bound=BaseModel)


class OtherFields(ProjectionError):
    """The live generation's columns are not those of the projection's row model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target(Generic[R]):
    """Where batches go: one generation of one projection.

    Attributes:
        projection: whose folds run.
        generation: of this number.
        table: its rows.
    """

    projection: Projection[R]
    generation: int
    table: Table

    @property
    def parked(self) -> ParkedStore:
        """What it has parked."""
        return ParkedStore(self.projection.name, self.generation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Nothing was written: the stored offsets, given here, are not where the batch begins."""

    offsets: Mapping[QueueId, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Switched:
    """Nothing was written: this generation is live, and not the batch's, or the projection is paused.

    Or it is of another version of the projection's definition.
    """

    generation: int


def begin_at(
    connection: Connection, target: Target[Any], begin: Mapping[QueueId, int | None]
) -> Moved | Switched | None:
    """Locks a generation for the transaction; None: it is in use and stands at these offsets.

    Raises:
        OtherFields: the live generation has other columns than this projection.
    """
    stored = begin_read(connection, target, begin)
    return stored if isinstance(stored, Moved | Switched) else None


def begin_read(
    connection: Connection, target: Target[Any], begin: Mapping[QueueId, int | None]
) -> dict[QueueId, int] | Moved | Switched:
    """Like `begin_at`, with all stored offsets of the generation in place of None."""
    elsewhere = lock(connection, target, begin)
    if elsewhere is not None:
        return elsewhere
    stored = _read_offsets(connection, target.projection.name, target.generation)
    if any(stored.get(queue) != offset for queue, offset in begin.items()):
        return Moved(offsets=stored)
    return stored


def lock(
    connection: Connection, target: Target[Any], begin: Mapping[QueueId, int | None]
) -> Switched | None:
    """Locks a projection's state; returns where it moved, or None if the target is still in use."""
    name, generation = target.projection.name, target.generation
    state = lock_state_now(connection, name)
    if generation == state.generation:
        if state.version != target.projection.version:
            return Switched(generation=generation)
        if state.fingerprint != target.projection.fingerprint:
            raise OtherFields(
                f"projection {name}: generation {generation} was built with other fields than"
                f" {target.projection.row.__name__} has here; run the code it was built with"
            )
        # A retry of letters moves no offset, so it may continue.
        if begin and state.paused_at is not None:
            return Switched(generation=generation)
    elif generation != state.rebuild_generation:
        version = target.projection.version
        if version == state.version or not is_followed(connection, name, generation, version):
            return Switched(generation=state.generation)
        if begin and state.paused_at is not None:
            return Switched(generation=generation)
    return None


async def read_offsets(
    connection: AsyncConnection, name: str, generation: int
) -> dict[QueueId, int]:
    """Returns the next offset per queue of a generation."""
    return await connection.run_sync(_read_offsets, name, generation)


async def write_offsets(
    connection: AsyncConnection, target: Target[Any], offsets: Mapping[QueueId, int]
) -> None:
    """Stores the next offset per queue, in place of what was stored."""
    await connection.run_sync(store_offsets, target, offsets)


async def write_versions(
    connection: AsyncConnection, target: Target[Any], versions: Mapping[str, int]
) -> None:
    """Stores the last version per aggregate, in place of what was stored."""
    await connection.run_sync(store_versions, target, versions)


async def write_rows(
    connection: AsyncConnection, target: Target[R], changes: Mapping[str, R | None]
) -> None:
    """Writes the new row of each key, and deletes the row of each key that is None."""
    await connection.run_sync(store_rows, target, changes)


def _read_offsets(connection: Connection, name: str, generation: int) -> dict[QueueId, int]:
    found = connection.execute(offsets_of(), {"name": name, "generation": generation})
    return {(topic, queue_id): offset for topic, queue_id, offset in found}


def find_versions(
    connection: Connection, target: Target[Any], aggregate_ids: Collection[str]
) -> tuple[dict[str, int], set[str]]:
    """Returns the versions of aggregates, and which of them are parked."""
    if not aggregate_ids:
        return {}, set()
    dialect = connection.dialect
    ids = listed(dialect, aggregate_ids)
    found = connection.execute(versions_among(dialect), {**place_of(target), **ids}).all()
    parked = {aggregate_id for aggregate_id, version in found if version == PARKED}
    return {aggregate_id: version for aggregate_id, version in found if version != PARKED}, parked


def find_rows(
    connection: Connection, target: Target[R], keys: Collection[str]
) -> dict[str, R | None]:
    """Returns the rows of keys; one that has none is left out."""
    if not keys:
        return {}
    projection, table, dialect = target.projection, target.table, connection.dialect
    names, form = table.columns.keys(), projection.key_form
    wanted = listed_keys(dialect, [form.values(key) for key in keys])
    found = connection.execute(rows_among(table, dialect), wanted)
    loaded = (row_of(projection, dict(zip(names, values, strict=True))) for values in found)
    return {form.text_of(row): row for row in loaded}


def store_offsets(
    connection: Connection, target: Target[Any], offsets: Mapping[QueueId, int]
) -> None:
    """Like `write_offsets`, for a connection that blocks."""
    place = place_of(target)
    values = [
        {**place, "topic": topic, "queue_id": queue_id, "next_offset": offset}
        for (topic, queue_id), offset in offsets.items()
    ]
    upsert(connection, projection_offsets, values)


def store_versions(
    connection: Connection, target: Target[Any], versions: Mapping[str, int]
) -> None:
    """Like `write_versions`, for a connection that blocks."""
    place = place_of(target)
    values = [
        {**place, "aggregate_id": aggregate_id, "version": version}
        for aggregate_id, version in versions.items()
    ]
    upsert(connection, projection_versions, values)


def store_rows(connection: Connection, target: Target[R], changes: Mapping[str, R | None]) -> None:
    """Like `write_rows`, for a connection that blocks."""
    values = [values_of(target.projection, row) for row in changes.values() if row is not None]
    with naming_unique(target.projection, target.table.name):
        upsert(connection, target.table, values)
    delete_rows(connection, target, changes)


def store_new_versions(
    connection: Connection, target: Target[Any], versions: Mapping[str, int]
) -> None:
    """Copies in the versions of aggregates that have none; several times as fast as `store_versions`."""
    name, generation = target.projection.name, target.generation
    records = ((name, generation, *each) for each in versions.items())
    copy_into(connection, projection_versions, records)


def store_new_rows(connection: Connection, target: Target[R], rows: Mapping[str, R | None]) -> None:
    """Copies in rows whose keys have none; several times as fast as `store_rows`."""
    records = (
        tuple(values_of(target.projection, row).values())
        for row in rows.values()
        if row is not None
    )
    copy_into(connection, target.table, records)


def delete_rows(connection: Connection, target: Target[R], changes: Mapping[str, R | None]) -> None:
    """Deletes the rows that a batch has ended."""
    values = target.projection.key_form.values
    gone = [values(key) for key, row in changes.items() if row is None]
    if gone:
        connection.execute(delete_by(target.table), gone_keys(gone))


def replace_offsets(
    connection: Connection,
    target: Target[R],
    changes: Mapping[str, R | None],
    versions: Mapping[str, int],
    left: Mapping[QueueId, int],
    end: Mapping[QueueId, int],
) -> bool:
    """Writes a batch by one statement where its generation is in use and stands at `left`.

    PostgreSQL only. Where not, it returns False, and the transaction has to be rolled back.
    """
    values = target.projection.key_form.values
    together = Together(
        place={**place_of(target), "fingerprint": target.projection.fingerprint},
        rows=[values_of(target.projection, row) for row in changes.values() if row is not None],
        gone=[values(key) for key, row in changes.items() if row is None],
        versions=versions,
        moves=[(*queue, offset, end.get(queue, offset)) for queue, offset in left.items()],
    )
    with naming_unique(target.projection, target.table.name):
        return write_together(connection, target.table, together)


def place_of(target: Target[Any]) -> dict[str, Any]:
    """Returns the columns that name a target."""
    return {"name": target.projection.name, "generation": target.generation}

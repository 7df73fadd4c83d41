"""
The statements that read streams and snapshots of aggregates, the same for every database.

Used by the adapters, the audit and the reader of the whole store, which run them.
"""

from typing import Any

from sqlalchemy import Select, func, select

from headrace.stores.database.rows import COLUMNS
from headrace.stores.database.tables import event_streams, snapshots

__all__ = [
    "all_streams",
    "bodies_between",
    "highest_position",
    "snapshot_of_aggregate",
    "stream_of_command",
    "streams_of_aggregate",
]

_streams = event_streams.c


def stream_of_command(aggregate_id: str, command_id: str) -> Select[Any]:
    """Selects the row that a command stored on an aggregate."""
    return select(*COLUMNS).where(
        _streams.aggregate_id == aggregate_id, _streams.command_id == command_id
    )


def streams_of_aggregate(
    aggregate_id: str, after_version: int, to_version: int | None
) -> Select[Any]:
    """Selects an aggregate's rows in version order, without rejections."""
    query = (
        select(*COLUMNS)
        .where(_streams.aggregate_id == aggregate_id, _streams.version > after_version)
        .order_by(_streams.version)
    )
    return query if to_version is None else query.where(_streams.version <= to_version)


def snapshot_of_aggregate(aggregate_id: str) -> Select[Any]:
    """Selects an aggregate's snapshot, all columns."""
    return select(snapshots).where(snapshots.c.aggregate_id == aggregate_id)


def all_streams(after_position: int, limit: int, *, aggregate_id: str | None = None) -> Select[Any]:
    """Selects the rows of everything after a position, or of one aggregate, in position order."""
    query = (
        select(*COLUMNS)
        .where(_streams.position > after_position)
        .order_by(_streams.position)
        .limit(limit)
    )
    return query if aggregate_id is None else query.where(_streams.aggregate_id == aggregate_id)


def bodies_between(after_position: int, to_position: int, limit: int) -> Select[Any]:
    """Selects rows after a position up to another, in position order."""
    return (
        select(*COLUMNS)
        .where(_streams.position > after_position, _streams.position <= to_position)
        .order_by(_streams.position)
        .limit(limit)
    )


def highest_position() -> Select[int]:
    """Selects the highest position, 0 where there is none."""
    return select(func.coalesce(func.max(_streams.position), 0))

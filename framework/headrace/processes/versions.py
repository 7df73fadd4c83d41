"""
The versions of each aggregate that a process has taken: each once and in order.

They stay when instances are pruned, so that an event that comes again is known as a duplicate. Used by
the transaction of a batch; reads and writes the table. It knows no handler.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, select

from headrace.domain.stream import EventStream
from headrace.projections.tables.statements import upsert
from headrace.stores.database.tables import process_versions
from headrace.subscriptions.gate import Arrival, Gap, VersionGate

__all__ = ["Admitted", "VersionsMissing", "admit", "read_versions", "store_versions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The new streams of a batch.

    Attributes:
        streams: streams that were not taken before, and all rejections, in order.
        versions: the last version of each aggregate after them.
    """

    streams: tuple[EventStream, ...]
    versions: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionsMissing:
    """Nothing was written: versions are missing before the stream at this place in the batch."""

    place: int
    aggregate_id: str
    gap: Gap


def admit(
    connection: Connection, process: str, streams: Sequence[EventStream]
) -> Admitted | VersionsMissing:
    """Leaves out the streams of a batch that were taken before; stops at a gap."""
    known = {each.aggregate_id for each in streams if each.version is not None}
    gate = VersionGate(read_versions(connection, process, known))
    next_ones = []
    for place, stream in enumerate(streams):
        if stream.version is not None:
            arrival = gate.offer(stream.aggregate_id, stream.version)
            if isinstance(arrival, Gap):
                return VersionsMissing(place=place, aggregate_id=stream.aggregate_id, gap=arrival)
            if arrival is Arrival.DUPLICATE:
                continue
        next_ones.append(stream)
    return Admitted(streams=tuple(next_ones), versions=gate.moved)


def store_versions(connection: Connection, process: str, versions: Mapping[str, int]) -> None:
    """Writes the last versions of aggregates."""
    rows = [
        {"process": process, "aggregate_id": aggregate_id, "version": version}
        for aggregate_id, version in versions.items()
    ]
    upsert(connection, process_versions, rows)


def read_versions(connection: Connection, process: str, aggregate_ids: set[str]) -> dict[str, int]:
    """Returns the last versions of aggregates that the process has taken; without those at 0."""
    if not aggregate_ids:
        return {}
    columns = process_versions.c
    rows = connection.execute(
        select(columns.aggregate_id, columns.version).where(
            columns.process == process, columns.aggregate_id.in_(aggregate_ids)
        )
    )
    return {row.aggregate_id: row.version for row in rows}

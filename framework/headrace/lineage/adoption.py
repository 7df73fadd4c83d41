"""
Adapts event handlers and processes to an older event store, after you have restored a backup.

They may have handled versions that this store does not have. Their work stays done: a mail is not unsent.
But the store will give those versions to new events, and handlers must not skip these as duplicates. So
this lowers the stored versions to the store's. Projections need no change: you rebuild them.

Used by `headrace events republish --replace`. No reader of events may run meanwhile.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, delete, select, update

from headrace._runtime.log import get_logger
from headrace.errors import HeadraceError
from headrace.lineage.marks import forget
from headrace.projections.tables.read_models import ReadModels
from headrace.stores.base import EventStore
from headrace.stores.database.tables import process_versions, projection_versions

__all__ = ["adopt_store"]

log = get_logger(__name__)

# Aggregates that are compared together: little memory.
_PAGE: Final = 1_000
_PROCESS: Final = "process:"


async def adopt_store(
    models: ReadModels, store: EventStore, *, names: Collection[str], topic: str
) -> int:
    """Lowers the versions that handlers and processes have noted to the store's.

    Args:
        models: the database of the versions.
        store: the event store that is valid from now on.
        names: the application's event handlers and processes, named as by `reader_names`.
        topic: the name of the event topic's own state; see `topic_reader`.

    Returns:
        How many versions were lowered.
    """
    lowered = 0
    for name in names:
        after = ""
        while page := await models.transact(partial(_read_page, name=name, after=after)):
            heads = {}
            for aggregate_id, version in page:
                head = await _head(store, aggregate_id, version)
                if head < version:
                    heads[aggregate_id] = head
            await models.transact(partial(_lower, name=name, heads=heads))
            lowered += len(heads)
            after = page[-1][0]
    await models.transact(partial(forget, names=[*names, topic]))
    return lowered


async def _head(store: EventStore, aggregate_id: str, version: int) -> int:
    """Returns this version, or the aggregate's last one if the store does not have it."""
    try:
        if await store.read_stream(aggregate_id, after_version=version - 1, to_version=version):
            return version
        found = await store.read_stream(aggregate_id)
    except HeadraceError as error:
        log.warning("an aggregate cannot be read", aggregate_id=aggregate_id, error=str(error))
        return version
    return found[-1].version or 0 if found else 0


def _table_of(name: str) -> tuple[Any, Sequence[ColumnElement[bool]]]:
    if name.startswith(_PROCESS):
        return process_versions, [process_versions.c.process == name.removeprefix(_PROCESS)]
    columns = projection_versions.c
    return projection_versions, [columns.name == name, columns.generation == 0]


def _read_page(connection: Connection, name: str, after: str) -> list[tuple[str, int]]:
    table, mine = _table_of(name)
    columns = table.c
    rows = connection.execute(
        select(columns.aggregate_id, columns.version)
        .where(*mine, columns.aggregate_id > after)
        .order_by(columns.aggregate_id)
        .limit(_PAGE)
    )
    return [(row.aggregate_id, row.version) for row in rows]


def _lower(connection: Connection, name: str, heads: Mapping[str, int]) -> None:
    table, mine = _table_of(name)
    for aggregate_id, head in heads.items():
        own = (*mine, table.c.aggregate_id == aggregate_id)
        statement = (
            update(table).where(*own).values(version=head) if head else delete(table).where(*own)
        )
        connection.execute(statement)

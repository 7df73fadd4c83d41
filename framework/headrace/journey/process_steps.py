"""
Which instances of a process have seen what a command did, found by the keys of their tables.

    an event       the keys that this version of the process gives it
    a rejection    the instance that sent the command; if that ended since, those that ended soon after

The journal of a process has no index of its commands, which each of its writes would pay for, and a scan takes a second per
million rows. Used by `readers`; it changes nothing.
"""

from collections.abc import Collection
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import Connection, Select, select

from headrace.domain.stream import EventStream
from headrace.processes.kept_commands import find_senders
from headrace.processes.process import Process
from headrace.stores.database.tables import process_instances, process_journal

__all__ = ["ended_query", "journal_query", "seen_by"]

# Instances that ended after a rejection, of which the first so many are looked at: some milliseconds.
ENDED_LOOKED_MAX: Final = 1_000
# How far the clocks of two processes may be apart.
_CLOCKS: Final = timedelta(minutes=1)


def seen_by(
    connection: Connection, process: Process[Any], stream: EventStream
) -> list[tuple[str, str]]:
    """Returns the keys of the instances that have seen a stream, each with what became of it there.

    Args:
        connection: to the read models.
        process: whose instances.
        stream: what a command did.

    Raises:
        Exception: the process's function for keys raised it; DefinitionError: a key is no usable id.
    """
    if stream.rejection is None:
        # A version that gave it other keys may have led it to instances that are not found.
        keys: Collection[str] = process.keys_of(stream)
    else:
        keys = find_senders(connection, process.name, [stream.command_id]).values()
        if not keys:
            # The rows of commands that were sent go with the end of their instance.
            keys = connection.scalars(ended_query(process.name, stream)).all()
    if not keys:
        return []
    rows = connection.execute(journal_query(process.name, stream, keys)).all()
    return [(key, outcome) for key, outcome in rows]


def journal_query(process: str, stream: EventStream, keys: Collection[str]) -> Select[Any]:
    """Selects key and outcome of the instances among some that have seen a stream."""
    columns = process_journal.c
    return select(columns.instance, columns.outcome).where(
        columns.process == process,
        columns.instance.in_(keys),
        columns.aggregate_id == stream.aggregate_id,
        columns.command_id == stream.command_id,
    )


def ended_query(process: str, stream: EventStream) -> Select[Any]:
    """Selects the keys of the first instances that ended after a stream."""
    columns = process_instances.c
    return (
        select(columns.instance)
        .where(
            columns.process == process,
            columns.ended,
            columns.changed_at >= stream.recorded_at - _CLOCKS,
        )
        .order_by(columns.changed_at)
        .limit(ENDED_LOOKED_MAX)
    )

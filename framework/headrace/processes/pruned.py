"""
Pruning: deletes instances of processes some time after they have ended, with journal and commands.

The versions of aggregates stay, so an event that comes again is known as a duplicate. An instance with an
unsent command stays. Used by the runner of a process and by the command line.
"""

from datetime import datetime
from typing import Final

from sqlalchemy import ColumnElement, Connection, delete, exists, func, select

from headrace.processes.instances import lock
from headrace.stores.database.tables import process_commands, process_instances, process_journal

__all__ = ["PRUNED_MAX", "count_ended", "prune"]

# Instances per transaction: events wait a few milliseconds for it.
PRUNED_MAX: Final = 200


def count_ended(connection: Connection, *, process: str, before: datetime) -> int:
    """Returns how many instances repeated calls of `prune` would delete."""
    query = select(func.count()).select_from(process_instances).where(*_prunable(process, before))
    return connection.execute(query).scalar_one()


def prune(connection: Connection, *, process: str, before: datetime) -> int:
    """Deletes instances that ended before a moment, the oldest first; returns how many.

    It deletes at most `PRUNED_MAX`; if it returns fewer, there are no more.
    """
    columns = process_instances.c
    ended = connection.scalars(
        select(columns.instance)
        .where(*_prunable(process, before))
        .order_by(columns.changed_at)
        .limit(PRUNED_MAX)
    ).all()
    if not ended:
        return 0
    lock(connection, process)
    for table in (process_journal, process_commands, process_instances):
        connection.execute(
            delete(table).where(table.c.process == process, table.c.instance.in_(ended))
        )
    return len(ended)


def _prunable(process: str, before: datetime) -> tuple[ColumnElement[bool], ...]:
    columns, commands = process_instances.c, process_commands.c
    unsent = exists().where(
        commands.process == columns.process, commands.instance == columns.instance, ~commands.sent
    )
    return (columns.process == process, columns.ended, columns.changed_at < before, ~unsent)

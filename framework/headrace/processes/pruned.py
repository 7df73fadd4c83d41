"""
Pruning: ended instances of processes go after a while, with journal and commands.

The versions of the aggregates stay, so an event that comes again is still known. Commands that
nobody has sent keep their instance. Sits between: the loop of a process and the command line, and
the tables.
"""

from datetime import datetime
from typing import Final

from sqlalchemy import ColumnElement, Connection, delete, exists, func, select

from headrace.processes.instances import lock
from headrace.stores.database.tables import process_commands, process_instances, process_journal

__all__ = ["PRUNED_MAX", "count_ended", "prune"]

# Instances per transaction: events wait for it, a few milliseconds.
PRUNED_MAX: Final = 200


def count_ended(connection: Connection, *, process: str, before: datetime) -> int:
    """Returns how many instances `prune` would delete, one call after the other."""
    query = select(func.count()).select_from(process_instances).where(*_prunable(process, before))
    return connection.execute(query).scalar_one()


def prune(connection: Connection, *, process: str, before: datetime) -> int:
    """Deletes instances that ended before a moment, the oldest first; returns how many.

    At most `PRUNED_MAX`: fewer mean that there are no more.
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

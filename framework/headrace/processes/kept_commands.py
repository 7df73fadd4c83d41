"""
The commands of process managers in the database: stored with the events that caused them, then sent.

Used by the runners and the outbox; the caller begins the transaction.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, delete, or_, select, update

from headrace._runtime.log import get_logger
from headrace._runtime.tracebacks import storable
from headrace.errors import HeadraceError, SubjectKeysAway
from headrace.serialization import CommandEnvelope, Serializer
from headrace.stores.database.parked import ERROR_CHARACTERS_MAX
from headrace.stores.database.tables import process_commands, process_instances

__all__ = [
    "command_row",
    "find_senders",
    "find_unsent",
    "mark_sent",
    "refuse",
    "try_again",
]

log = get_logger(__name__)

# Unsent commands in one query: a few megabytes.
_UNSENT_MAX: Final = 1_000


def command_row(
    process: str,
    instance: str,
    number: int,
    envelope: CommandEnvelope,
    serializer: Serializer,
    now: datetime,
) -> dict[str, Any]:
    """Returns the row of an unsent command."""
    return {
        "process": process,
        "command_id": envelope.command_id,
        "instance": instance,
        "number": number,
        "name": envelope.command.message_name,
        "aggregate_id": envelope.aggregate_id,
        "body": serializer.encode_command(envelope).decode(),
        # After a delay, about then; the delay itself is in the body.
        "due": now + envelope.due if isinstance(envelope.due, timedelta) else envelope.due,
        "made_at": now,
        "sent": False,
        "refused": None,
    }


def find_unsent(
    connection: Connection,
    *,
    process: str,
    made_before: datetime,
    now: datetime,
    due_before: datetime,
    serializer: Serializer,
) -> list[CommandEnvelope]:
    """Returns unsent commands that were made before a moment, the oldest first.

    Leaves out commands that are due after `due_before`. A command that cannot be decoded, for example
    because its class is gone, is noted as refused and left out, too.

    Raises:
        SubjectKeysAway: the keys of personal fields cannot be read just now; nothing is noted.
    """
    columns = process_commands.c
    rows = connection.execute(
        select(columns.command_id, columns.body, columns.due)
        .where(
            columns.process == process,
            ~columns.sent,
            columns.refused.is_(None),
            # A command from the future is old, too: the clock was set back since.
            or_(columns.made_at <= made_before, columns.made_at > now),
            or_(columns.due.is_(None), columns.due <= due_before),
        )
        .order_by(columns.made_at, columns.instance, columns.number)
        .limit(_UNSENT_MAX)
    )
    found = []
    for command_id, body, due in rows.all():
        try:
            envelope = serializer.decode_command(body.encode())
            found.append(envelope if envelope.due else replace(envelope, due=due))
        except SubjectKeysAway:
            raise
        except HeadraceError as error:
            log.exception("a command cannot be read", process=process, command_id=command_id)
            refuse(
                connection,
                process=process,
                command_id=command_id,
                sentence=f"cannot be read: {error}",
            )
    return found


def refuse(connection: Connection, *, process: str, command_id: str, sentence: str) -> None:
    """Notes why a command can never be sent; `find_unsent` then leaves it out."""
    columns = process_commands.c
    connection.execute(
        update(process_commands)
        .where(columns.process == process, columns.command_id == command_id)
        .values(refused=storable(sentence)[:ERROR_CHARACTERS_MAX])
    )


def find_senders(
    connection: Connection, process: str, command_ids: Sequence[str]
) -> dict[tuple[str, str], str]:
    """Returns the keys of the instances that sent these commands, by aggregate and command."""
    if not command_ids:
        return {}
    columns = process_commands.c
    rows = connection.execute(
        select(columns.aggregate_id, columns.command_id, columns.instance).where(
            columns.process == process, columns.command_id.in_(command_ids)
        )
    )
    return {(aggregate, command): key for aggregate, command, key in rows}


def try_again(connection: Connection, *, process: str) -> None:
    """Makes `find_unsent` find refused commands again: code and settings may have changed."""
    columns = process_commands.c
    connection.execute(
        update(process_commands)
        .where(columns.process == process, ~columns.sent, columns.refused.is_not(None))
        .values(refused=None)
    )


def mark_sent(connection: Connection, *, process: str, command_ids: Sequence[str]) -> None:
    """Notes commands as sent; deletes those of instances that have ended."""
    columns, instances = process_commands.c, process_instances.c
    mine = (columns.process == process, columns.command_id.in_(command_ids))
    connection.execute(update(process_commands).where(*mine).values(sent=True))
    ended = connection.scalars(
        select(columns.instance)
        .distinct()
        .join(
            process_instances,
            (instances.process == columns.process) & (instances.instance == columns.instance),
        )
        .where(*mine, instances.ended)
    ).all()
    if ended:
        connection.execute(
            delete(process_commands).where(
                columns.process == process, columns.instance.in_(ended), columns.sent
            )
        )

"""
Which aggregates a process manager has parked, because it could not handle an event of theirs.

    parked               how far it is with a parked aggregate, and why it does not get further
    process_journal      rejections that wait: they have no version by which they could be found

Of what is not parked nothing is kept here. Sits between: the loops and the letters of process
managers, which begin and commit, and the tables.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, delete, func, or_, select

from headrace.handlers.progress import Standings
from headrace.processes.instances import WAITS
from headrace.projections.letters import Letter
from headrace.stores.database.tables import parked_rows, process_journal
from headrace.transports.base import Incoming

__all__ = ["ProcessStandings", "is_rejection", "version_before"]

_KIND: Final = "process"


def is_rejection(message: Incoming) -> bool:
    """Whether a message of the event topic says that a command was refused."""
    return message.headers.get("kind") == "rejection"


def version_before(message: Incoming) -> int:
    """Returns the version behind which an event's stream stands, decoded or not.

    0 where the message does not tell: all that its aggregate did is then reacted to once more, to
    commands with the same ids, which have no second effect.
    """
    version = message.headers.get("version", "")
    return max(0, int(version) - 1) if version.isascii() and version.isdigit() else 0


class ProcessStandings(Standings):
    """What is kept of one process manager; every method works within the caller's transaction.

    Args:
        manager: its name.
    """

    def __init__(self, manager: str) -> None:
        super().__init__(manager, _KIND)

    def parked(self, connection: Connection, aggregate_ids: Collection[str]) -> set[str]:
        """Returns which of these aggregates are parked."""
        if not aggregate_ids:
            return set()
        columns = parked_rows.c
        query = select(columns.aggregate_id).where(
            *self._letters, columns.aggregate_id.in_(aggregate_ids)
        )
        return set(connection.scalars(query))

    def advance(self, connection: Connection, versions: Mapping[str, int]) -> None:
        """Notes how far parked aggregates are; one that is not parked has no such note."""
        for aggregate_id, version in versions.items():
            connection.execute(self.changing(aggregate_id).values(version=version))

    def park_at(
        self,
        connection: Connection,
        *,
        message: Incoming,
        version: int | None,
        error: Exception,
        now: datetime,
        letters_max: int,
    ) -> bool:
        """Parks the aggregate of a message; False: as many as may be are parked.

        Args:
            connection: in a transaction that can write.
            message: what could not be handled.
            version: the last version of its aggregate that was; None: not known, as of a rejection.
            error: why.
            now: since when.
            letters_max: aggregates that may be parked at once.
        """
        if self.keep(connection, message):
            return True
        if self.is_full(connection, letters_max):
            return False
        self.insert(connection, message=message, error=error, now=now, version=version)
        if is_rejection(message):
            self._note(connection, message)
        return True

    def keep(self, connection: Connection, message: Incoming) -> bool:
        """Lets a message wait behind its aggregate's letter; False: there is none (any more)."""
        if not self.hold(connection, message.key):
            return False
        if is_rejection(message):
            self._note(connection, message)
        else:
            # One that comes late must not be left out; one that comes again may be, and does no harm.
            version, before = parked_rows.c.version, version_before(message)
            earlier = self.changing(message.key).where(or_(version.is_(None), version > before))
            connection.execute(earlier.values(version=before))
        return True

    def waiting(
        self, connection: Connection, aggregate_id: str
    ) -> tuple[int | None, Sequence[tuple[int, str]]]:
        """Returns what waits for a parked aggregate.

        The version behind which its events do, None: none do; and the rejections, each with its
        number in the journal and the id of its command, in order.
        """
        columns = parked_rows.c
        version = connection.scalar(
            select(columns.version).where(*self._letters, columns.aggregate_id == aggregate_id)
        )
        journal = process_journal.c
        rows = connection.execute(
            select(journal.number, journal.command_id)
            .where(journal.process == self.name, journal.instance == aggregate_id)
            .order_by(journal.number)
        )
        return version, [(number, command_id) for number, command_id in rows]

    def forget(self, connection: Connection, aggregate_id: str, number: int) -> None:
        """Takes a rejection out that waits no longer."""
        journal = process_journal.c
        connection.execute(
            delete(process_journal).where(
                journal.process == self.name,
                journal.instance == aggregate_id,
                journal.number == number,
            )
        )

    def letter(self, connection: Connection, aggregate_id: str) -> Letter | None:
        """Returns the letter of an aggregate, or None."""
        found = self.letters(connection, aggregate_id)
        return found[0] if found else None

    def _note(self, connection: Connection, message: Incoming) -> None:
        journal, command_id = process_journal.c, message.headers.get("command", "")
        mine = (journal.process == self.name, journal.instance == message.key)
        # One that was delivered twice waits once.
        known = select(journal.number).where(*mine, journal.command_id == command_id)
        if connection.execute(known).first() is not None:
            return
        last = connection.scalar(select(func.max(journal.number)).where(*mine))
        connection.execute(
            process_journal.insert().values(
                process=self.name,
                instance=message.key,
                number=(last or 0) + 1,
                aggregate_id=message.key,
                command_id=command_id,
                outcome=WAITS,
            )
        )

"""
Which aggregates a process manager has parked, because it could not handle an event of theirs.

    parked               how far it is with a parked aggregate, and why it does not get further
    process_journal      rejections that wait: they have no version by which they could be found

Of what is not parked nothing is kept here. Sits between: the loops and the letters of process
managers, which begin and commit, and the tables.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection, delete, func, or_, select

from headrace.processes.instances import WAITS
from headrace.stores.database.parked import ParkedStore
from headrace.stores.database.tables import parked_rows, process_journal
from headrace.transports.base import Incoming

__all__ = ["ProcessProgress", "is_rejection", "version_before"]


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


class ProcessProgress:
    """What is kept of one process manager; every method works within the caller's transaction.

    Args:
        manager: its name.

    Attributes:
        parked: its aggregates that wait.
    """

    def __init__(self, manager: str) -> None:
        self.parked = ParkedStore(f"process:{manager}")

    def advance(self, connection: Connection, versions: Mapping[str, int]) -> None:
        """Notes how far parked aggregates are; one that is not parked has no such note."""
        for aggregate_id, version in versions.items():
            connection.execute(self.parked.changing(aggregate_id).values(version=version))

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
        if self.parked.count(connection) >= letters_max:
            return False
        place = (*message.queue, message.offset)
        self.parked.add(connection, message.key, error, now=now, place=place, version=version)
        if is_rejection(message):
            self._note(connection, message)
        return True

    def keep(self, connection: Connection, message: Incoming) -> bool:
        """Lets a message wait behind its aggregate's letter; False: there is none (any more)."""
        if not self.parked.hold(connection, message.key):
            return False
        if is_rejection(message):
            self._note(connection, message)
        else:
            # One that comes late must not be left out; one that comes again may be, and does no harm.
            version, before = parked_rows.c.version, version_before(message)
            earlier = self.parked.changing(message.key).where(
                or_(version.is_(None), version > before)
            )
            connection.execute(earlier.values(version=before))
        return True

    def waiting(
        self, connection: Connection, aggregate_id: str
    ) -> tuple[int | None, Sequence[tuple[int, str]]]:
        """Returns what waits for a parked aggregate.

        The version behind which its events do, None: none do; and the rejections, each with its
        number in the journal and the id of its command, in order.
        """
        version = self.parked.version(connection, aggregate_id)
        journal = process_journal.c
        rows = connection.execute(
            select(journal.number, journal.command_id)
            .where(journal.process == self.parked.name, journal.instance == aggregate_id)
            .order_by(journal.number)
        )
        return version, [(number, command_id) for number, command_id in rows]

    def forget(self, connection: Connection, aggregate_id: str, number: int) -> None:
        """Takes a rejection out that waits no longer."""
        journal = process_journal.c
        connection.execute(
            delete(process_journal).where(
                journal.process == self.parked.name,
                journal.instance == aggregate_id,
                journal.number == number,
            )
        )

    def _note(self, connection: Connection, message: Incoming) -> None:
        journal, command_id = process_journal.c, message.headers.get("command", "")
        mine = (journal.process == self.parked.name, journal.instance == message.key)
        # One that was delivered twice waits once.
        known = select(journal.number).where(*mine, journal.command_id == command_id)
        if connection.execute(known).first() is not None:
            return
        last = connection.scalar(select(func.max(journal.number)).where(*mine))
        connection.execute(
            process_journal.insert().values(
                process=self.parked.name,
                instance=message.key,
                number=(last or 0) + 1,
                aggregate_id=message.key,
                command_id=command_id,
                outcome=WAITS,
            )
        )

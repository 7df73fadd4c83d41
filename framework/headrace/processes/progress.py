"""
The aggregates that a process manager has parked, because it could not handle one of their events.

    parked            the last handled version of a parked aggregate, and the error
    process_journal   rejections that wait: they have no version, so the event store cannot list them

Only parked aggregates have rows. Used by the runners and the letters of process managers, which begin and
commit the transactions.
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
    """Whether a message of the event topic is the rejection of a command."""
    return message.headers.get("kind") == "rejection"


def version_before(message: Incoming) -> int:
    """Returns the version before a message's stream, without decoding the body.

    Returns 0 if the message's header has no version. Then all events of its aggregate are handled again,
    and their commands have the same ids, so they have no second effect.
    """
    version = message.headers.get("version", "")
    return max(0, int(version) - 1) if version.isascii() and version.isdigit() else 0


class ProcessProgress:
    """The stored progress of one process manager; every method works in the caller's transaction.

    Args:
        manager: its name.

    Attributes:
        parked: the aggregates that it has parked.
    """

    def __init__(self, manager: str) -> None:
        self.parked = ParkedStore(f"process:{manager}")

    def advance(self, connection: Connection, versions: Mapping[str, int]) -> None:
        """Stores the versions of parked aggregates; ignores aggregates that are not parked."""
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
        """Parks the aggregate of a message; returns False if too many are parked.

        Args:
            connection: in a transaction that can write.
            message: the message that could not be handled.
            version: the last handled version of its aggregate; None: not known, as for a rejection.
            error: why.
            now: the time of parking.
            letters_max: how many aggregates may be parked at once.
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
        """Holds a message behind its aggregate's letter; returns False if there is no letter."""
        if not self.parked.hold(connection, message.key):
            return False
        if is_rejection(message):
            self._note(connection, message)
        else:
            # A version below the stored one may be new: it must not be lost. If it is a duplicate, to
            # handle it again does no harm.
            version, before = parked_rows.c.version, version_before(message)
            earlier = self.parked.changing(message.key).where(
                or_(version.is_(None), version > before)
            )
            connection.execute(earlier.values(version=before))
        return True

    def waiting(
        self, connection: Connection, aggregate_id: str
    ) -> tuple[int | None, Sequence[tuple[int, str]]]:
        """Returns the events and rejections that wait for a parked aggregate.

        The first value is the version after which its events wait; None: no event waits. The second has
        the rejections in order, each with its number in the journal and the id of its command.
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
        """Deletes a rejection that has been handled or skipped."""
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
        # A rejection that was delivered twice waits once.
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

"""
How far the handlers of a processor are with each aggregate, and which aggregates they have parked.

    projection_versions   the last version of an aggregate that was handled
    parked               an aggregate whose next version could not be: what follows waits

They share the tables with projections, under a name that no projection can have and the generation
0, which none has. What waits is in the event store: a letter holds no event.

Sits between: the loop and the letters of event handlers, which begin and commit, and the tables.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from headrace.projections.letters import Letter, new_row, read_letters, reason_of
from headrace.projections.tables.statements import PARKED, listed, versions_among
from headrace.stores.database.tables import parked_rows, projection_versions
from headrace.transports.base import Incoming

__all__ = ["Standings"]

_GENERATION: Final = 0


class Standings:
    """What is kept of one processor; every method works within the caller's transaction.

    Args:
        owner: its name.
        kind: of what it is one; with the name it is the name in the tables.
    """

    def __init__(self, owner: str, kind: str = "handlers") -> None:
        self.name = f"{kind}:{owner}"
        columns = parked_rows.c
        self._letters = (columns.name == self.name, columns.generation == _GENERATION)

    def read(
        self, connection: Connection, aggregate_ids: Collection[str]
    ) -> tuple[dict[str, int], set[str]]:
        """Returns the versions of aggregates, without those at 0, and which of them are parked."""
        place = {"name": self.name, "generation": _GENERATION}
        among = listed(connection.dialect, aggregate_ids)
        found = connection.execute(versions_among(connection.dialect), {**place, **among}).all()
        parked = {aggregate_id for aggregate_id, version in found if version == PARKED}
        return {each: version for each, version in found if version != PARKED}, parked

    def advance(self, connection: Connection, versions: Mapping[str, int]) -> None:
        """Stores versions; one that is behind the stored one changes nothing."""
        if not versions:
            return
        dialect: Any = sqlite if connection.dialect.name == "sqlite" else postgresql
        statement = dialect.insert(projection_versions)
        columns = projection_versions.c
        statement = statement.on_conflict_do_update(
            index_elements=[columns.name, columns.generation, columns.aggregate_id],
            set_={"version": statement.excluded.version},
            # Of two members with one queue by mistake, the slower one must not go back.
            where=columns.version < statement.excluded.version,
        )
        connection.execute(
            statement,
            [
                {
                    "name": self.name,
                    "generation": _GENERATION,
                    "aggregate_id": aggregate_id,
                    "version": version,
                }
                # In one order for all, so that two members never wait for each other.
                for aggregate_id, version in sorted(versions.items())
            ],
        )

    def park(
        self,
        connection: Connection,
        *,
        message: Incoming,
        version: int,
        error: Exception,
        now: datetime,
        letters_max: int,
    ) -> bool:
        """Parks the aggregate of a message; False: as many as may be are parked, nothing is written.

        An aggregate that is parked already waits for one message more.

        Args:
            connection: in a transaction that can write.
            message: what could not be handled.
            version: the last version of its aggregate that was.
            error: why.
            now: since when.
            letters_max: aggregates that may be parked at once.
        """
        if self.hold(connection, message.key):
            return True
        if self.is_full(connection, letters_max):
            return False
        self.advance(connection, {message.key: version} if version else {})
        self.insert(connection, message=message, error=error, now=now)
        return True

    def is_full(self, connection: Connection, letters_max: int) -> bool:
        """Whether as many aggregates as may be are parked."""
        count = select(func.count()).select_from(parked_rows).where(*self._letters)
        found: int = connection.execute(count).scalar_one()
        return found >= letters_max

    def insert(
        self,
        connection: Connection,
        *,
        message: Incoming,
        error: Exception,
        now: datetime,
        **columns: Any,
    ) -> None:
        """Writes the letter of a message's aggregate, which has none."""
        topic, queue_id = message.queue
        connection.execute(
            parked_rows.insert().values(
                name=self.name,
                generation=_GENERATION,
                aggregate_id=message.key,
                topic=topic,
                queue_id=queue_id,
                message_offset=message.offset,
                parked_at=now,
                **new_row(error),
                **columns,
            )
        )

    def hold(self, connection: Connection, aggregate_id: str) -> bool:
        """Notes that one more message of an aggregate waits; False: it is not parked (any more)."""
        held = parked_rows.c.held
        done = connection.execute(self.changing(aggregate_id).values(held=held + 1))
        return done.rowcount == 1

    def note_failure(self, connection: Connection, aggregate_id: str, error: Exception) -> None:
        """Notes that taking up a letter has failed once more."""
        attempts = parked_rows.c.attempts
        connection.execute(
            self.changing(aggregate_id).values(attempts=attempts + 1, **reason_of(error))
        )

    def release(self, connection: Connection, letter: Letter) -> bool:
        """Ends a letter, unless a message came for it since it was read."""
        columns = parked_rows.c
        gone = connection.execute(
            delete(parked_rows).where(
                *self._letters,
                columns.aggregate_id == letter.aggregate_id,
                columns.held == letter.held,
            )
        )
        return gone.rowcount == 1

    def letters(self, connection: Connection, aggregate_id: str | None = None) -> list[Letter]:
        """Returns the letters, the oldest first; those of one aggregate where it is given."""
        return read_letters(connection, self.name, _GENERATION, aggregate_id)

    def changing(self, aggregate_id: str) -> Any:
        """Returns the statement that changes the letter of an aggregate, yet without values."""
        return update(parked_rows).where(*self._letters, parked_rows.c.aggregate_id == aggregate_id)

"""
How far the handlers of a processor are with each aggregate, and which aggregates they have parked.

    projection_versions   the last version of an aggregate that was handled
    parked                an aggregate whose next version could not be: what follows waits

They share the tables with projections, under a name that no projection can have and the generation
0, which none has. What waits is in the event store: a letter holds no event.

Sits between: the loop and the letters of event handlers, which begin and commit, and the tables.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.dialects import postgresql, sqlite

from headrace.projections.tables.statements import PARKED, listed, versions_among
from headrace.stores.database.parked import ParkedStore
from headrace.stores.database.tables import projection_versions
from headrace.transports.base import Incoming

__all__ = ["HandlerProgress"]

_GENERATION: Final = 0


class HandlerProgress:
    """What is kept of one processor; every method works within the caller's transaction.

    Args:
        processor: its name.

    Attributes:
        parked: its aggregates that wait.
    """

    def __init__(self, processor: str) -> None:
        self.parked = ParkedStore(f"handlers:{processor}", _GENERATION)

    def read(
        self, connection: Connection, aggregate_ids: Collection[str]
    ) -> tuple[dict[str, int], set[str]]:
        """Returns the versions of aggregates, without those at 0, and which of them are parked."""
        place = {"name": self.parked.name, "generation": _GENERATION}
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
                    "name": self.parked.name,
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
        if self.parked.hold(connection, message.key):
            return True
        if self.parked.count(connection) >= letters_max:
            return False
        self.advance(connection, {message.key: version} if version else {})
        place = (*message.queue, message.offset)
        self.parked.add(connection, message.key, error, now=now, place=place)
        return True

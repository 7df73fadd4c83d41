"""
The last version of each aggregate that a processor has handled, and the aggregates that it has parked.

    projection_versions   the last handled version of an aggregate
    parked                an aggregate whose next version failed: later versions wait

Projections use the same tables. A processor has a name that no projection can have, and the generation
0, which no projection has. The events that wait are in the event store: a letter holds none.

Used by the runner and the letters of event handlers, which begin and commit the transactions.
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
    """The stored progress of one processor; every method works in the caller's transaction.

    Args:
        processor: its name.

    Attributes:
        parked: the aggregates that it has parked.
    """

    def __init__(self, processor: str) -> None:
        self.parked = ParkedStore(f"handlers:{processor}", _GENERATION)

    def read(
        self, connection: Connection, aggregate_ids: Collection[str]
    ) -> tuple[dict[str, int], set[str]]:
        """Returns the versions of aggregates, without those at 0, and the set of those that are parked."""
        place = {"name": self.parked.name, "generation": _GENERATION}
        among = listed(connection.dialect, aggregate_ids)
        found = connection.execute(versions_among(connection.dialect), {**place, **among}).all()
        parked = {aggregate_id for aggregate_id, version in found if version == PARKED}
        return {each: version for each, version in found if version != PARKED}, parked

    def advance(self, connection: Connection, versions: Mapping[str, int]) -> None:
        """Stores versions; a version below the stored one changes nothing."""
        if not versions:
            return
        dialect: Any = sqlite if connection.dialect.name == "sqlite" else postgresql
        statement = dialect.insert(projection_versions)
        columns = projection_versions.c
        statement = statement.on_conflict_do_update(
            index_elements=[columns.name, columns.generation, columns.aggregate_id],
            set_={"version": statement.excluded.version},
            # If two members have one queue by mistake, the slower one must not move versions back.
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
                # Every member locks rows in this order, so that two members cannot deadlock.
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
        """Parks the aggregate of a message; writes nothing and returns False if too many are parked.

        If the aggregate is parked already, this adds one message that waits.

        Args:
            connection: in a transaction that can write.
            message: the message that could not be handled.
            version: the last version of its aggregate that was handled.
            error: why.
            now: the time of parking.
            letters_max: how many aggregates may be parked at once.
        """
        if self.parked.hold(connection, message.key):
            return True
        if self.parked.count(connection) >= letters_max:
            return False
        self.advance(connection, {message.key: version} if version else {})
        place = (*message.queue, message.offset)
        self.parked.add(connection, message.key, error, now=now, place=place)
        return True

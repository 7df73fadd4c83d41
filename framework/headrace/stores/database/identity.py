"""
The identity of the event store in a database: made at the first request, the same ever after.

Used by the adapters; keeps one row in a table of its own. A database that only has read models never
gets an identity.
"""

import secrets
from typing import Final

from sqlalchemy import Connection, LargeBinary, bindparam, select, text

from headrace._runtime.clock import SystemClock
from headrace._runtime.ids import new_id
from headrace.stores.base import StoreIdentity
from headrace.stores.database.statements import load_statement
from headrace.stores.database.tables import UtcDateTime, store_identity

__all__ = ["identity_in", "new_identity"]

# Too many bytes to be guessed; BLAKE2b takes up to 64.
_KEY_BYTES: Final = 32


def new_identity() -> StoreIdentity:
    """Makes an identity that no other store has."""
    return StoreIdentity(
        id=new_id(), seal_key=secrets.token_bytes(_KEY_BYTES), made_at=SystemClock().now()
    )


def identity_in(connection: Connection) -> StoreIdentity:
    """Returns the identity of the store in a database; makes it where there is none.

    Args:
        connection: commits every statement by itself, so that of two who find none at once the
            second reads what the first has kept.

    Raises:
        sqlalchemy.exc.SQLAlchemyError: the database failed.
    """
    found = _find(connection)
    if found is None:
        made = new_identity()
        keep = text(load_statement("headrace.stores", "keep_identity")).bindparams(
            bindparam("seal_key", type_=LargeBinary), bindparam("made_at", type_=UtcDateTime)
        )
        binds = {"store_id": made.id, "seal_key": made.seal_key, "made_at": made.made_at}
        connection.execute(keep, binds)
        found = _find(connection)
    if found is None:
        raise AssertionError("the identity of the store was kept and is not there")
    return found


def _find(connection: Connection) -> StoreIdentity | None:
    columns = store_identity.c
    query = select(columns.store_id, columns.seal_key, columns.made_at)
    row = connection.execute(query).first()
    return None if row is None else StoreIdentity(id=row[0], seal_key=row[1], made_at=row[2])

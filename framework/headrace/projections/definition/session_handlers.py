"""
Handlers with a session: what a projection writes to tables of the user's, in its own transaction.

Sits between: a batch that is being applied, whose connection and streams come in, and the functions
that `Projection.with_session` was given. Must never know offsets or generations.
"""

from collections.abc import Iterable
from itertools import chain
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.orm import Session

from headrace.domain.stream import EventStream
from headrace.projections.definition.fold import poisoned
from headrace.projections.definition.projection import Projection
from headrace.subscriptions.outages import claims_outage

__all__ = ["call_handlers"]


def call_handlers(
    connection: Connection, projection: Projection[Any], streams: Iterable[EventStream]
) -> None:
    """Calls each handler for each of its events, in order, within the connection's transaction.

    Raises:
        ProjectionError: a handler raised; names the event.
    """
    if not projection.has_handlers:
        return
    # A handler's commit must not end the transaction, which is the batch's.
    with Session(connection, join_transaction_mode="rollback_only") as session:
        for event, context in chain.from_iterable(stream.contexts() for stream in streams):
            try:
                for handler in projection.handlers_for(type(event)):
                    handler(session, event, context)
                session.flush()
            except Exception as error:
                if claims_outage(error):
                    raise
                raise poisoned(projection, event, context, error) from error
        session.commit()

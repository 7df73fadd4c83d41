"""
The transactions of a reader of events in the database of read models: an outage is waited out.

Sits between: the loops of event handlers and process managers, and that database. Never knows what is written.
"""

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection

from headrace._runtime.tasks import finish
from headrace.projections.tables.read_models import ReadModels
from headrace.subscriptions.reader import Reader
from headrace.transports.base import Incoming

__all__ = ["ReaderTransactions"]

T = TypeVar("T")


class ReaderTransactions:
    """Runs the transactions of one reader.

    Args:
        reader: tries again, and says so in the log and in its status.
        read_models: the database.
    """

    def __init__(self, reader: Reader, read_models: ReadModels) -> None:
        self._reader = reader
        self._read_models = read_models

    async def run(self, work: Callable[[Connection], T], what: str) -> T:
        """Returns what a transaction returns, tried again until it is committed.

        Args:
            work: what happens in it.
            what: names it in the log.
        """
        return await self._reader.persist(lambda: finish(self._read_models.transact(work)), what)

    async def park(
        self, message: Incoming, error: Exception, work: Callable[[Connection], bool]
    ) -> None:
        """Parks the aggregate of a message; waits while as many as may be are parked.

        Args:
            message: what could not be handled.
            error: why.
            work: parks it; False: there is no room.
        """
        await self._reader.park(message, error, lambda: self.run(work, "park an aggregate"))

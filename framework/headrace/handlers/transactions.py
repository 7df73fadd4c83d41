"""
Transactions of a reader in the database of read models, retried while the database is away.

Used by the runners of event handlers and process managers. It does not know what they write.
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
        reader: retries, and reports that in the log and in its status.
        read_models: the database.
    """

    def __init__(self, reader: Reader, read_models: ReadModels) -> None:
        self._reader = reader
        self._read_models = read_models

    async def run(self, work: Callable[[Connection], T], what: str) -> T:
        """Retries a transaction until it is committed; returns its result.

        Args:
            work: runs within the transaction.
            what: its name in the log.
        """
        return await self._reader.persist(lambda: finish(self._read_models.transact(work)), what)

    async def park(
        self, message: Incoming, error: Exception, work: Callable[[Connection], bool]
    ) -> None:
        """Parks the aggregate of a message; waits while too many aggregates are parked.

        Args:
            message: the message that could not be handled.
            error: why.
            work: parks the aggregate; returns False if too many are parked.
        """
        await self._reader.park(message, error, lambda: self.run(work, "park an aggregate"))

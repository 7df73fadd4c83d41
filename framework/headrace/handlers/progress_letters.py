"""
Retries and skips what event handlers and process managers have parked.

    retry ─▶ read the waiting events from the event store ─▶ handle them in order ─▶ delete the letter
                                         └─ one fails again: the letter stays, with the new error
    skip ──▶ the same, but the first one that fails is left out

The base class of `HandlerLetters` and of the letters of processes; they say how to handle an event.
Used by `headrace parked`; reads the event store and the table of letters. It knows no subscription.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection

from headrace.domain.stream import EventStream
from headrace.errors import HeadraceError, LetterNotFound
from headrace.projections.tables.read_models import ReadModels
from headrace.stores.base import EventStore
from headrace.stores.database.parked import Letter, ParkedStore
from headrace.subscriptions.outages import is_outage

__all__ = ["Failed", "ReaderLetters"]

# While a letter is retried, new events may come for its aggregate. After so many rounds the retry fails.
_ROUNDS_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Failed:
    """A waiting stream could not be handled.

    Attributes:
        error: why.
        pass_over: a transaction that skips the stream for good.
    """

    error: Exception
    pass_over: Callable[[Connection], Any]


class ReaderLetters(ABC):
    """The letters of one reader of events; you may use them while it runs, here or in another process.

    Args:
        parked: its letters.
        read_models: the database of the letters.
        store: has the events that wait.
        busy_error: the error to raise if new events come faster than they are handled.
    """

    def __init__(
        self,
        parked: ParkedStore,
        read_models: ReadModels,
        store: EventStore,
        *,
        busy_error: type[HeadraceError],
    ) -> None:
        self._parked = parked
        self._owner = parked.name.partition(":")[2]
        self._models = read_models
        self._store = store
        self._busy_error = busy_error

    async def all(self) -> list[Letter]:
        """Returns the letters, the oldest first."""
        return await self._models.transact(self._parked.read)

    async def retry(self, aggregate_id: str) -> Letter | None:
        """Handles the waiting events in order; returns None, or the letter if one of them fails.

        Raises:
            LetterNotFound: the aggregate is not parked.
            EventHandlerError, ProcessError: new events come faster than they are handled; nothing is
                lost, try again.
            sqlalchemy.exc.SQLAlchemyError, OSError: a database is away.
            CommandRefused, CommandTimeout: the queue is away, so a process manager cannot send.
        """
        return await self._take_up(aggregate_id, passing=0)

    async def skip(self, aggregate_id: str) -> Letter | None:
        """Like `retry`, but leaves out the first stream of events that fails.

        Raises:
            LetterNotFound, EventHandlerError, ProcessError: as `retry`.
        """
        return await self._take_up(aggregate_id, passing=1)

    @abstractmethod
    async def _call(self, stream: EventStream) -> None:
        """Handles one stream; raises any error of the handlers."""

    @abstractmethod
    def _advance_to(self, aggregate_id: str, version: int) -> Callable[[Connection], None]:
        """Returns the transaction that notes a version as handled."""

    async def _take_up(self, aggregate_id: str, *, passing: int) -> Letter | None:
        for _ in range(_ROUNDS_MAX):
            letter = await self._find(aggregate_id)
            failed = await self._handle(letter)
            if failed is None:
                if await self._models.transact(partial(self._parked.release, letter=letter)):
                    return None
            elif passing:
                passing -= 1
                await self._models.transact(failed.pass_over)
            else:
                fail = partial(self._parked.fail, aggregate_id=aggregate_id, error=failed.error)
                await self._models.transact(fail)
                return await self._find(aggregate_id)
        raise self._busy_error(
            f"events of {aggregate_id} keep coming faster than {self._owner} handles them; try again"
        )

    async def _handle(self, letter: Letter) -> Failed | None:
        """Handles the waiting streams in order; returns the first one that fails."""
        return await self._handle_after(letter.aggregate_id, letter.version)

    async def _handle_after(self, aggregate_id: str, version: int) -> Failed | None:
        try:
            streams = await self._store.read_stream(aggregate_id, after_version=version)
            for stream in streams:
                await self._call(stream)
                version += 1
                await self._models.transact(self._advance_to(aggregate_id, version))
        except Exception as error:
            if is_outage(error):
                raise
            return Failed(error, self._advance_to(aggregate_id, version + 1))
        return None

    async def _find(self, aggregate_id: str) -> Letter:
        found: Letter | None = await self._models.transact(
            partial(self._parked.find, aggregate_id=aggregate_id)
        )
        if found is None:
            raise LetterNotFound(
                f"{self._owner} has not parked {aggregate_id!r}; `headrace parked list"
                f" --processor {self._parked.name}` lists what it has"
            )
        return found

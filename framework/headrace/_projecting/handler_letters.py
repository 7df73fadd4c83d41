"""
The aggregates that event handlers have parked: looked at, taken up again, or without what failed.

Sits between: whoever repairs, and the event store, the handlers and the table of letters. Must never
know a subscription.
"""

from functools import partial
from typing import Final

from headrace._projecting.calling import at_once, call_all
from headrace._projecting.event_handlers import EventHandlers
from headrace._projecting.letters import Letter
from headrace._projecting.outages import is_outage
from headrace._projecting.read_models import ReadModels
from headrace._projecting.standings import Standings
from headrace.errors import EventHandlerError, LetterNotFound
from headrace.stores.base import EventStore

__all__ = ["HandlerLetters"]

# Looks at what came for an aggregate while its letter was being taken up, before giving way to
# whatever keeps adding to it.
_ROUNDS_MAX: Final = 10


class HandlerLetters:
    """The letters of one processor; may be used while it runs, here or in another process.

    Args:
        handlers: the processor, whose handlers are called here.
        read_models: where the letters are.
        store: has the events that wait.
    """

    def __init__(self, handlers: EventHandlers, read_models: ReadModels, store: EventStore) -> None:
        self._handlers = handlers
        self._standings = Standings(handlers.name)
        self._models = read_models
        self._store = store

    async def all(self) -> list[Letter]:
        """Returns the letters, the oldest first."""
        return await self._models.transact(self._standings.letters)

    async def retry(self, aggregate_id: str) -> Letter | None:
        """Handles what waits, in order; returns None, or the letter that is left where it failed.

        All handlers of the event that failed are called, also those that did their work before.

        Raises:
            LetterNotFound: the aggregate is not parked.
            EventHandlerError: events keep coming faster than they are handled; nothing is lost,
                try again.
            sqlalchemy.exc.SQLAlchemyError, OSError: a database is away.
        """
        return await self._take_up(aggregate_id, passing=0)

    async def skip(self, aggregate_id: str) -> Letter | None:
        """Like `retry`, but passes over the events of the one change that fails.

        Raises:
            LetterNotFound, EventHandlerError: as `retry`.
        """
        return await self._take_up(aggregate_id, passing=1)

    async def _take_up(self, aggregate_id: str, *, passing: int) -> Letter | None:
        for _ in range(_ROUNDS_MAX):
            letter = await self._find(aggregate_id)
            failed = await self._handle(letter)
            if failed is not None:
                version, error = failed
                if not passing:
                    note = partial(
                        self._standings.note_failure, aggregate_id=aggregate_id, error=str(error)
                    )
                    await self._models.transact(note)
                    return await self._find(aggregate_id)
                passing -= 1
                await self._advance(aggregate_id, version)
            elif await self._models.transact(partial(self._standings.release, letter=letter)):
                return None
        raise EventHandlerError(
            f"events of {aggregate_id} keep coming faster than {self._handlers.name} handles them;"
            " try again"
        )

    async def _handle(self, letter: Letter) -> tuple[int, Exception] | None:
        """Handles what waits; returns the version that failed."""
        version = letter.version
        try:
            streams = await self._store.read_stream(letter.aggregate_id, after_version=version)
            for stream in streams:
                await call_all(self._handlers, stream, at_once)
                version += 1
                await self._advance(letter.aggregate_id, version)
        except Exception as error:
            if is_outage(error):
                raise
            return version + 1, error
        return None

    async def _advance(self, aggregate_id: str, version: int) -> None:
        await self._models.transact(
            partial(self._standings.advance, versions={aggregate_id: version})
        )

    async def _find(self, aggregate_id: str) -> Letter:
        found = await self._models.transact(
            partial(self._standings.letters, aggregate_id=aggregate_id)
        )
        if not found:
            raise LetterNotFound(
                f"{self._handlers.name} has not parked {aggregate_id!r};"
                f" `headrace handler letters --processor {self._handlers.name}` lists what it has"
            )
        return found[0]

"""
The event store, read by positions as the event topic is read by offsets.

Its one queue is `STORE`: a shadow that is filled from the store stands at a position, which is kept
among its offsets under that name until it goes live with offsets of the topic.

Used by a rebuild; reads the bodies of an event store. It knows nothing of projections, or of a
broker.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from headrace.errors import ProjectionError
from headrace.rebuild.event_topic import Portion
from headrace.stores.database.bodies import StoredBodies, StoredBody
from headrace.transports.base import Incoming, QueueId

__all__ = ["STORE", "StoredEvents", "open_stored_events"]

# No topic has a space in its name.
STORE: Final[QueueId] = ("event store", 0)

_FAILURES: Final = (OSError, SQLAlchemyError)


class StoredEvents:
    """Reads ranges of positions; the offset of a stream is its position.

    Args:
        bodies: of the event store.
        messages_max: how many streams `read` yields at a time, at most.
    """

    def __init__(self, bodies: StoredBodies, *, messages_max: int) -> None:
        self._bodies = bodies
        self._messages_max = messages_max

    async def end(self) -> int:
        """Returns the position behind the last one; below it nothing will appear later.

        Raises:
            ProjectionError: the database is away.
        """
        try:
            return await self._bodies.last_position() + 1
        except _FAILURES as error:
            raise _unreadable(error) from error

    async def ranges(self) -> dict[QueueId, tuple[int, int]]:
        """Returns the first position and the one behind the last, as `EventTopic.ranges` does.

        Raises:
            ProjectionError: the database is away.
        """
        return {STORE: (0, await self.end())}

    async def starts(self) -> Mapping[QueueId, int]:
        """Returns where its queue began, as `EventTopic.starts` does."""
        return {}

    async def read(self, queue: QueueId, start: int, end: int) -> AsyncIterator[Sequence[Incoming]]:
        """Yields the streams from one position up to another, exclusive, as messages.

        Raises:
            ProjectionError: the database is away.
        """
        async with aclosing(self._pages(start, end)) as pages:
            async for page in pages:
                for place in range(0, len(page), self._messages_max):
                    yield [
                        Incoming(
                            queue=queue,
                            offset=each.position,
                            key=each.aggregate_id,
                            tag="",
                            headers={},
                            body=each.body.encode(),
                        )
                        for each in page[place : place + self._messages_max]
                    ]

    async def bodies(
        self, queue: QueueId, start: int, end: int, *, keys: frozenset[str] | None = None
    ) -> AsyncGenerator[Portion]:
        """Yields what `read` yields, as columns.

        Args:
            queue: `STORE`.
            start: the first position.
            end: the position behind the last one.
            keys: of the streams that are wanted; None: all of them.

        Raises:
            ProjectionError: the database is away.
        """
        assert queue == STORE, "there is no other queue"
        async with aclosing(self._pages(start, end)) as pages:
            async for page in pages:
                wanted = [each for each in page if keys is None or each.aggregate_id in keys]
                if wanted:
                    yield Portion(
                        [each.position for each in wanted], [each.body.encode() for each in wanted]
                    )

    async def _pages(self, start: int, end: int) -> AsyncGenerator[Sequence[StoredBody]]:
        try:
            async for page in self._bodies.read(start - 1, end - 1):
                yield page
        except _FAILURES as error:
            raise _unreadable(error) from error


@asynccontextmanager
async def open_stored_events(url: str | None, *, messages_max: int) -> AsyncIterator[StoredEvents]:
    """Opens the event store of a URL to read all of it.

    Args:
        url: `sqlite:///FILE` or `postgresql://USER@HOST/DATABASE`.
        messages_max: how many streams `read` yields at a time, at most.

    Raises:
        ProjectionError: there is no URL, or it is of a store that no other process can read.
        SchemaOutOfDate: there is no database, or its schema is not this version's.
    """
    if url is None or url == "memory://":
        raise ProjectionError(
            "there is no event store to read: give the URL of its database, sqlite:///FILE or"
            " postgresql://USER@HOST/DATABASE; what a process keeps in memory no other one can read"
        )
    bodies = StoredBodies(url)
    try:
        await bodies.check()
        yield StoredEvents(bodies, messages_max=messages_max)
    finally:
        await bodies.aclose()


def _unreadable(error: Exception) -> ProjectionError:
    said = next(iter(str(getattr(error, "orig", error)).splitlines()), type(error).__name__)
    return ProjectionError(f"the event store cannot be read: {said}")

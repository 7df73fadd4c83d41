"""
The event store read by the tasks of a job, each the streams of a share of its aggregates.

Every task reads from the first position to the last, in order, what falls to its share: so all events
of an aggregate are folded by one task, as where they are in one queue of the topic.

Used by the plan of a rebuild and by `fold`. It imports database modules only where a database is
read, because workers would otherwise load SQLAlchemy for nothing. It must not know an event.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.errors import ProjectionError
from headrace.spark.executor.plan import FoldPlan
from headrace_mq.message import QueueRef
from headrace_mq.spark.offsets import QueueSlice

if TYPE_CHECKING:
    from headrace.stores.database.bodies import StoredBody

__all__ = ["read_share", "reading_store", "share_slices"]


def share_slices(shares: int, end: int) -> tuple[QueueSlice, ...]:
    """Returns what the tasks read: of each share all positions before an end; nothing of nothing."""
    from headrace.rebuild.stored_events import STORE

    topic, _ = STORE
    if end <= 1:
        return ()
    return tuple(
        QueueSlice(queue=QueueRef(topic, number), start=1, end=end) for number in range(shares)
    )


def read_share(plan: FoldPlan, piece: QueueSlice) -> "Iterator[Sequence[StoredBody]]":
    """Yields what is stored of a share, some at a time, in position order; runs on executors.

    Raises:
        ProjectionError: the event store cannot be reached from here, or refuses.
    """
    from headrace.stores.database.bodies import ReaderShare, StoredBodies

    assert plan.event_store is not None, "it was read on the driver"
    share = ReaderShare(piece.queue.queue_id, plan.shares)
    with asyncio.Runner() as runner:
        bodies = StoredBodies(plan.event_store)
        pages = bodies.read(piece.start - 1, piece.end - 1, share)
        try:
            with reading_store(f"projection {plan.projection}: the event store"):
                while page := runner.run(_next(pages)):
                    yield page
        finally:
            runner.run(bodies.aclose())


@contextmanager
def reading_store(what: str) -> Iterator[None]:
    """Makes an error of the database one that says what could not be read here.

    Raises:
        ProjectionError: the database cannot be reached from here, or refuses.
    """
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (OSError, SQLAlchemyError) as error:
        said = next(iter(str(getattr(error, "orig", error)).splitlines()), "")
        raise ProjectionError(
            f"{what} cannot be read on"
            f" {socket.gethostname()}: {type(error).__name__}: {said}; every Spark executor reads"
            " it: name the database by an address that all of them reach, and let them in"
        ) from error


async def _next(pages: "AsyncIterator[Sequence[StoredBody]]") -> "Sequence[StoredBody]":
    async for page in pages:
        return page
    return ()

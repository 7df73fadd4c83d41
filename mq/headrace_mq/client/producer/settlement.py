"""
Waits until messages have their places, and batches their outcome.

Used by `Producer`, whose callers share batches.
"""

import asyncio
from collections.abc import Sequence

from headrace_mq.client.batch.batch import Batch, Place
from headrace_mq.message import SendResult

__all__ = ["all_placed", "report", "settled"]


def report(result: asyncio.Future[SendResult], place: asyncio.Future[Place]) -> None:
    """Passes on what became of a message that waited for its place."""
    if place.cancelled():
        result.cancel()
        return
    error = place.exception()
    if error is None:
        batch, number = place.result()
        batch.report(number, result)
    elif not result.done():
        result.set_exception(error)


async def all_placed(placed: Sequence[Place | asyncio.Future[Place]]) -> list[Place]:
    """Waits until every message has left the line; raises the first failure."""
    line = [place for place in placed if not isinstance(place, tuple)]
    try:
        if line:
            await asyncio.wait(line)
    except asyncio.CancelledError:
        for place in line:
            place.cancel()
        raise
    failures = [place.exception() for place in line]
    for failure in failures:
        if failure is not None:
            raise failure
    return [place if isinstance(place, tuple) else place.result() for place in placed]


async def settled(batch: Batch, loop: asyncio.AbstractEventLoop) -> None:
    """Waits until the batch is stored or given up.

    All senders of a batch share one future, which saves a tenth of the time of a send. Cancelling
    one of them cancels that future, so the others look whether they were meant and go on waiting.
    """
    # Asking for the running loop is a system call (of `getpid`), so it is handed down.
    task = asyncio.current_task(loop)
    cancellations = task.cancelling() if task is not None else 0
    while not batch.settled:
        if batch.waiter is None or batch.waiter.cancelled():
            batch.waiter = loop.create_future()
        try:
            await batch.waiter
        except asyncio.CancelledError:
            if task is None or task.cancelling() > cancellations:
                raise

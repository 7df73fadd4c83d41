"""
Lets a request handler query the database without waiting.

The first call for a query starts it and raises `QueryPending`, which ends the request. When the result is there,
the dispatcher runs the whole request again, and this time the call returns the result. So handlers never
wait, and only requests for archived messages take longer.

Used by `archive_reader`, which queries, and by the dispatcher, which catches `QueryPending`. It does not know what a query is.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

from headrace_mq.errors import ArchiveUnavailable

__all__ = ["RUNNING_MAX", "PendingQueries", "QueryPending"]

T = TypeVar("T")

# Queries at a time; a request that starts one more is refused and may be repeated.
RUNNING_MAX = 256


class QueryPending(Exception):
    """The result is on its way: run the request again when `answer` is done; if it failed, refuse it."""

    def __init__(self, answer: "asyncio.Future[Any]") -> None:
        super().__init__()
        self.answer = answer


class PendingQueries:
    """The queries that are running, and the latest results.

    Args:
        answers_max: results kept; at least as many as one request may need.
    """

    def __init__(self, answers_max: int) -> None:
        self._answers_max = answers_max
        self._answers: OrderedDict[Hashable, Any] = OrderedDict()
        self._running: dict[Hashable, asyncio.Task[Any]] = {}

    def ask(self, key: Hashable, work: Callable[[], Awaitable[T]]) -> T:
        """Returns the result of a query if it is there, or else starts the query.

        Args:
            key: names the query; its result never changes.
            work: runs the query.

        Raises:
            QueryPending: the query is running.
            ArchiveUnavailable: too many queries are running.
        """
        if key in self._answers:
            self._answers.move_to_end(key)
            found: T = self._answers[key]
            return found
        running = self._running.get(key)
        if running is None:
            if len(self._running) >= RUNNING_MAX:
                raise ArchiveUnavailable(
                    f"{RUNNING_MAX} queries of the archive are running; try again soon"
                )
            running = self._running[key] = asyncio.ensure_future(_awaited(work))
            running.add_done_callback(lambda done: self._ended(key, done))
        raise QueryPending(running)

    def _ended(self, key: Hashable, done: "asyncio.Task[Any]") -> None:
        self._running.pop(key, None)
        if done.cancelled() or done.exception() is not None:
            return
        self._answers[key] = done.result()
        while len(self._answers) > self._answers_max:
            self._answers.popitem(last=False)

    async def aclose(self) -> None:
        """Cancels all queries."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _awaited(work: Callable[[], Awaitable[T]]) -> T:
    return await work()

"""
Lets a request that cannot wait ask the database.

The first time a request asks a question, the question goes to the database and `Coming` ends the request.
When the answer is there, the dispatcher serves the whole request again, which finds it. So handlers need
not wait, and only requests about the past take longer.

Used by `past`, which asks, and by the dispatcher, which catches `Coming`. It does not know what is asked.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

from headrace_mq.errors import ArchiveUnavailable

__all__ = ["RUNNING_MAX", "Coming", "Questions"]

T = TypeVar("T")

# At a time; a request that asks more is refused and may come back.
RUNNING_MAX = 256


class Coming(Exception):
    """The answer comes: serve the request again when `answer` is done, or refuse it if it failed."""

    def __init__(self, answer: "asyncio.Future[Any]") -> None:
        super().__init__()
        self.answer = answer


class Questions:
    """Questions on their way, and the last answers.

    Args:
        answers_max: answers that are kept: at least as many as one request may ask for.
    """

    def __init__(self, answers_max: int) -> None:
        self._answers_max = answers_max
        self._answers: OrderedDict[Hashable, Any] = OrderedDict()
        self._running: dict[Hashable, asyncio.Task[Any]] = {}

    def ask(self, key: Hashable, work: Callable[[], Awaitable[T]]) -> T:
        """Returns the answer to a question if it is there.

        Args:
            key: the question; it has one answer for ever.
            work: finds the answer.

        Raises:
            Coming: it is being asked for.
            ArchiveUnavailable: too many others are.
        """
        if key in self._answers:
            self._answers.move_to_end(key)
            found: T = self._answers[key]
            return found
        running = self._running.get(key)
        if running is None:
            if len(self._running) >= RUNNING_MAX:
                raise ArchiveUnavailable(
                    f"{RUNNING_MAX} questions are being put to the archive; try again soon"
                )
            running = self._running[key] = asyncio.ensure_future(_awaited(work))
            running.add_done_callback(lambda done: self._ended(key, done))
        raise Coming(running)

    def _ended(self, key: Hashable, done: "asyncio.Task[Any]") -> None:
        self._running.pop(key, None)
        if done.cancelled() or done.exception() is not None:
            return
        self._answers[key] = done.result()
        while len(self._answers) > self._answers_max:
            self._answers.popitem(last=False)

    async def aclose(self) -> None:
        """Gives up what is being asked."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _awaited(work: Callable[[], Awaitable[T]]) -> T:
    return await work()

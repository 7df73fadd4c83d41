"""
Messages for later, which Kafka has no place for: kept elsewhere, and published when they are due.

    schedule ─▶ a table in the event store's database ─▶ due ─▶ published ─▶ deleted

What is published and not yet deleted when a process dies is published again: commands are recognised by
their id. Used by the transport; a store with the table is in `stores`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final, Protocol

from headrace._runtime.clock import Clock
from headrace._runtime.log import get_logger
from headrace.errors import HeadraceError
from headrace.transports.base import Outgoing

__all__ = ["REFUSED", "Dispatcher", "MemorySchedule", "Publish", "Schedule"]

_log = get_logger(__name__)

# Published together, in one transaction of the database.
_DUE_MAX: Final = 500
# How often a process looks for what another one has scheduled, or has left when it died.
_LOOK_S: Final = 1.0

# Publishes messages, and returns what became of each: True, it is durable; False, no attempt will
# succeed, and it must not keep others waiting; None, the queue is away, and it is tried again.
Publish = Callable[[Sequence[Outgoing]], Awaitable[Sequence[bool | None]]]
# How long a message waits that the queue refuses, until it is tried again.
REFUSED: Final = timedelta(minutes=5)


class Schedule(Protocol):
    """What is to be published later."""

    async def add(self, message: Outgoing, due: datetime) -> None:
        """Returns when the message is kept durably."""
        ...

    async def publish_due(self, now: datetime, limit: int, publish: Publish) -> int:
        """Publishes the messages that are due by now, the earliest first, and forgets them.

        Those that another process publishes at the moment are left to it. One that the queue refuses is due
        again after `REFUSED`. Raises what `publish` raises, and forgets nothing then.

        Args:
            now: the moment.
            limit: how many at a time.
            publish: says what became of each.

        Returns:
            how many are no longer due.
        """
        ...

    async def next_due(self) -> datetime | None:
        """Returns when the next message is due; None: there is none."""
        ...

    async def aclose(self) -> None:
        """Closes what it uses."""
        ...


class MemorySchedule:
    """A schedule that ends with the process: where the event store is in memory, too."""

    def __init__(self) -> None:
        self._waiting: list[tuple[datetime, int, Outgoing]] = []
        self._count = 0

    async def add(self, message: Outgoing, due: datetime) -> None:
        """Keeps a message in this process."""
        self._count += 1
        self._waiting.append((due, self._count, message))
        self._waiting.sort(key=lambda each: each[:2])

    async def publish_due(self, now: datetime, limit: int, publish: Publish) -> int:
        """Publishes what is due; see `Schedule`."""
        found = [each for each in self._waiting[:limit] if each[0] <= now]
        outcomes = await publish([message for _, _, message in found]) if found else ()
        for each, outcome in zip(found, outcomes, strict=True):
            if outcome is not None:
                self._waiting.remove(each)
            if outcome is False:
                await self.add(each[2], now + REFUSED)
        return sum(outcome is not None for outcome in outcomes)

    async def next_due(self) -> datetime | None:
        """Returns when the next message is due."""
        return self._waiting[0][0] if self._waiting else None

    async def aclose(self) -> None:
        """Does nothing."""


class Dispatcher:
    """Publishes what is due, from its start to its end; used in one event loop.

    Args:
        schedule: what there is.
        publish: publishes messages.
        clock: tells the time.
    """

    def __init__(self, schedule: Schedule, publish: Publish, clock: Clock) -> None:
        self._schedule = schedule
        self._publish = publish
        self._clock = clock
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to publish."""
        self._task = asyncio.create_task(self._run(), name="scheduled messages")

    async def add(self, message: Outgoing, due: datetime | timedelta) -> None:
        """Keeps a message until it is due.

        Raises:
            TimeoutError: the database is away; scheduling again is safe.
        """
        at = self._clock.now() + due if isinstance(due, timedelta) else due
        try:
            await self._schedule.add(message, at)
        except HeadraceError:
            raise
        except Exception as error:
            raise TimeoutError(f"a message for later is not kept: {error}") from error
        self._news.set()

    async def aclose(self) -> None:
        """Ends, and closes the schedule."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self._schedule.aclose()

    async def _run(self) -> None:
        while True:
            self._news.clear()
            wait_s = _LOOK_S
            try:
                while await self._schedule.publish_due(self._clock.now(), _DUE_MAX, self._publish):
                    pass
                due = await self._schedule.next_due()
                ahead_s = (due - self._clock.now()).total_seconds() if due is not None else 0.0
                if ahead_s > 0:
                    # What is overdue is another process's, or waits for the queue.
                    wait_s = min(ahead_s, _LOOK_S)
            except Exception:  # noqa: BLE001 - said, and tried again
                # Commands for later must not end with an error.
                _log.exception("scheduled messages wait")
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._news.wait()

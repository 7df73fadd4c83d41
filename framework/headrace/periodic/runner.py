"""
Sends a periodic command when its moment has come, and after a start those that were missed.

    look which of the last occurrences the event store has ─▶ send what is due ─▶ wait for the next ─▶ …

Every process of the application does it. They send the same ids, so each command is handled once. The
event store tells what is done: there is no other record, and so none that could differ.

Used by `App`; uses the command bus and the event store.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar

from headrace._runtime.backoff import Backoff
from headrace._runtime.clock import Clock, MovedClock, SystemClock
from headrace._runtime.log import get_logger
from headrace.bus import CommandBus
from headrace.periodic.periodic_command import MISSED_MAX, PeriodicCommand
from headrace.serialization import CommandEnvelope
from headrace.settings import Settings
from headrace.stores.base import EventStore
from headrace.subscriptions.outages import is_outage

__all__ = ["PeriodicRunner", "periodic_runners"]

log = get_logger(__name__)

T = TypeVar("T")

# Longest wait before the clock is read again: one that was set is noticed within this time.
_LOOK_MS_MAX: Final = 30_000
# How far back occurrences are looked for at a start: more than a year, for tables of once a year.
_LOOK_BACK_DAYS: Final = 400


def periodic_runners(
    periodic: Iterable[PeriodicCommand],
    app_name: str,
    bus: CommandBus,
    store: EventStore,
    settings: Settings,
    clock: MovedClock | None,
) -> Iterator[tuple[str, Callable[[], Coroutine[Any, Any, None]]]]:
    """Returns the loops of an application's periodic commands, by name.

    Args:
        periodic: the commands.
        app_name: of the application.
        bus: takes them.
        store: knows which were handled.
        settings: pauses between attempts.
        clock: moved by a test, so that it waits exactly until the next occurrence; None: the machine's.
    """
    moved: dict[str, Any] = {}
    if clock is not None:
        moved = {"clock": clock, "wait": clock.wait, "look_ms_max": None}
    for each in periodic:
        runner = PeriodicRunner(
            each, app_name=app_name, bus=bus, store=store, settings=settings, **moved
        )
        yield f"periodic {each.name}", runner.run


class PeriodicRunner:
    """The loop of one periodic command.

    Args:
        periodic: which one.
        app_name: of the application; part of the commands' ids.
        bus: takes the commands.
        store: knows which were handled.
        settings: pauses between attempts.
        clock: tells the time.
        wait: waits for so many seconds.
        look_ms_max: longest wait; None: as long as it is until the next occurrence.
    """

    def __init__(  # noqa: PLR0913 - the parts it is put together from, all by name
        self,
        periodic: PeriodicCommand,
        *,
        app_name: str,
        bus: CommandBus,
        store: EventStore,
        settings: Settings,
        clock: Clock | None = None,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
        look_ms_max: int | None = _LOOK_MS_MAX,
    ) -> None:
        self._periodic = periodic
        self._app_name = app_name
        self._bus = bus
        self._store = store
        self._clock = clock or SystemClock()
        self._wait = wait
        self._look_s_max = math.inf if look_ms_max is None else look_ms_max / 1_000
        self._backoff = Backoff(ms_min=settings.retry_ms_min, ms_max=settings.retry_ms_max)

    async def run(self) -> None:
        """Works until cancelled."""
        last = await self._persist(self._last_done, "look for periodic commands")
        while True:
            now = self._clock.now()
            for moment in self._periodic.due(last, now):
                await self._send(moment)
            last = max(last, now)
            left = (self._periodic.schedule.following(last) - self._clock.now()).total_seconds()
            await self._wait(min(max(left, 0.0), self._look_s_max))

    async def _last_done(self) -> datetime:
        """Returns the last occurrence that is done; where none is, now: it is the first start."""
        now = self._clock.now()
        begin = now - timedelta(days=_LOOK_BACK_DAYS)
        known: dict[tuple[str, str], datetime] = {}
        for moment in self._periodic.schedule.between(begin, now, most=MISSED_MAX):
            envelope = self._made(moment)
            if envelope is not None:
                known[envelope.aggregate_id, envelope.command_id] = moment
        stored = await self._store.find_stored(known.keys())
        return max((known[each] for each in stored), default=now)

    async def _send(self, moment: datetime) -> None:
        envelope = self._made(moment)
        if envelope is None:
            return
        try:
            await self._persist(partial(self._bus.send_envelope, envelope), "send a command")
        except Exception:
            log.exception("a periodic command is left out", periodic=self._periodic.name, at=moment)

    def _made(self, moment: datetime) -> CommandEnvelope | None:
        try:
            return self._periodic.envelope(self._app_name, moment)
        except Exception:
            log.exception("a periodic command is left out", periodic=self._periodic.name, at=moment)
            return None

    async def _persist(self, action: Callable[[], Awaitable[T]], what: str) -> T:
        return await self._backoff.persist(
            action, what=what, unless=(), final=lambda error: not is_outage(error)
        )

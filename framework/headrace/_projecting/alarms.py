"""
Alarms about parked aggregates, so many or for so long, and about messages that were left out.

    looked at every `alarm_check_ms` ─▶ begins: a warning in the log ─▶ ends: a line in the log
                                        while it holds: in `current`, for `GET /health`

Sits between: the letters of an application's projections and event handlers, and whoever watches. Mends nothing.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import structlog
from sqlalchemy import func, select

from headrace._projecting.read_models import ReadModels
from headrace._runtime.clock import Clock, SystemClock
from headrace._runtime.tasks import finish
from headrace.settings import Settings
from headrace.stores.tables import UtcDateTime, projection_letters, projections

__all__ = ["Alarm", "Alarms"]

log = structlog.get_logger(__name__)

_COUNT: Final = "letters"
_AGE: Final = "oldest letter"
_DAMAGE: Final = "messages left out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Something that somebody should look at.

    Attributes:
        projection: whose letters; "handlers:NAME" for event handlers, "topic:NAME" for a topic.
        kind: "letters": too many; "oldest letter": one is too old; "messages left out": nobody
            can decode them, or the broker has lost them.
        value: how many, or its age in ms.
        bound: from which value on there is an alarm.
    """

    projection: str
    kind: str
    value: int
    bound: int


class Alarms:
    """Watches the letters of projections.

    Args:
        projections: their names; those of event handlers as `Standings` has them.
        read_models: where the letters are.
        settings: the bounds.
        clock: tells ages.
        damaged: tells how many messages of a topic were left out since the start.
    """

    def __init__(
        self,
        *,
        projections: Iterable[str],
        read_models: ReadModels,
        settings: Settings,
        clock: Clock | None = None,
        damaged: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._damaged = damaged
        self._names = sorted(projections)
        self._read_models = read_models
        self._settings = settings
        self._clock = clock or SystemClock()
        self._current: Mapping[tuple[str, str], Alarm] = {}

    @property
    def current(self) -> tuple[Alarm, ...]:
        """The alarms of the last look."""
        return tuple(self._current.values())

    async def run(self) -> None:
        """Looks until cancelled; a look that fails is made up for by the next one."""
        while True:
            try:
                await finish(self.look())
            except Exception as error:  # noqa: BLE001 - the database may fail in any way; logged
                log.warning("letters could not be looked at", error=repr(error))
            await asyncio.sleep(self._settings.alarm_check_ms / 1_000)

    async def look(self) -> None:
        """Looks once; tells the log what has begun and what has ended."""
        found: dict[tuple[str, str], Alarm] = {}
        for name, count, oldest in await self._letters():
            for kind, value, bound in (
                (_COUNT, count, self._settings.letters_alarm_count),
                (_AGE, self._age_ms(oldest), self._settings.letters_alarm_age_ms),
            ):
                if value >= bound:
                    found[name, kind] = Alarm(projection=name, kind=kind, value=value, bound=bound)
        for topic, messages in self._damaged().items():
            name = f"topic:{topic}"
            found[name, _DAMAGE] = Alarm(projection=name, kind=_DAMAGE, value=messages, bound=1)
        for key, alarm in found.items():
            if key not in self._current:
                log.warning(
                    "alarm: messages were left out"
                    if alarm.kind == _DAMAGE
                    else "alarm: a projection has parked aggregates",
                    projection=alarm.projection,
                    alarm=alarm.kind,
                    value=alarm.value,
                    bound=alarm.bound,
                )
        for name, kind in self._current.keys() - found.keys():
            log.info("alarm is over", projection=name, alarm=kind)
        self._current = found

    async def _letters(self) -> list[Any]:
        letters, live = projection_letters.c, projections.c
        query = (
            select(letters.name, func.count(), func.min(letters.parked_at, type_=UtcDateTime()))
            .outerjoin(projections, live.name == letters.name)
            # Event handlers have no row there, and letters of the generation 0.
            .where(
                letters.name.in_(self._names),
                letters.generation == func.coalesce(live.generation, 0),
            )
            .group_by(letters.name)
            .order_by(letters.name)
        )
        async with self._read_models.snapshot() as connection:
            return list((await connection.execute(query)).all())

    def _age_ms(self, since: datetime) -> int:
        return (self._clock.now() - since) // timedelta(milliseconds=1)

"""
How far projections are behind, and how many instances processes have: figures that a database must be asked for.

They are read at most every few seconds, and only for a bounded time; a database that does not answer must not keep
Prometheus from the other figures.

Used by `collector`; uses the watch and the read models of a running application.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, func, select

from headrace._runtime.clock import Clock, SystemClock
from headrace._runtime.log import get_logger
from headrace.metrics import table
from headrace.running_app import RunningApp
from headrace.stores.database.tables import process_instances
from headrace.watch.lag import ProjectionLag
from headrace_mq.metrics.table import Sample

__all__ = ["INSTANCES_COUNTED_MAX", "DatabaseFigures"]

log = get_logger(__name__)

# Instances of one process that are counted: some ten milliseconds of the database's time.
INSTANCES_COUNTED_MAX = 100_000
# Younger figures are given again: several programs may ask for metrics.
_FRESH_MS: Final = 5_000
# How long the database and the broker may take; Prometheus gives up after 10 s.
ANSWER_MS_MAX = 5_000
_PROCESS: Final = "process manager "


class DatabaseFigures:
    """The figures of one running application.

    Args:
        running: the application.
        clock: says how old figures are.
    """

    def __init__(self, running: RunningApp, clock: Clock | None = None) -> None:
        self._running = running
        self._clock = clock or SystemClock()
        self._read_at_ms: int | None = None
        self._samples: Sequence[Sample] = ()

    async def samples(self) -> Sequence[Sample]:
        """Returns the figures of this moment, or of some seconds ago."""
        now_ms = self._clock.monotonic_ms()
        if self._read_at_ms is None or now_ms - self._read_at_ms >= _FRESH_MS:
            self._samples = await self._read()
            self._read_at_ms = self._clock.monotonic_ms()
        return self._samples

    async def _read(self) -> Sequence[Sample]:
        watch = self._running.watch
        if watch is None:
            return ()
        try:
            async with asyncio.timeout(ANSWER_MS_MAX / 1_000):
                lags = await watch.lags.measure()
                instances = await self._instances()
        except Exception as error:  # noqa: BLE001 - a database or the queue may be away; the metric says so
            log.debug("the lag of projections could not be read", error=repr(error))
            return (table.LAG_UNKNOWN.sample(1),)
        found = [sample for lag in lags for sample in _of_projection(lag)]
        return (table.LAG_UNKNOWN.sample(0), *found, *instances)

    async def _instances(self) -> list[Sample]:
        names = [
            name.removeprefix(_PROCESS)
            for name in self._running.readers
            if name.startswith(_PROCESS)
        ]
        if not names:
            return []
        async with self._running.read_models.snapshot() as connection:
            return [
                table.INSTANCES.sample(await connection.run_sync(_count, name), name)
                for name in names
            ]


def _of_projection(lag: ProjectionLag) -> list[Sample]:
    paused = lag.paused_at is not None or lag.group_paused is not None
    return [
        table.POSITION.sample(sum(each.next_offset for each in lag.queues), lag.projection),
        table.LAG_MESSAGES.sample(lag.messages, lag.projection),
        table.LAG.sample(lag.age_ms / 1_000, lag.projection),
        table.PROJECTION_PAUSED.sample(paused, lag.projection),
    ]


def _count(connection: Connection, process: str) -> int:
    columns = process_instances.c
    running = (
        select(columns.instance)
        .where(columns.process == process, ~columns.ended)
        .limit(INSTANCES_COUNTED_MAX)
        .subquery()
    )
    return connection.execute(select(func.count()).select_from(running)).scalar_one()

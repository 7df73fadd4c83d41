"""
A table that a rebuild has finished and not put in place, put in place: nothing is folded again.

    take the shadow up again ─▶ catch up ─▶ switch
      └──▶ an error: it is kept as it was, for the next attempt

Used by the command line; uses the switch of every rebuild. It must not know Spark.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from headrace.app import load_app
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.level import bring_shadow
from headrace.rebuild.report import RebuildReport
from headrace.rebuild.shadow import Building, open_read_models
from headrace.rebuild.source import Source, open_events
from headrace.rebuild.stored_events import STORE
from headrace.rebuild.switch import Shadow, release
from headrace.transports.base import QueueId

__all__ = ["promote"]

# Messages applied per transaction while catching up; the live runner's own default.
_APPLIED_MAX: Final = 1_000


async def promote(
    app: str,
    projection_name: str,
    *,
    broker: str | None,
    read_models_url: str,
    event_store_url: str | None = None,
    take_over: bool = False,
) -> RebuildReport:
    """Puts the rebuilt table of a projection in place that was kept, even where its rows differ.

    It catches up first, with what it was built from. The table from before is kept for `rollback`.

    Args:
        app: the application's import path, such as `samples.bank:app`.
        projection_name: which of its projections.
        broker: `host:port`. None: there is none, which a table that was built from the event store
            can do without; the live projection then reads the event topic from its beginning.
        read_models_url: where the projection's tables are.
        event_store_url: fills gaps of the event topic; needed where the table was built from it.
        take_over: even if another rebuild seems to be running.

    Returns:
        What was done; no events are counted but those that were caught up with.

    Raises:
        RebuildRunning: a rebuild of the projection is under way.
        ProjectionError: there is no such table, or it cannot catch up; it is kept.
    """
    application = load_app(app)
    projection = application.projection(projection_name)
    async with open_read_models(read_models_url, projection) as read_models:
        building = Building(read_models, projection)
        shadow = await building.reopen(take_over=take_over)
        try:
            stands = await read_models.offsets(projection.name, shadow.generation)
            source: Source = "store" if STORE in stands else "topic"
            events = open_events(
                application,
                source,
                (broker, event_store_url),
                switch=True,
                live_wait_ms=0,
                messages_max=_APPLIED_MAX,
            )
            async with events as found:
                outcome = await bring_shadow(
                    read_models, shadow, found.means, found.origin, verify=False, switch=True
                )
            await building.finish(shadow, outcome)
        except BaseException:
            await asyncio.shield(_keep(read_models, shadow))
            raise
        return RebuildReport(
            projection=projection.name,
            generation=shadow.generation,
            table=str(read_models.table_for(projection, shadow.generation).name),
            source=source,
            start="finished",
            start_offsets=_named(stands),
            caught_up_offsets=_named(outcome.offsets),
            caught_up=outcome.caught_up,
            rows=await read_models.reader(projection).count(),
            left_out=found.means.left_out.sentences,
            switched=outcome.switched,
        )


async def _keep(read_models: ReadModels, shadow: Shadow) -> None:
    async with read_models.begin() as connection:
        await release(connection, shadow)
    await read_models.locks.release(shadow.owner)


def _named(offsets: Mapping[QueueId, int]) -> dict[str, int]:
    return {f"{topic}/{number}": offset for (topic, number), offset in offsets.items()}

"""
Starts and stops lag, heartbeats and alarms of a running application, and answers for health.

Used by `App`, which makes it, and by the running application.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from headrace._runtime.clock import Clock
from headrace.events.belief import Belief
from headrace.events.publisher import event_topic
from headrace.handlers.progress import HandlerProgress
from headrace.lineage.check import LineageCheck
from headrace.processes.instances import parked_instances
from headrace.processes.progress import ProcessProgress
from headrace.projections.definition.projection import Projection
from headrace.projections.tables.read_models import ReadModels
from headrace.serialization import Serializer
from headrace.settings import Settings
from headrace.stores.base import CommandLetterStore
from headrace.transports.base import PartlyThere, Transport
from headrace.watch.alarms import Alarms
from headrace.watch.heartbeat import Heart
from headrace.watch.lag import Lags

__all__ = ["Watch"]


class Watch:
    """Watches the projections of one application.

    Attributes:
        lags: measures how far they are behind.
        alarms: about what they have parked.

    Args:
        app_name: names the event topic.
        projections: by name.
        processors: the names of its event handlers.
        managers: the names of its process managers.
        read_models: where they are.
        transport: where the topic is.
        serializer: encodes heartbeats.
        settings: bounds and periods.
        commands: the commands that are parked; None: they are not looked at.
        belief: has counted foreign messages in the topic; None: they are not counted.
        lineage: knows whether the topic's readers stand still; None: it is not known.
        clock: tells the time.
    """

    def __init__(  # noqa: PLR0913 - the parts it is put together from, all by name
        self,
        *,
        app_name: str,
        projections: Mapping[str, Projection[Any]],
        processors: Iterable[str] = (),
        managers: Iterable[str] = (),
        read_models: ReadModels,
        transport: Transport,
        serializer: Serializer,
        settings: Settings,
        commands: CommandLetterStore | None = None,
        belief: Belief | None = None,
        lineage: LineageCheck | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self.lags = Lags(
            app_name=app_name,
            projections=projections,
            read_models=read_models,
            transport=transport,
            clock=clock,
        )
        self.alarms = Alarms(
            projections=[
                *projections,
                *(HandlerProgress(each).parked.name for each in processors),
                *(ProcessProgress(each).parked.name for each in managers),
                *(parked_instances(each).name for each in managers),
            ],
            read_models=read_models,
            settings=settings,
            foreign=None if belief is None else lambda: (event_topic(app_name), belief.foreign),
            refused=None
            if lineage is None
            else lambda: (event_topic(app_name), lineage.refused is not None),
            contested=lambda: (
                event_topic(app_name),
                isinstance(transport, PartlyThere) and transport.contested(event_topic(app_name)),
            ),
            commands=commands,
            transport=transport if lineage is None else lineage,
            versions={name: each.version for name, each in projections.items()},
            clock=clock,
        )
        self._heart = Heart(
            app_name=app_name,
            transport=transport,
            serializer=serializer,
            period_ms=settings.heartbeat_ms,
        )

    @property
    def parts(self) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        """What runs as long as the application does."""
        beating = [("heartbeat", self._heart.run)] if self._settings.heartbeat_ms else []
        return [("alarms", self.alarms.run), *beating]

    async def check_lag(self) -> None:
        """Returns if no projection is further behind than the settings allow.

        Raises:
            ProjectionError: one is.
            Exception: of the database or the queue, which is away.
        """
        await self.lags.check(
            messages_max=self._settings.lag_messages_max, ms_max=self._settings.lag_ms_max
        )

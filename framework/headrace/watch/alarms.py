"""
Alarms: too much is parked, or for too long; messages are foreign or left out; a reader stands still.

    checked every `alarm_check_ms` ─▶ begins: a warning in the log ─▶ ends: a line in the log
                                      while it holds: in `current`, for `GET /health`

Used by `watch`. It reads what the application has parked, and repairs nothing.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final, Protocol

from headrace._runtime.clock import Clock, SystemClock
from headrace._runtime.log import get_logger
from headrace._runtime.tasks import finish
from headrace.errors import ProjectionError
from headrace.projections.tables.read_models import ReadModels
from headrace.settings import Settings
from headrace.stores.base import CommandLetterStore
from headrace.stores.database.parked import read_parked_counts

__all__ = ["Alarm", "Alarms"]

log = get_logger(__name__)

_COMMANDS: Final = "commands"
_COUNT: Final = "letters"
_AGE: Final = "oldest letter"
_FOREIGN: Final = "foreign messages"
_LINEAGE: Final = "lineage"
_DAMAGE: Final = "messages left out"
_PAUSED: Final = "paused by an operator"
_CONTESTED: Final = "groups contradict"
_VERSION: Final = "version"
_SENTENCES: Final[Mapping[str, str]] = MappingProxyType(
    {
        _COUNT: "alarm: commands or events wait that could not be handled",
        _AGE: "alarm: commands or events wait that could not be handled",
        _FOREIGN: "alarm: a foreign program writes to the event topic",
        _LINEAGE: "alarm: event store, event topic and readers do not belong together",
        _DAMAGE: "alarm: messages were left out",
        _CONTESTED: "alarm: two groups of brokers have the same queue of a topic; delete the topic in one of them",
        _VERSION: "alarm: rows are of another version of the projection than this code",
        _PAUSED: "alarm: an operator has paused a consumer group at the broker",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Something that an operator should look at.

    Attributes:
        projection: whose letters; "commands" for parked commands and those held behind them,
            "handlers:NAME" for event handlers, "process:NAME" for process managers, "instances:NAME"
            for the instances of a process; of foreign messages the topic; "topic:NAME" for messages
            of a topic that were left out; "group:NAME" for a consumer group.
        kind: "letters": too many; "oldest letter": one is too old; "foreign messages": they came since
            this process began, and were passed over; "lineage": readers stand still, because the event
            store is another one, or an older one; "messages left out": nothing can decode them, or the
            broker has lost them; "paused by an operator": the group is given no messages;
            "groups contradict": two groups of brokers claim the same queue of the event topic, so no reader can know which
            one to read; "version": the live rows are of another version than the code, which waits or folds into
            a table of its own.
        value: how many, or its age in ms; the version of the live rows.
        bound: from which value on there is an alarm; the version of the code.
    """

    projection: str
    kind: str
    value: int
    bound: int


class Delivery(Protocol):
    """The part of a transport that alarms use; a transport, or a `LineageCheck`."""

    def damaged(self) -> Mapping[str, int]:
        """As `Transport.damaged`."""
        ...

    async def paused(self) -> Collection[str]:
        """As `Transport.paused`, of its own groups."""
        ...


class Alarms:
    """Watches what is parked, and what else stands still.

    Args:
        projections: their names; those of event handlers and process managers as the table
            `parked` has them.
        read_models: where the letters are.
        settings: the bounds.
        clock: tells ages.
        foreign: tells a topic, and how many messages in it were not believed; None: they are not counted.
        refused: tells a topic, and whether its readers stand still; None: it is not known.
        contested: tells a topic, and whether groups of brokers claim the same queue of it; None: it is not known.
        commands: the commands that are parked; None: they are not looked at.
        versions: of the definitions of projections, by name; None: they are not looked at.
        transport: tells how many messages of a topic were left out since the start, and which groups
            are paused; None: it is not asked.
    """

    def __init__(  # noqa: PLR0913 - the parts it is put together from, all by name
        self,
        *,
        projections: Iterable[str],
        read_models: ReadModels,
        settings: Settings,
        clock: Clock | None = None,
        foreign: Callable[[], tuple[str, int]] | None = None,
        refused: Callable[[], tuple[str, bool]] | None = None,
        contested: Callable[[], tuple[str, bool]] | None = None,
        commands: CommandLetterStore | None = None,
        transport: Delivery | None = None,
        versions: Mapping[str, int] | None = None,
    ) -> None:
        self._versions = versions or {}
        self._commands = commands
        self._transport = transport
        self._foreign = foreign
        self._topic_states = ((_LINEAGE, refused), (_CONTESTED, contested))
        self._names = sorted(projections)
        self._read_models = read_models
        self._settings = settings
        self._clock = clock or SystemClock()
        self._current: Mapping[tuple[str, str], Alarm] = {}
        # Those that wait for room, at the last look. A projection without room says so itself.
        self._full: Mapping[str, int] = {}
        self._parked: Mapping[str, tuple[int, datetime]] = {}

    @property
    def parked(self) -> Mapping[str, tuple[int, datetime]]:
        """How much each reader had parked at the last look, and since when the oldest; "commands" likewise.

        A reader that has parked nothing is missing.
        """
        return self._parked

    @property
    def current(self) -> tuple[Alarm, ...]:
        """The alarms of the last look."""
        return tuple(self._current.values())

    def check_room(self) -> None:
        """Returns if neither commands, event handlers nor a process manager stood still at the last look.

        Raises:
            ProjectionError: some have parked as much as they may, and wait.
        """
        if self._full:
            full = ", ".join(f"{name} ({most})" for name, most in sorted(self._full.items()))
            raise ProjectionError(
                f"as much is parked as may be, and the next one waits: {full}; use `headrace parked"
                " retry` or `headrace parked skip`"
            )

    async def run(self) -> None:
        """Looks until cancelled; a look that fails is made up for by the next one."""
        while True:
            try:
                await finish(self.look())
            except Exception as error:  # noqa: BLE001 - the database may fail in any way; logged
                log.warning("letters could not be looked at", error=repr(error))
            await asyncio.sleep(self._settings.alarm_check_ms / 1_000)

    async def look(self) -> None:
        """Checks once; logs the alarms that have begun and those that have ended."""
        found: dict[tuple[str, str], Alarm] = {}
        commands = await self._parked_commands()
        parked = [*commands, *await self._letters()]
        self._parked = {name: (count, oldest) for name, count, oldest in parked}
        if commands and commands[0][1] >= self._settings.command_letters_max:
            self._full = {**self._full, _COMMANDS: self._settings.command_letters_max}
        for name, count, oldest in parked:
            for kind, value, bound in (
                (_COUNT, count, self._settings.letters_alarm_count),
                (_AGE, self._age_ms(oldest), self._settings.letters_alarm_age_ms),
            ):
                if value >= bound:
                    found[name, kind] = Alarm(projection=name, kind=kind, value=value, bound=bound)
        if self._foreign is not None and (told := self._foreign())[1]:
            name, count = told
            found[name, _FOREIGN] = Alarm(projection=name, kind=_FOREIGN, value=count, bound=1)
        damaged = {} if self._transport is None else self._transport.damaged()
        for topic, messages in damaged.items():
            name = f"topic:{topic}"
            found[name, _DAMAGE] = Alarm(projection=name, kind=_DAMAGE, value=messages, bound=1)
        others = (*await self._other_versions(), *await self._standing_still())
        for alarm in (*self._topics(), *others):
            found[alarm.projection, alarm.kind] = alarm
        for key, alarm in found.items():
            if key not in self._current:
                log.warning(
                    _SENTENCES[alarm.kind],
                    projection=alarm.projection,
                    alarm=alarm.kind,
                    value=alarm.value,
                    bound=alarm.bound,
                )
        for name, kind in self._current.keys() - found.keys():
            log.info("alarm is over", projection=name, alarm=kind)
        self._current = found

    async def _other_versions(self) -> list[Alarm]:
        """Returns an alarm for each projection that waits for rows of its version."""
        found = [
            (name, (await self._read_models.state(name)).version, version)
            for name, version in sorted(self._versions.items())
        ]
        return [
            Alarm(projection=name, kind=_VERSION, value=live, bound=version)
            for name, live, version in found
            if live != version
        ]

    def _topics(self) -> list[Alarm]:
        """The alarms about the event topic as a whole."""
        told = [(kind, *state()) for kind, state in self._topic_states if state is not None]
        return [
            Alarm(projection=topic, kind=kind, value=1, bound=1)
            for kind, topic, holds in told
            if holds
        ]

    async def _standing_still(self) -> list[Alarm]:
        """Returns one per group that an operator paused; the last ones if the broker does not answer."""
        if self._transport is None:
            return []
        try:
            names = [f"group:{group}" for group in await self._transport.paused()]
        except Exception as error:  # noqa: BLE001 - the queue may be away; letters are looked at all the same
            log.debug("paused groups could not be asked for", error=repr(error))
            return [alarm for alarm in self._current.values() if alarm.kind == _PAUSED]
        return [Alarm(projection=name, kind=_PAUSED, value=1, bound=1) for name in names]

    async def _parked_commands(self) -> list[tuple[str, int, datetime]]:
        """Returns how many commands are parked or held, and since when the oldest; empty: none is."""
        oldest = [] if self._commands is None else await self._commands.read(limit=1)
        if not oldest or self._commands is None:
            return []
        return [(_COMMANDS, await self._commands.count(), oldest[0].parked_at)]

    async def _letters(self) -> list[tuple[str, int, datetime]]:
        """Returns for each reader how many aggregates or instances are parked, and since when."""
        async with self._read_models.snapshot() as connection:
            counts = await connection.run_sync(read_parked_counts)
        found = [each for each in counts if each[0] in self._names]
        most = self._settings.projection_letters_max
        self._full = {name: most for name, n, _ in found if ":" in name and n >= most}
        return found

    def _age_ms(self, since: datetime) -> int:
        return (self._clock.now() - since) // timedelta(milliseconds=1)

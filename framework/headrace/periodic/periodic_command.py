"""
A command for each occurrence of a time table, and which occurrences are still due.

Used by `App.periodic`, by the runner, and by tests. Pure.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from headrace._runtime.ids import derived_id
from headrace.domain.message import Command
from headrace.periodic.schedule import CronSchedule
from headrace.serialization import CommandEnvelope

__all__ = ["MISSED_MAX", "MakeCommand", "Missed", "PeriodicCommand"]

MakeCommand = Callable[[datetime], Command]
# What becomes of occurrences while nothing ran: the newest is made up for, or all are, or none.
Missed = Literal["latest", "all", "skip"]

# Occurrences that are looked back at, and made up for, at most: sixteen hours of a table with one
# in every minute, and years of one with one in every day.
MISSED_MAX: Final = 1_000
# How late an occurrence may be that does not count as missed: a restart takes no longer.
_ON_TIME: Final = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicCommand:
    """One periodic command of an application.

    Attributes:
        name: part of its commands' ids.
        schedule: when it is due.
        make: returns the command of an occurrence; it must depend on the moment alone.
        missed: what becomes of occurrences while nothing ran.
    """

    name: str
    schedule: CronSchedule
    make: MakeCommand
    missed: Missed = "latest"

    def due(self, last: datetime, now: datetime) -> list[datetime]:
        """Returns the occurrences to send a command for, in order.

        Args:
            last: the last one that is done; or a moment from which on they count.
            now: the time.
        """
        found = self.schedule.between(last, now, most=MISSED_MAX)
        if self.missed == "latest":
            return found[-1:]
        if self.missed == "skip":
            return [each for each in found if now - each <= _ON_TIME]
        return found

    def envelope(self, app_name: str, moment: datetime) -> CommandEnvelope:
        """Returns the command of an occurrence, with the same id whenever it is made.

        Raises:
            TypeError: the function returned no command.
        """
        command = self.make(moment)
        if not isinstance(command, Command):
            raise TypeError(f"periodic {self.name} returned {command!r}, which is no command")
        command_id = derived_id(app_name, "periodic", self.name, moment.isoformat())
        return CommandEnvelope(command=command, command_id=command_id, correlation_id=command_id)

"""
Waits until projections, event handlers or process managers have handled the events of a command.

Each is compared with the command's own events, so callers do not wait for each other: a projection by
the version of the aggregate that it has folded, event handlers by the version that they have handled, a
process manager by its consumer group's offset in the queue of the events.

Made by `App` for the command bus, for `execute(wait_for=...)`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any, Final

from headrace.bus import HANDLED, CommandResult
from headrace.errors import DefinitionError, EventHandlerError, ProcessError
from headrace.handlers.progress import HandlerProgress
from headrace.processes.overview import Processes
from headrace.processes.progress import ProcessProgress
from headrace.projections.definition.projection import Projection
from headrace.projections.tables.read_models import ReadModels
from headrace.transports.base import Transport

__all__ = ["Handling"]

# First and longest pause between two checks of a group's offsets: in this process they move at once,
# at the broker every second.
_LOOK_MS_MIN: Final = 5
_LOOK_MS_MAX: Final = 160
# How long the last check may take if it runs when the timeout comes.
_DATABASE_SECONDS_MAX: Final = 1


class Handling:
    """Knows how far the parts of one application have handled its events.

    Args:
        name: the application's name.
        projections: its projections by name.
        managers: the names of its process managers.
        processors: the names of its event handlers.
        read_models: where the projections' tables are.
        transport: knows the groups' offsets.
    """

    def __init__(
        self,
        *,
        name: str,
        projections: Mapping[str, Projection[Any]],
        managers: Collection[str],
        processors: Collection[str],
        read_models: ReadModels,
        transport: Transport,
    ) -> None:
        self._name = name
        self._projections = projections
        self._managers = managers
        self._processors = processors
        self._read_models = read_models
        self._transport = transport

    def check(self, names: Collection[str]) -> None:
        """Raises DefinitionError unless each is `HANDLED` or a projection of the application."""
        for name in names:
            if name != HANDLED and name not in self._projections:
                known = ", ".join(sorted(self._projections)) or "none"
                raise DefinitionError(
                    f"wait_for: {self._name} has no projection {name!r}; it has: {known}"
                )

    async def wait(self, result: CommandResult, names: Collection[str], *, timeout_ms: int) -> None:
        """Returns when projections have folded, and the others handled, what a command did.

        Args:
            result: of the command.
            names: of projections; `HANDLED` stands for all of them, and for all process managers
                and event handlers.
            timeout_ms: how long to wait at most.

        Raises:
            ProjectionError: a projection has not in time, or has parked the aggregate.
            EventHandlerError: event handlers have not in time, or have parked the aggregate.
            ProcessError: a process manager has not in time, or has parked the instance.
            TimeoutError: the database or the broker has not answered.
        """
        everything = HANDLED in names
        aggregate_id, version = result.aggregate_id, result.version
        async with asyncio.timeout(timeout_ms / 1_000 + _DATABASE_SECONDS_MAX):
            async with asyncio.TaskGroup() as waits:
                if version is not None:
                    for name in self._projections if everything else names:
                        waits.create_task(
                            self._read_models.wait_for_version(
                                self._projections[name],
                                aggregate_id,
                                version,
                                timeout_ms=timeout_ms,
                            )
                        )
                    for name in self._processors if everything else ():
                        waits.create_task(self._handled(name, aggregate_id, version, timeout_ms))
                if everything and result.place is not None:
                    for name in self._managers:
                        waits.create_task(self._reacted(name, result, timeout_ms))

    async def _handled(
        self, processor: str, aggregate_id: str, version: int, timeout_ms: int
    ) -> None:
        read = partial(HandlerProgress(processor).read, aggregate_ids=[aggregate_id])

        async def reached() -> bool:
            async with self._read_models.snapshot() as connection:
                versions, parked = await connection.run_sync(read)
            if versions.get(aggregate_id, 0) >= version:
                return True
            if parked:
                raise EventHandlerError(
                    f"the event handlers {processor} have parked {aggregate_id}; `headrace parked"
                    f" show --processor handlers:{processor}` tells why"
                )
            return False

        if not await _in_time(reached, timeout_ms):
            raise EventHandlerError(
                f"the event handlers {processor} have not handled version {version} of"
                f" {aggregate_id} within {timeout_ms} ms"
            )

    async def _reacted(self, manager: str, result: CommandResult, timeout_ms: int) -> None:
        """Waits for a process manager's group to be past a place, and for what it did there."""
        assert result.place is not None, "asked only for results with a place"
        number, offset = result.place
        group, topic = f"{self._name}.process.{manager}", f"{self._name}.events"

        async def passed() -> bool:
            return (await self._transport.committed(group, topic)).get(number, 0) > offset

        if not await _in_time(passed, timeout_ms):
            raise ProcessError(
                f"the process manager {manager} has not reacted to command {result.command_id}"
                f" within {timeout_ms} ms"
            )
        parked = await Processes(self._read_models).parked_behind(
            manager, result.aggregate_id, result.command_id
        )
        if parked is not None:
            raise ProcessError(
                f"the process {manager} has parked its instance {parked!r}, and what command"
                f" {result.command_id} did waits behind it; `headrace parked show"
                f" --processor instances:{manager} --aggregate {parked}` tells why"
            )
        # What waits behind a letter of the aggregate is acknowledged, too.
        read = partial(ProcessProgress(manager).parked.find, aggregate_id=result.aggregate_id)
        async with self._read_models.snapshot() as connection:
            letter = await connection.run_sync(read)
        if letter is not None and (result.version is None or letter.version < result.version):
            raise ProcessError(
                f"the process manager {manager} has parked {result.aggregate_id}; `headrace parked"
                f" show --processor process:{manager}` tells why"
            )


async def _in_time(reached: Callable[[], Awaitable[bool]], timeout_ms: int) -> bool:
    """Looks until it is so; returns False when the time is over."""
    clock = asyncio.get_running_loop().time
    end = clock() + timeout_ms / 1_000
    pause_ms = _LOOK_MS_MIN
    while not await reached():
        if clock() >= end:
            return False
        await asyncio.sleep(pause_ms / 1_000)
        pause_ms = min(2 * pause_ms, _LOOK_MS_MAX)
    return True

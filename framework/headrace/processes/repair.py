"""
What one process manager has parked, instances and aggregates, taken up again by the key of either.

Sits between: the command line, which is given a key, and the letters and instances that may have it.
"""

from contextlib import suppress
from typing import Any

from headrace.errors import InstanceNotFound, LetterNotFound
from headrace.handlers.progress_letters import StandingLetters
from headrace.processes.letters import ProcessLetters, ProcessManagerLetters
from headrace.processes.outbox import EnvelopeSender
from headrace.processes.process import Process
from headrace.processes.process_manager import ProcessManager
from headrace.processes.stuck import StuckInstances
from headrace.projections.letters import Letter
from headrace.projections.tables.read_models import ReadModels
from headrace.serialization import Serializer
from headrace.stores.base import EventStore

__all__ = ["Repair"]


class Repair:
    """Takes up what a process manager of either kind has parked.

    Args:
        manager: whose.
        bus: takes the commands of a `ProcessManager`; a `Process` needs none.
        read_models: the database with what is parked.
        store: has the events.
        serializer: keeps commands.
    """

    def __init__(
        self,
        manager: ProcessManager | Process[Any],
        bus: EnvelopeSender | None,
        read_models: ReadModels,
        store: EventStore,
        serializer: Serializer,
    ) -> None:
        self._name = manager.name
        self._instances: StuckInstances | None = None
        self._letters: StandingLetters
        if isinstance(manager, Process):
            self._instances = StuckInstances(manager, read_models, store, serializer)
            self._letters = ProcessLetters(manager, read_models, store, serializer)
        else:
            assert bus is not None, "a process manager without a state sends by itself"
            self._letters = ProcessManagerLetters(manager, bus, read_models, store, serializer)

    async def retry(self, key: str) -> str | None:
        """Handles what waits; returns None, or why something is still parked.

        Raises:
            InstanceNotFound: neither an instance nor an aggregate of that key is parked.
            ProcessError, sqlalchemy.exc.SQLAlchemyError, OSError: as `StuckInstances.retry`.
            CommandRefused, CommandTimeout: the queue is away.
        """
        found, sentence = False, None
        if self._instances is not None:
            with suppress(InstanceNotFound):
                sentence, found = await self._instances.retry(key), True
        try:
            return _why(await self._letters.retry(key)) or sentence
        except LetterNotFound:
            if not found:
                raise self._not_parked(key) from None
            return sentence

    async def skip(self, key: str) -> str | None:
        """Like `retry` of the instance, or else of the aggregate, without the event that fails."""
        if self._instances is not None:
            with suppress(InstanceNotFound):
                return await self._instances.skip(key)
        try:
            return _why(await self._letters.skip(key))
        except LetterNotFound:
            raise self._not_parked(key) from None

    def _not_parked(self, key: str) -> InstanceNotFound:
        return InstanceNotFound(
            f"{self._name} has parked neither an instance nor an aggregate {key!r}; `headrace process"
            " list --stuck` and `headrace process parked` list what it has"
        )


def _why(letter: Letter | None) -> str | None:
    return None if letter is None else letter.error

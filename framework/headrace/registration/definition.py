"""
What an application consists of, as values: for pages and documents about it.

Made by `App.definition`; used by the catalogue. Pure.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.domain.aggregate import Aggregate
from headrace.domain.message import ApplicationMessage, Command, DomainEvent
from headrace.handlers.event_handlers import EventHandlers
from headrace.periodic.periodic_command import PeriodicCommand
from headrace.processes.process import Process
from headrace.processes.process_manager import ProcessManager
from headrace.projections.definition.projection import Projection

__all__ = ["Definition"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """The parts of an application.

    Attributes:
        name: of the application.
        commands: their types, each with the name of what handles it.
        events: their types, each with the names of the aggregates that have them.
        aggregates: their classes by name.
        messages: the application messages, each with its handlers.
        projections: its projections.
        processors: its event handlers.
        managers: its process managers, with a state and without.
        periodic: its periodic commands.
    """

    name: str
    commands: Mapping[type[Command], str]
    events: Mapping[type[DomainEvent], Sequence[str]]
    aggregates: Mapping[str, type[Aggregate]]
    messages: Mapping[type[ApplicationMessage], Sequence[Callable[..., Any]]]
    projections: Sequence[Projection[Any]]
    processors: Sequence[EventHandlers]
    managers: Sequence[ProcessManager | Process[Any]]
    periodic: Sequence[PeriodicCommand]

    def readers_of(self, event_type: type[DomainEvent]) -> list[str]:
        """Returns what reads events of a type: its kind and its name."""
        readers = [
            *(("projection", each.name, each.event_types) for each in self.projections),
            *(("event handlers", each.name, each.event_types) for each in self.processors),
            *(("process manager", each.name, each.event_types) for each in self.managers),
        ]
        return [
            f"{kind} {name}"
            for kind, name, types in readers
            if issubclass(event_type, tuple(types))
        ]

"""
The registries of an application: its parts by their names, and what it can decode.

Used by the composition root, which knows every part and every message class; the serializer gets the
registries of messages. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from headrace.domain.message import ApplicationMessage, Command, DomainEvent
from headrace.domain.registry import Registry, Upcaster
from headrace.errors import DefinitionError, HeadraceError

__all__ = ["MessageType", "bind_named", "find_named", "registries"]

P = TypeVar("P")

MessageType = type[Command] | type[DomainEvent] | type[ApplicationMessage]


def find_named(table: Mapping[str, P], name: str, missing: str, error: type[HeadraceError]) -> P:
    """Returns the part of a name; raises `error`, which begins with `missing`, if there is none."""
    if name not in table:
        known = ", ".join(sorted(table)) or "none"
        raise error(f"{missing} {name!r}; it has: {known}")
    return table[name]


def bind_named(table: dict[str, Any], name: str, part: Any, kind: str) -> None:
    """Gives a part its name. Raises DefinitionError: another one has it."""
    if table.setdefault(name, part) is not part:
        raise DefinitionError(f"two {kind} are named {name!r}; give one of them another name")


def registries(
    app_name: str,
    *,
    commands: Iterable[type[Command]],
    events: Iterable[type[DomainEvent]],
    messages: Iterable[type[ApplicationMessage]],
    upcasters: Iterable[tuple[MessageType, int, Upcaster]],
) -> tuple[Registry[Command], Registry[DomainEvent], Registry[ApplicationMessage]]:
    """Returns the registries of commands, events and application messages.

    Args:
        app_name: for sentences.
        commands: those that are handled.
        events: those that are applied.
        messages: application messages.
        upcasters: of old versions of any of them.

    Raises:
        DefinitionError: two classes have one name, or a stored version could not be read.
    """
    of_commands: Registry[Command] = Registry("command")
    of_events: Registry[DomainEvent] = Registry("event")
    of_messages: Registry[ApplicationMessage] = Registry("application message")
    for command_type in commands:
        of_commands.add(command_type)
    for event_type in events:
        of_events.add(event_type)
    for told in messages:
        of_messages.add(told)
    for message_type, version, function in upcasters:
        registry = (
            of_commands
            if issubclass(message_type, Command)
            else of_messages
            if issubclass(message_type, ApplicationMessage)
            else of_events
        )
        if message_type not in registry.classes:
            raise DefinitionError(
                f"the upcaster of {message_type.__name__} version {version} leads nowhere:"
                f" nothing of {app_name} handles or applies {message_type.__name__}"
            )
        registry.upcast(message_type.message_name, version, function)
    # Events are kept for ever, commands only until they are handled.
    of_events.check(every_version=True)
    of_commands.check(every_version=False)
    return of_commands, of_events, of_messages

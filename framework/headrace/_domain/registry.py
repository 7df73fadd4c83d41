"""
Stable type names to classes and back; no import path is ever stored.

Sits between: message classes and `serialization`. Pure.
"""

from typing import Generic, TypeVar

from headrace._domain.message import Command, DomainEvent
from headrace.errors import DefinitionError, UnknownMessageType

__all__ = ["Registry"]

M = TypeVar("M", Command, DomainEvent)


class Registry(Generic[M]):
    """The message types of one kind that an application knows.

    Args:
        kind: the word for messages such as "command", used in sentences.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._types: dict[tuple[str, int], type[M]] = {}

    def add(self, message_type: type[M]) -> None:
        """Registers a type; the same type again changes nothing.

        Raises:
            DefinitionError: another class has this name and version.
        """
        key = (message_type.message_name, message_type.message_version)
        other = self._types.setdefault(key, message_type)
        if other is not message_type:
            raise DefinitionError(
                f"two {self._kind} classes are named {key[0]!r} version {key[1]}:"
                f" {other.__qualname__} and {message_type.__qualname__};"
                " give one of them another name=… or version=…"
            )

    def find(self, name: str, version: int) -> type[M]:
        """Returns the class of a stored name and version.

        Raises:
            UnknownMessageType: the application does not know it.
        """
        try:
            return self._types[name, version]
        except KeyError:
            raise UnknownMessageType(
                f"{self._kind} {name!r} version {version} is not registered with this application;"
                " register its class, or deploy the code that has it"
            ) from None

    def __iter__(self):  # type: ignore[no-untyped-def]  # Iterator[type[M]] confuses constrained variables
        return iter(self._types.values())

    def __len__(self) -> int:
        return len(self._types)

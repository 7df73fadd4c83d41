"""
Stable type names to classes and back, and old versions to newer ones; no import path is ever stored.

Used by `registries` and `serialization`; holds message classes. Pure.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from headrace.domain.message import ApplicationMessage, Command, DomainEvent
from headrace.errors import DefinitionError, SerializationError, UnknownMessageType
from headrace.subjects.cipher import FieldCipher
from headrace.subjects.personal import check_personal

__all__ = ["Registry", "Upcaster"]

M = TypeVar("M", Command, DomainEvent, ApplicationMessage)

# Takes the fields of one version as JSON values, its own to change, and returns those of the next.
Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


class Registry(Generic[M]):
    """The message types of one kind that an application knows.

    Args:
        kind: the word for messages such as "command", used in sentences.

    Attributes:
        classes: the registered classes; their subclasses are not.
        cipher: opens personal fields before anything else reads them; None: there are none.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._types: dict[tuple[str, int], type[M]] = {}
        self.classes: set[type] = set()
        self._upcasters: dict[tuple[str, int], Upcaster] = {}
        self.cipher: FieldCipher | None = None

    def add(self, message_type: type[M]) -> None:
        """Registers a type; the same type again changes nothing.

        Raises:
            DefinitionError: another class has this name and version, or what it holds could never
                be read again.
        """
        message_type.complete_form()
        check_personal(message_type, message_type.message_personal)
        key = (message_type.message_name, message_type.message_version)
        other = self._types.setdefault(key, message_type)
        if other is not message_type:
            raise DefinitionError(
                f"two {self._kind} classes are named {key[0]!r} version {key[1]}:"
                f" {other.__qualname__} and {message_type.__qualname__};"
                " give one of them another name=… or version=…"
            )
        self.classes.add(message_type)

    def upcast(self, name: str, version: int, function: Upcaster) -> None:
        """Registers how the fields of a version become those of the next one.

        Raises:
            DefinitionError: the version is below 1, or has an upcaster already.
        """
        if version < 1:
            raise DefinitionError(f"upcaster of {name}: versions begin with 1, not {version}")
        if self._upcasters.setdefault((name, version), function) is not function:
            raise DefinitionError(f"{self._kind} {name!r} version {version} has two upcasters")

    def check(self, *, every_version: bool) -> None:
        """Finds versions that could not be read.

        Args:
            every_version: whether all versions from 1 to the newest may be met; otherwise only
                those that have an upcaster.

        Raises:
            DefinitionError: a version leads to no class, or has a class and an upcaster.
        """
        for name, version in self._upcasters:
            if (name, version) in self._types:
                raise DefinitionError(
                    f"{self._kind} {name!r} version {version} has a class and an upcaster;"
                    " remove one of them"
                )
        met = set(self._upcasters)
        if every_version:
            met |= {(name, each) for name, newest in self._types for each in range(1, newest + 1)}
        for name, version in sorted(met):
            self._end_of_chain(name, version)

    @property
    def types(self) -> Mapping[tuple[str, int], type[M]]:
        """The registered types by name and version."""
        return MappingProxyType(self._types)

    def can_read(self, name: str, version: int) -> bool:
        """Whether a stored version has a class, or an upcaster that leads on."""
        return (name, version) in self._types or (name, version) in self._upcasters

    def find(self, name: str, version: int) -> type[M]:
        """Returns the class of a stored name and version.

        Raises:
            UnknownMessageType: the application does not know it.
        """
        try:
            return self._types[name, version]
        except KeyError:
            raise UnknownMessageType(self._unknown(name, version)) from None

    def resolve(
        self, name: str, version: int, data: dict[str, Any]
    ) -> tuple[type[M], dict[str, Any]]:
        """Returns the class that a stored message is read as, and its fields in that version.

        Args:
            name: as stored.
            version: as stored.
            data: the fields as stored; not to be used any more.

        Raises:
            UnknownMessageType: the application knows neither this version nor a way from it.
            SerializationError: an upcaster failed, or a personal field is not what was stored or has no
                key that can be read.
            SubjectKeysAway: the keys of personal fields cannot be read just now.
        """
        if self.cipher is not None:
            data = self.cipher.unseal(name, data)
        found = self._types.get((name, version))
        while found is None:
            upcaster = self._upcasters.get((name, version))
            if upcaster is None:
                raise UnknownMessageType(self._unknown(name, version))
            data = self._upcasted(name, version, upcaster, data)
            version += 1
            found = self._types.get((name, version))
        return found, data

    @property
    def personal(self) -> bool:
        """Whether a class has personal fields."""
        return any(each.message_personal for each in self._types.values())

    def can_upcast(self, name: str, version: int) -> bool:
        """Whether a version has an upcaster."""
        return (name, version) in self._upcasters

    def _upcasted(
        self, name: str, version: int, upcaster: Upcaster, data: dict[str, Any]
    ) -> dict[str, Any]:
        try:
            newer = upcaster(data)
        except Exception as error:
            raise SerializationError(
                f"the upcaster of {self._kind} {name!r} version {version} failed: {error!r}"
            ) from error
        if not isinstance(newer, dict):
            raise SerializationError(
                f"the upcaster of {self._kind} {name!r} version {version} returned"
                f" {type(newer).__name__}; return the fields of version {version + 1}"
            )
        return newer

    def _end_of_chain(self, name: str, version: int) -> None:
        reached = version
        while (name, reached) not in self._types:
            if (name, reached) not in self._upcasters:
                raise DefinitionError(
                    f"{self._kind} {name!r} version {version} cannot be read: there is no way from"
                    f" version {reached} to {reached + 1}; register one with @app.upcasts, or keep"
                    " the old class as well as the new one"
                )
            reached += 1

    def _unknown(self, name: str, version: int) -> str:
        newest = max((known for one, known in self._types if one == name), default=None)
        if newest is not None and version > newest:
            return (
                f"{self._kind} {name!r} version {version} is newer than version {newest}, the"
                " newest that this application knows; deploy the code that has it"
            )
        return (
            f"{self._kind} {name!r} version {version} is not registered with this application;"
            " register its class, or deploy the code that has it"
        )

    def __iter__(self):  # type: ignore[no-untyped-def]  # Iterator[type[M]] confuses constrained variables
        return iter(self._types.values())

    def __len__(self) -> int:
        return len(self._types)

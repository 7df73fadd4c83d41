"""
The commands of an application by the name and version under which clients call them.

Used by the gateway, its commands and its OpenAPI document; reads `App.command_types`. Pure.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final

from headrace.domain.message import Command
from headrace.gateway.problems import Problem, invalid

__all__ = ["Catalogue"]

# Enough to find a slip of the keyboard.
_CLOSE_MAX: Final = 3
# Looking for close matches takes time by length, and no registered name is longer.
_NAME_CHARACTERS_MAX: Final = 127


class Catalogue:
    """The command types that clients may send: those that have a handler and are not `internal`.

    Args:
        types: of the application.
    """

    def __init__(self, types: Iterable[type[Command]]) -> None:
        found: dict[str, dict[int, type[Command]]] = {}
        for one in sorted(types, key=lambda each: (each.message_name, each.message_version)):
            if not one.message_internal:
                found.setdefault(one.message_name, {})[one.message_version] = one
        self._found = found

    @property
    def names(self) -> Mapping[str, Mapping[int, type[Command]]]:
        """Per name its versions, lowest first."""
        return MappingProxyType(self._found)

    def find(self, name: str, version: int | None) -> type[Command]:
        """Returns the type of a name in a version; None: in its highest one.

        Raises:
            Problem: 404 for an unknown name, with close ones; 422 for an unknown version.
        """
        versions = self._found.get(name)
        if versions is None:
            close = (
                get_close_matches(name, self._found, _CLOSE_MAX, cutoff=0.5)
                if len(name) <= _NAME_CHARACTERS_MAX
                else []
            )
            hint = f"; did you mean {' or '.join(close)}?" if close else "; see /openapi.json"
            raise Problem(
                404,
                "unknown-command",
                "Unknown command",
                f"there is no command {name[:_NAME_CHARACTERS_MAX]!r}{hint}",
                close_matches=close,
            )
        if version is None:
            return versions[max(versions)]
        if version not in versions:
            known = ", ".join(map(str, versions))
            sentence = f"{name} has no version {version}; it has: {known}"
            raise invalid(sentence, [{"field": "version", "sentence": sentence}])
        return versions[version]

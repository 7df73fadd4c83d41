"""
Parts by their names: each name once, and one that there is not is told with those there are.

Sits between: the composition root, and what an application's author and the command line name. Pure.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from headrace.errors import DefinitionError, HeadraceError

__all__ = ["bind_named", "find_named"]

P = TypeVar("P")


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

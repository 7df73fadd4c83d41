"""
Which names get series of their own, where there may be too many: the first ones, and the others share one. PURE.

A name stays where it was put for as long as the process lives. Otherwise the sum of the others would go down
now and then, and Prometheus would take that for a restart.

Used by the metrics of topics and of handlers.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

__all__ = ["OTHER", "Names"]

# What the series of all others is called; no topic of a user is likely to have this name.
OTHER: Final = "other"


class Names:
    """The names with series of their own.

    Args:
        names_max: at most so many.
    """

    def __init__(self, names_max: int) -> None:
        self._names_max = names_max
        self._own: dict[str, None] = {}

    def add(self, names: Iterable[str]) -> None:
        """Gives names that are new series of their own, as long as there is room."""
        for name in names:
            if len(self._own) >= self._names_max:
                return
            self._own[name] = None

    def __contains__(self, name: str) -> bool:
        return name in self._own

    def __iter__(self) -> Iterator[str]:
        return iter(self._own)

    def others(self, total: int, own: Mapping[str, int]) -> int:
        """Returns what is left of a total for the names that share a series.

        Args:
            total: over all names.
            own: by name; the names without series of their own do not count.
        """
        return total - sum(own.get(name, 0) for name in self._own)

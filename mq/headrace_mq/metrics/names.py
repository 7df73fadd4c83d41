"""
Which names get series of their own, where there may be too many: the first ones, and the others share one. PURE.

A name stays where it was put for as long as it is there. Otherwise the sum of the others would go down now and then, and
Prometheus would take that for a restart. A name that is gone gives its place back, and only a name that is new may take it.

Used by the metrics of topics.
"""

from collections.abc import Iterator, Mapping, Sequence
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
        # A dict as an ordered set.
        self._own: dict[str, None] = {}
        self._shared: set[str] = set()

    def keep(self, names: Sequence[str]) -> None:
        """Takes over the names that there are now: those that are gone are forgotten, new ones get series while there is room.

        Args:
            names: all of them; the first ones come first.
        """
        present = set(names)
        self._own = {name: None for name in self._own if name in present}
        self._shared &= present
        for name in names:
            if name in self._own or name in self._shared:
                continue
            if len(self._own) < self._names_max:
                self._own[name] = None
            else:
                self._shared.add(name)

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

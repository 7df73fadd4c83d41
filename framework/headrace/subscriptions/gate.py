"""
The version gate: each version of an aggregate goes through once and in order, whatever comes.

    offered version       answer         the gate then
    the next one          NEXT           stands at it
    at or below the last  DUPLICATE      stays
    beyond the next one   Gap(…)         stays; offer the missing ones first, then it again

Sits between: the messages of the event topic, which may repeat, and the folds. Pure; must never
know where versions are kept or where missing streams come from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

__all__ = ["Arrival", "Gap", "VersionGate"]

T = TypeVar("T")


class Arrival(Enum):
    """How a version arrives, in its aggregate's order; a `Gap` is the third way."""

    NEXT = "next"
    DUPLICATE = "duplicate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """The versions after `after_version` up to and including `to_version` are missing."""

    after_version: int
    to_version: int


class VersionGate:
    """Stands at the last version of each aggregate.

    Args:
        versions: the last version of each aggregate known so far; one that is left out stands at 0
            and so begins with version 1.
    """

    def __init__(self, versions: Mapping[str, int]) -> None:
        self._versions = dict(versions)
        self._moved: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._versions)

    @property
    def moved(self) -> dict[str, int]:
        """The new last versions of the aggregates that let something pass."""
        return dict(self._moved)

    def learn(self, versions: Mapping[str, int]) -> None:
        """Takes in the last versions of more aggregates."""
        self._versions.update(versions)

    def take_moved(self) -> dict[str, int]:
        """Returns `moved`, and begins to collect anew."""
        moved, self._moved = self._moved, {}
        return moved

    def admit(
        self,
        offers: Sequence[tuple[str, int, Sequence[T]]],
        passed: list[T],
        start: int = 0,
        repeats: list[int] | None = None,
    ) -> tuple[int, Gap | None]:
        """Offers many at once, and gathers what comes with those that pass.

        Args:
            offers: aggregate, version, and what comes with it.
            passed: what came with those that passed is appended here.
            start: the place of the first offer.
            repeats: the places of duplicates are appended here.

        Returns:
            How many offers were looked at, and the gap before the next one; None: that was all.

        Raises:
            ValueError: a version is below 1.
        """
        versions, moved = self._versions, self._moved
        for place in range(start, len(offers)):
            aggregate_id, version, comes = offers[place]
            last = versions.get(aggregate_id, 0)
            if version == last + 1:
                versions[aggregate_id] = moved[aggregate_id] = version
                passed += comes
            elif isinstance(arrival := self.offer(aggregate_id, version), Gap):
                return place, arrival
            elif repeats is not None:
                repeats.append(place)
        return len(offers), None

    def offer(self, aggregate_id: str, version: int) -> Arrival | Gap:
        """Answers whether a version is the next one of its aggregate, and moves on if it is.

        Raises:
            ValueError: the version is below 1.
        """
        if version < 1:
            raise ValueError(f"versions begin at 1, not {version}")
        last = self._versions.get(aggregate_id, 0)
        if version <= last:
            return Arrival.DUPLICATE
        if version > last + 1:
            return Gap(after_version=last, to_version=version - 1)
        self._versions[aggregate_id] = version
        self._moved[aggregate_id] = version
        return Arrival.NEXT

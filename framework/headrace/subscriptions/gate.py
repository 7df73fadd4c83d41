"""
The version gate: lets each version of an aggregate through once and in order.

    offered version       answer         the gate's last version
    the next one          NEXT           is this one now
    at or below the last  DUPLICATE      does not change
    beyond the next one   Gap(…)         does not change; offer the missing ones, then this one again

Used by every reader of the event topic, because messages may repeat. Pure: it does not know where
versions are stored, nor where missing streams come from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

__all__ = ["Arrival", "Gap", "VersionGate"]

T = TypeVar("T")


class Arrival(Enum):
    """How an offered version fits the last one; the third answer is a `Gap`."""

    NEXT = "next"
    DUPLICATE = "duplicate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """The versions after `after_version` up to and including `to_version` are missing."""

    after_version: int
    to_version: int


class VersionGate:
    """Knows the last version of each aggregate.

    Args:
        versions: the last version of each aggregate known so far; an aggregate that is not here is at 0,
            so its first version is 1.
    """

    def __init__(self, versions: Mapping[str, int]) -> None:
        self._versions = dict(versions)
        self._moved: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._versions)

    @property
    def moved(self) -> dict[str, int]:
        """The last versions of the aggregates that have moved."""
        return dict(self._moved)

    def learn(self, versions: Mapping[str, int]) -> None:
        """Adds the last versions of more aggregates."""
        self._versions.update(versions)

    def take_moved(self) -> dict[str, int]:
        """Returns `moved` and empties it."""
        moved, self._moved = self._moved, {}
        return moved

    def admit(
        self,
        offers: Sequence[tuple[str, int, Sequence[T]]],
        passed: list[T],
        start: int = 0,
        repeats: list[int] | None = None,
    ) -> tuple[int, Gap | None]:
        """Offers many versions at once, and collects the items of those that pass.

        Args:
            offers: aggregate, version, and the items that belong to the version.
            passed: the items of versions that pass are appended here.
            start: the place of the first offer.
            repeats: the places of duplicates are appended here.

        Returns:
            How many offers were processed, and the gap before the next one; None: there is no gap.

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
        """Says how a version fits, and moves its aggregate to it if it is the next one.

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

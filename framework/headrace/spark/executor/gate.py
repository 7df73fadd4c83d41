"""
Streams of a topic through the version gate: each version once and in order, early ones held back.

Used on executors. Takes a queue's streams as they stand in the topic, where one may stand twice or
before an earlier one, and hands them to the folds in order. Pure: where missing streams come from
is a function that is passed in.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from operator import ne
from typing import Final, NamedTuple

from headrace.domain.stream import EventStream
from headrace.subscriptions.gate import Arrival, Gap, VersionGate

__all__ = ["HELD_STREAMS_MAX", "FindStreams", "MissingVersions", "StreamGate"]

# Streams held back over all aggregates before missing ones are looked for: a topic that is in order
# holds back none, and this many take about 100 MB.
HELD_STREAMS_MAX: Final = 20_000


class MissingVersions(NamedTuple):
    """Versions of an aggregate that the topic lacks, in its order; perhaps nothing has them."""

    aggregate_id: str
    after_version: int
    to_version: int

    def __str__(self) -> str:
        return f"{self.aggregate_id} versions {self.after_version + 1} to {self.to_version}"


# Given what is missing, of all aggregates at once, returns the streams that it has of it: those of an
# aggregate in version order.
FindStreams = Callable[[Sequence[MissingVersions]], Sequence[EventStream]]


class StreamGate:
    """Lets streams pass in version order.

    Args:
        versions: the last version of each aggregate that is folded already.
        find: where to look for missing streams; None: nowhere.
        held_max: streams held back before missing ones are looked for.

    Attributes:
        events: events in the streams that passed.
        duplicates: streams that had passed before.
        gaps: places where a version stood before an earlier one.
        filled: streams that `find` had to bring.
        missing: what was nowhere to be found.
    """

    def __init__(
        self,
        versions: Mapping[str, int],
        *,
        find: FindStreams | None = None,
        held_max: int = HELD_STREAMS_MAX,
    ) -> None:
        self._gate = VersionGate(versions)
        self._find = find
        self._held_max = held_max
        self._held: dict[str, dict[int, EventStream]] = {}
        self._held_count = 0
        self.events = 0
        self.duplicates = 0
        self.gaps = 0
        self.filled = 0
        self.missing: list[MissingVersions] = []

    @property
    def versions(self) -> dict[str, int]:
        """The new last version of each aggregate that had a stream pass."""
        return self._gate.moved

    @property
    def holds_back(self) -> int:
        """How many streams wait for earlier ones."""
        return self._held_count

    @property
    def held(self) -> frozenset[str]:
        """The aggregates of which streams wait for earlier ones."""
        return frozenset(self._held)

    def learn(self, versions: Mapping[str, int]) -> None:
        """Takes in the last versions of aggregates whose streams did not come through here."""
        self._gate.learn(versions)

    def admit(self, streams: Iterable[EventStream]) -> list[EventStream]:
        """Returns what may be folded now, in order; rejections are left out."""
        passed: list[EventStream] = []
        for stream in streams:
            if stream.version is None:
                continue
            arrival = self._gate.offer(stream.aggregate_id, stream.version)
            if arrival is Arrival.NEXT:
                self._pass(stream, passed)
            elif arrival is Arrival.DUPLICATE:
                self.duplicates += 1
            else:
                self._hold(stream)
        if self._held_count > self._held_max:
            passed += self.finish()
        return passed

    def lacking(self) -> list[MissingVersions]:
        """Returns what is missing before streams that are held back, of an aggregate in order."""
        return [hole for aggregate_id in self._held for hole in self._holes(aggregate_id)]

    def finish(self, late: Sequence[EventStream] | None = None) -> list[EventStream]:
        """Returns what was held back, after looking for what is missing before it, all at once.

        Args:
            late: what was found of `lacking`, by a caller that looked itself.
        """
        passed: list[EventStream] = []
        if late is None:
            wanted = self.lacking() if self._find else []
            late = self._find(wanted) if wanted and self._find else ()
        found: dict[str, list[EventStream]] = {}
        for stream in late:
            found.setdefault(stream.aggregate_id, []).append(stream)
        for aggregate_id in list(self._held):
            own = iter(found.get(aggregate_id, ()))
            if not all(self._fill(hole, own, passed) for hole in self._holes(aggregate_id)):
                self._held_count -= len(self._held.pop(aggregate_id))
        return passed

    def _holes(self, aggregate_id: str) -> list[MissingVersions]:
        """Returns what is missing before and between the versions held back of an aggregate."""
        versions = sorted(self._held[aggregate_id])
        gap = self._gate.offer(aggregate_id, versions[0])
        assert isinstance(gap, Gap), "what is next is not held back"
        befores = [gap.after_version, *versions]
        return [
            MissingVersions(aggregate_id=aggregate_id, after_version=before, to_version=version - 1)
            for before, version in zip(befores, versions, strict=False)
            if version > before + 1
        ]

    def _pass(self, stream: EventStream, passed: list[EventStream]) -> None:
        passed.append(stream)
        self.events += len(stream.events)
        if stream.aggregate_id in self._held:
            self._release(stream.aggregate_id, stream.version or 0, passed)

    def _release(self, aggregate_id: str, version: int, passed: list[EventStream]) -> None:
        held = self._held[aggregate_id]
        while (following := held.pop(version + 1, None)) is not None:
            version += 1
            self._held_count -= 1
            self._gate.offer(aggregate_id, version)
            passed.append(following)
            self.events += len(following.events)
        if not held:
            del self._held[aggregate_id]

    def _hold(self, stream: EventStream) -> None:
        held = self._held.setdefault(stream.aggregate_id, {})
        self.gaps += not held
        version = stream.version or 0
        if version in held:
            self.duplicates += 1
        else:
            held[version] = stream
            self._held_count += 1

    def _fill(
        self, hole: MissingVersions, late: Iterator[EventStream], passed: list[EventStream]
    ) -> bool:
        """Closes the next hole of an aggregate; False if what is missing was not found."""
        _, after, to = hole
        found = list(islice(late, to - after))
        versions = (stream.version for stream in found)
        if len(found) < to - after or any(map(ne, versions, count(after + 1))):
            self.missing.append(hole)
            return False
        for stream in found:
            self._gate.offer(hole.aggregate_id, stream.version or 0)
            self._pass(stream, passed)
        self.filled += len(found)
        return True

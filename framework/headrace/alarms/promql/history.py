"""
Figures of the last hours: the values of each series, as far back as an expression looks.

    add(now, "headrace-broker", "a:9464", [("headrace_broker_leads", {"group": "g1"}, 1.0), …])

Used by the watcher, which adds what brokers and services answer, and by `evaluate`, which reads. The only owner of them.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

__all__ = ["STALE_S", "Figure", "FigureHistory", "Labels"]

# Label and value, sorted: what tells a series from others of its name.
Labels: TypeAlias = tuple[tuple[str, str], ...]
Points: TypeAlias = "deque[tuple[float, float | None]]"
# A value counts for so long where no newer one came: as with Prometheus.
STALE_S: Final = 300.0


class Figure(NamedTuple):
    """A value of one series."""

    name: str
    labels: Mapping[str, str]
    value: float


class FigureHistory:
    """The values of some metrics.

    Args:
        reach_s: how far back each metric is needed, by its name; others are not kept.
        series_max: at most so many series; more of them are not kept, and `left_out` counts them.

    Attributes:
        left_out: values of the last `add` for which there was no room.
    """

    def __init__(self, reach_s: Mapping[str, float], *, series_max: int) -> None:
        self._reach_s = dict(reach_s)
        self._series_max = series_max
        self._series: dict[str, dict[Labels, Points]] = {name: {} for name in reach_s}
        self._count = 0
        self.left_out = 0

    def add(self, now_s: float, job: str, instance: str, figures: Iterable[Figure]) -> None:
        """Adds what one process answered; its series that are missing in it end.

        Args:
            now_s: the time, in seconds since 1970.
            job: a label that all its series get.
            instance: another one, its address.
            figures: all of its values.
        """
        own = {"job": job, "instance": instance}
        came: set[tuple[str, Labels]] = set()
        self.left_out = 0
        for one in figures:
            kept = self._series.get(one.name)
            if kept is None:
                continue
            labels = tuple(sorted({**one.labels, **own}.items()))
            points = kept.get(labels)
            if points is None:
                if self._count >= self._series_max:
                    self.left_out += 1
                    continue
                points = kept[labels] = deque()
                self._count += 1
            points.append((now_s, one.value))
            came.add((one.name, labels))
        self._end_others(now_s, set(own.items()), came)

    def at(self, name: str, moment_s: float) -> Iterator[tuple[Labels, float]]:
        """Yields the newest value of each series of a name at a moment."""
        for labels, points in self._series.get(name, {}).items():
            for time_s, value in reversed(points):
                if time_s <= moment_s:
                    if value is not None and moment_s - time_s < STALE_S:
                        yield labels, value
                    break

    def between(
        self, name: str, start_s: float, end_s: float
    ) -> Iterator[tuple[Labels, list[tuple[float, float]]]]:
        """Yields all values of each series of a name in a time, with both of its ends."""
        for labels, points in self._series.get(name, {}).items():
            found = [
                (time_s, value)
                for time_s, value in points
                if value is not None and start_s <= time_s <= end_s
            ]
            if found:
                yield labels, found

    def _end_others(
        self, now_s: float, own: set[tuple[str, str]], came: set[tuple[str, Labels]]
    ) -> None:
        for name, kept in self._series.items():
            oldest_s = now_s - self._reach_s[name] - STALE_S
            for labels in list(kept):
                points = kept[labels]
                if (name, labels) not in came and own <= set(labels) and points[-1][1] is not None:
                    points.append((now_s, None))
                while points and points[0][0] < oldest_s:
                    points.popleft()
                if all(value is None for _, value in points):
                    del kept[labels]
                    self._count -= 1

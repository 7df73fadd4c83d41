"""
Writes samples as the text that Prometheus reads, a few at a time, so that the event loop serves others meanwhile.

Used by `listener`'s owners; uses `prometheus-client` for the text, and for what the system says of the process.
"""

import asyncio
import platform
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

from headrace_mq.errors import MessageQueueError
from headrace_mq.metrics.histogram import BOUNDS_S, Counts
from headrace_mq.metrics.table import BUILD_INFO, PROCESS_METRICS, Metric, Sample

if TYPE_CHECKING:  # an extra; loaded when the first text is written
    from prometheus_client.metrics_core import Metric as Family

__all__ = ["CONTENT_TYPE", "process_samples", "require_prometheus", "written"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# Samples taken, or written, before others have their turn: one or two milliseconds.
SAMPLES_PER_TURN_MAX = 100


class _Lone:
    """A registry of one family."""

    def __init__(self, family: "Family") -> None:
        self._family = family

    def collect(self) -> "Iterable[Family]":
        """Returns the family."""
        return (self._family,)


def require_prometheus() -> None:
    """Raises MessageQueueError where the package that writes the text is not installed."""
    try:
        import prometheus_client  # noqa: F401 - only whether it is there
    except ModuleNotFoundError as error:
        raise MessageQueueError(
            "metrics need prometheus-client: pip install 'headrace[metrics]'"
        ) from error


def process_samples() -> Iterator[Sample]:
    """Yields the versions in use, and what the system says of this process (Linux)."""
    from prometheus_client import ProcessCollector

    yield BUILD_INFO.sample(1, *_versions())
    known = {one.name: one for one in PROCESS_METRICS}
    for family in ProcessCollector(registry=None).collect():
        for found in family.samples:
            if found.name in known:
                yield known[found.name].sample(found.value)


@cache
def _versions() -> tuple[str, str, str]:
    try:
        own = version("headrace")
    except PackageNotFoundError:  # run from its sources
        own = "unknown"
    return own, sys.version.split()[0], platform.platform()


async def written(samples: Iterable[Sample | None]) -> bytes:
    """Takes samples and returns the text, sorted by metric; between some of them others have their turn.

    Args:
        samples: of any order; None says that more comes later.
    """
    families: dict[str, list[Sample]] = {}
    for number, one in enumerate(samples):
        if one is not None:
            families.setdefault(one.metric.name, []).append(one)
        if one is None or number % SAMPLES_PER_TURN_MAX == 0:
            await asyncio.sleep(0)
    parts: list[bytes] = []
    for name in sorted(families):
        found = families[name]
        metric = found[0].metric
        step = _step(metric)
        for start in range(0, len(found), step):
            parts.append(_text(metric, found[start : start + step], headed=not start))
            await asyncio.sleep(0)
    return b"".join(parts)


def _step(metric: Metric) -> int:
    """How many samples are written in one turn."""
    lines = len(BOUNDS_S) if metric.kind == "histogram" else 1
    return max(1, SAMPLES_PER_TURN_MAX // lines)


def _text(metric: Metric, samples: list[Sample], *, headed: bool) -> bytes:
    from prometheus_client.exposition import generate_latest
    from prometheus_client.metrics_core import Metric as Family

    name = metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name
    family = Family(name, metric.meaning, metric.kind)
    for one in samples:
        labels = dict(zip(metric.labels, one.labels, strict=True))
        if isinstance(one.value, Counts):
            _add_buckets(family, labels, one.value)
        else:
            family.add_sample(metric.name, labels, one.value)
    registry: Any = _Lone(family)
    text: bytes = generate_latest(registry)
    # The lines that describe the metric stand before its first series alone.
    return text if headed else text.split(b"\n", 2)[2]


def _add_buckets(family: "Family", labels: dict[str, str], value: Counts) -> None:
    below = 0
    for bound, count in zip(BOUNDS_S, value.counts, strict=False):
        below += count
        family.add_sample(f"{family.name}_bucket", {**labels, "le": str(bound)}, below)
    family.add_sample(f"{family.name}_bucket", {**labels, "le": "+Inf"}, value.total)
    family.add_sample(f"{family.name}_count", labels, value.total)
    family.add_sample(f"{family.name}_sum", labels, value.seconds)

"""
Writes samples as the text that Prometheus reads, a few at a time, so that the event loop serves others meanwhile.

Used by `listener`'s owners; uses `prometheus-client` for what the system says of the process.
"""

import asyncio
import platform
import sys
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from headrace_mq.errors import MessageQueueError
from headrace_mq.metrics.histogram import BOUNDS_S, Counts
from headrace_mq.metrics.table import BUILD_INFO, PROCESS_METRICS, Metric, Sample

__all__ = ["CONTENT_TYPE", "process_samples", "require_prometheus", "written"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# Samples taken, or written, before others have their turn: about a millisecond.
SAMPLES_PER_TURN_MAX = 200
# Labels that are kept as text from one scrape to the next: those of 1,000 topics, 1,000 groups and 5,000 queues, with room.
# Some 200 bytes each.
LABELS_KEPT_MAX: Final = 16_384
_ENDLESS: Final = "+Inf"
_BOUNDS: Final = (*map(str, BOUNDS_S), _ENDLESS)
# What Python calls these numbers, and what Prometheus does.
_STRANGE: Final = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}


def require_prometheus() -> None:
    """Raises MessageQueueError where the package that asks the system about the process is not installed."""
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
    parts: list[str] = []
    for name in sorted(families):
        found = families[name]
        metric = found[0].metric
        parts.append(_head(metric))
        step = _step(metric)
        for start in range(0, len(found), step):
            parts.append(_text(metric, found[start : start + step]))
            await asyncio.sleep(0)
    return "".join(parts).encode()


def _step(metric: Metric) -> int:
    """How many samples are written in one turn."""
    lines = len(BOUNDS_S) if metric.kind == "histogram" else 1
    return max(1, SAMPLES_PER_TURN_MAX // lines)


def _head(metric: Metric) -> str:
    """Returns the lines that describe a metric."""
    return f"# HELP {metric.name} {metric.meaning}\n# TYPE {metric.name} {metric.kind}\n"


def _text(metric: Metric, samples: list[Sample]) -> str:
    """Returns the lines of samples of one metric.

    They are most of what a scrape writes: the writer of `prometheus-client` takes eight times as long for each.
    """
    lines: list[str] = []
    for one in samples:
        if isinstance(one.value, Counts):
            _add_buckets(lines, metric, one.labels, one.value)
        else:
            labels = _labels(metric.labels, one.labels)
            lines.append(f"{metric.name}{labels} {_number(one.value)}\n")
    return "".join(lines)


@lru_cache(LABELS_KEPT_MAX)
def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not names:
        return ""
    told = []
    for name, value in zip(names, values, strict=True):
        quoted = value
        if "\\" in value or '"' in value or "\n" in value:
            quoted = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        told.append(f'{name}="{quoted}"')
    return "{" + ",".join(told) + "}"


def _number(value: float) -> str:
    told = repr(float(value))
    return _STRANGE.get(told, told)


def _add_buckets(lines: list[str], metric: Metric, labels: tuple[str, ...], value: Counts) -> None:
    names, below = (*metric.labels, "le"), 0
    for bound, count in zip(_BOUNDS, (*value.counts[:-1], 0), strict=True):
        below += count
        told = value.total if bound == _ENDLESS else below
        lines.append(f"{metric.name}_bucket{_labels(names, (*labels, bound))} {_number(told)}\n")
    own = _labels(metric.labels, labels)
    lines.append(f"{metric.name}_count{own} {_number(value.total)}\n")
    lines.append(f"{metric.name}_sum{own} {_number(value.seconds)}\n")

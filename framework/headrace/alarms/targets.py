"""
Reads the figures of a process: what it answers at its address of metrics.

Used by the watcher, in threads; uses `prometheus-client` to read the text.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPException
from typing import NamedTuple

from headrace._runtime.web.opener import opener
from headrace.alarms.promql.history import Figure
from headrace.alarms.settings import AlarmTarget
from headrace.errors import ExtraMissing

__all__ = ["TargetAnswer", "ask_targets", "figures_of", "read_target"]


class TargetAnswer(NamedTuple):
    """What a process answered.

    Attributes:
        target: the process.
        figures: None: it did not answer.
        sentence: why it did not.
    """

    target: AlarmTarget
    figures: list[Figure] | None
    sentence: str = ""


async def ask_targets(
    targets: Sequence[AlarmTarget], read: Callable[[AlarmTarget], list[Figure]]
) -> list[TargetAnswer]:
    """Asks all processes at once, each in a thread.

    Args:
        targets: the processes.
        read: gets the figures of one, or raises OSError, HTTPException or ValueError.

    Raises:
        ExtraMissing: the package that reads figures is not installed.
    """

    async def ask(target: AlarmTarget) -> TargetAnswer:
        try:
            return TargetAnswer(target, await asyncio.to_thread(read, target))
        except (OSError, HTTPException, ValueError) as error:
            return TargetAnswer(target, None, str(error) or type(error).__name__)

    return await asyncio.gather(*(ask(each) for each in targets))


def read_target(target: AlarmTarget, *, timeout_s: float, bytes_max: int) -> list[Figure]:
    """Returns the figures of a process; blocks.

    Args:
        target: where they are.
        timeout_s: how long it may take.
        bytes_max: of the answer.

    Raises:
        OSError: it does not answer, or not with success.
        ValueError: the answer is too large, or no metrics.
        ExtraMissing: the package that reads them is not installed.
    """
    with opener(target.ca).open(target.url, timeout=timeout_s) as answer:
        body: bytes = answer.read(bytes_max + 1)
    if len(body) > bytes_max:
        raise ValueError(f"it answers with more than {bytes_max:,} bytes (body_bytes_max)")
    return list(figures_of(body.decode()))


def figures_of(text: str) -> Iterator[Figure]:
    """Yields the figures in a text as Prometheus reads it.

    Raises:
        ValueError: it is no such text.
        ExtraMissing: the package that reads it is not installed.
    """
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ModuleNotFoundError as error:
        raise ExtraMissing(
            "alarms need prometheus-client: pip install 'headrace[metrics]'"
        ) from error
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            yield Figure(one.name, one.labels, float(one.value))

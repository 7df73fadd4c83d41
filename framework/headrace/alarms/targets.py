"""
Reads the figures of a process: what it answers at its address of metrics.

Used by the watcher, in threads; uses `prometheus-client` to read the text.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from http.client import HTTPException
from typing import Final, NamedTuple

from headrace._runtime.log import get_logger
from headrace._runtime.web.opener import failure, opener
from headrace.alarms.calls import BoundedCalls
from headrace.alarms.promql.history import Figure
from headrace.alarms.settings import AlarmTarget
from headrace.errors import ExtraMissing

__all__ = ["TargetAnswer", "ask_targets", "figures_of", "read_target"]

log = get_logger(__name__)

# An answer is read in pieces, so that one that trickles is given up in time.
_PIECE_BYTES: Final = 65_536


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
    targets: Sequence[AlarmTarget],
    read: Callable[[AlarmTarget], list[Figure]],
    calls: BoundedCalls,
    bound_s: float,
) -> list[TargetAnswer]:
    """Asks all processes at once, each in a thread; one that is slow holds up the others no longer than the bound.

    Args:
        targets: the processes.
        read: gets the figures of one, or raises an error.
        calls: runs it.
        bound_s: how long one may take, in seconds.

    Raises:
        ExtraMissing: the package that reads figures is not installed.
    """

    async def ask(target: AlarmTarget) -> TargetAnswer:
        try:
            figures = await calls.call(
                f"read {target.job} {target.instance}", partial(read, target), bound_s=bound_s
            )
        except ExtraMissing:
            raise
        except (OSError, HTTPException, ValueError) as error:
            return TargetAnswer(target, None, failure(error))
        except Exception:  # a bug with one process must not end the alarms of the others
            log.exception("figures of a process could not be read", instance=target.instance)
            return TargetAnswer(target, None, "its figures could not be read; the log says why")
        return TargetAnswer(target, figures)

    return await asyncio.gather(*(ask(each) for each in targets))


def read_target(target: AlarmTarget, *, timeout_s: float, bytes_max: int) -> list[Figure]:
    """Returns the figures of a process; blocks.

    Args:
        target: where they are.
        timeout_s: how long it may take.
        bytes_max: of the answer.

    Raises:
        OSError: it does not answer in time, or not with success.
        HTTPException: the answer ends too early, or is none of HTTP.
        ValueError: the answer is too large, or no metrics.
        ExtraMissing: the package that reads them is not installed.
    """
    end = time.monotonic() + timeout_s
    body = bytearray()
    with opener(target.ca).open(target.url, timeout=timeout_s) as answer:
        while piece := answer.read1(_PIECE_BYTES):
            body += piece
            if len(body) > bytes_max:
                raise ValueError(f"it answers with more than {bytes_max:,} bytes (body_bytes_max)")
            if time.monotonic() > end:
                raise TimeoutError(f"no answer within {timeout_s:g} s")
        if answer.length:
            raise HTTPException("its answer ends too early")
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
    try:
        for family in text_string_to_metric_families(text):
            for one in family.samples:
                yield Figure(one.name, one.labels, float(one.value))
    except Exception as error:  # the parser raises many kinds for a text that is none
        raise ValueError(f"it answers with what is no metrics ({type(error).__name__})") from error

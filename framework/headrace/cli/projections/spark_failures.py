"""
How a command tells what failed in Spark: one sentence, and a file with the rest.

Used by the commands that run Spark. A traceback on the terminal means a defect: of Headrace, or of a fold.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import typer

from headrace.errors import HeadraceError
from headrace.spark.failures import keep_trace, worker_trace
from headrace.spark.session import SessionOnDemand

__all__ = ["plain_failures", "run_plainly", "told"]

T = TypeVar("T")


@contextmanager
def plain_failures() -> Iterator[None]:
    """Keeps the bridge to Java from writing tracebacks of its own; each comes as an exception, too."""
    bridge = logging.getLogger("py4j")
    before = bridge.level
    bridge.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        bridge.setLevel(before)


def run_plainly(work: Callable[[], Coroutine[Any, Any, T]], spark: SessionOnDemand) -> T:
    """Runs work that uses a session, and stops the session; a failure has the sentence of `told`.

    Raises:
        HeadraceError: what the work raises.
    """
    with plain_failures():
        try:
            return asyncio.run(work())
        except HeadraceError as error:
            told(error)
            raise
        finally:
            spark.stop()


def told(outcome: T) -> T:
    """Returns an outcome; the sentence of one that failed in Spark names the file with all that Spark said.

    What a worker raised that is no sentence of ours, a defect, is shown with the worker's traceback.
    """
    if not isinstance(outcome, HeadraceError):
        return outcome
    path = keep_trace(outcome)
    if path is not None:
        if trace := worker_trace(outcome):
            typer.echo(trace, err=True)
        outcome.args = (f"{outcome}; all that Spark said is in {path}", *outcome.args[1:])
    return outcome

"""
Which queues the tasks of a job have read, known while the job still runs.

Each task tells of the slices that it has read when it ends, through an accumulator of Spark's. Spark
Connect has none: there the queues are known with the result.

Used by `job`, whose tasks report, and by `rebuild`, which looks. It must not know a database.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.accumulators import AccumulatorParam
from pyspark.sql import SparkSession

from headrace.spark.executor.fold import QUEUE, Batches

__all__ = ["Finished"]

_MESSAGES = " messages"


class _Added(AccumulatorParam[list[str]]):
    """Lists put together."""

    def zero(self, value: list[str]) -> list[str]:  # noqa: ARG002 - the port's argument
        return []

    def addInPlace(  # noqa: N802 - Spark's name
        self, value1: list[str], value2: list[str]
    ) -> list[str]:
        return [*value1, *value2]


class Finished:
    """The queues that were read, of one job.

    Args:
        session: of any kind; of Spark Connect nothing is known before the end.
        messages: how many the job reads of each queue, by its name.
        pieces: in how many pieces it reads each queue; those that are left out in one.
    """

    def __init__(
        self,
        session: SparkSession,
        messages: Mapping[str, int],
        pieces: Mapping[str, int] | None = None,
    ) -> None:
        self._left = dict(messages)
        self._pieces = dict(pieces or {})
        self._told = 0
        self._added: Any = None
        try:
            self._added = session.sparkContext.accumulator([], _Added())
        except AttributeError:
            # Spark Connect has no context.
            return

    def watch(self, batches: Batches) -> Batches:
        """Passes on what a step yields in a task, and notes the queues in it; runs on executors."""
        added = self._added
        for batch in batches:
            if added is not None:
                added.add(_queues_in(batch))
            yield batch

    def news(self) -> Iterator[tuple[str, int]]:
        """Yields a line for each queue that was read since the last call, and how many messages are left."""
        if self._added is None:
            return
        for queue in self._added.value[self._told :]:
            self._told += 1
            self._pieces[queue] = self._pieces.get(queue, 1) - 1
            if self._pieces[queue] > 0:
                continue
            self._left.pop(queue, None)
            yield f"{queue} folded", sum(self._left.values())


def _queues_in(batch: pa.RecordBatch) -> list[str]:
    told = batch.filter(pc.equal(batch["kind"], QUEUE))["key"].to_pylist()
    return [key.removesuffix(_MESSAGES) for key in told if key.endswith(_MESSAGES)]

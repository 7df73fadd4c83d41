"""
Where the rebuilds of several projections meet: they read the topic together, and go on one by one.

    each: begin a shadow ─▶ wait for the others ─▶ in turns: fold, load, compare, switch
                                                      └─ the first one reads, for all

One rebuild that fails leaves, and the others go on without it. Used by the driver; runs `fold_for_all`
on executors, whose records stay on their disks until the last rebuild has taken its own. It must not know
a database.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from headrace.spark.executor.fold import RECORD_SCHEMA, Batches
from headrace.spark.executor.plan import FoldPlan
from headrace.spark.executor.streams import read_streams
from headrace.spark.job import map_records
from headrace.spark.several.fold import fold_for_all
from headrace.spark.tasks import by_key
from headrace_mq.spark.reader import rarely_collecting

__all__ = ["OnePass"]

T = TypeVar("T")

_MARK = "mark"
_MARKED_SCHEMA = f"{RECORD_SCHEMA}, {_MARK} int"


class OnePass:
    """Several rebuilds that read the topic once.

    Args:
        names: of their projections, each of which has a row per aggregate.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._awaited = set(names)
        self._members: list[str] = []
        self._all_here = asyncio.Event()
        self._turn = asyncio.Lock()
        self._asking = asyncio.Lock()
        self._answers: dict[str, Any] = {}
        self._read: DataFrame | None = None

    async def once(self, what: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Returns what the first rebuild that asked was answered, so that all have the same.

        Args:
            what: names the question.
            ask: asks it; what it raises goes to the rebuild that asked, and the next one asks again.
        """
        async with self._asking:
            if what not in self._answers:
                self._answers[what] = await ask()
        answer: T = self._answers[what]
        return answer

    def arrive(self, name: str) -> None:
        """Notes that a rebuild is ready to fold: what is read is read for it too."""
        self._members.append(name)
        self._expect_no_more(name)

    def leave(self, name: str) -> None:
        """Notes that a rebuild has ended, wherever it was: the others do not wait for it."""
        self._expect_no_more(name)

    def _expect_no_more(self, name: str) -> None:
        self._awaited.discard(name)
        if not self._awaited:
            self._all_here.set()

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """Arrives, waits until all others have arrived or left, and then for this projection's turn."""
        self.arrive(name)
        await self._all_here.wait()
        async with self._turn:
            yield

    def records(self, session: SparkSession, plan: FoldPlan) -> DataFrame:
        """Returns what is read for a plan's projection; the first job that uses it reads, for all that have arrived.

        It is rows; or sorted streams, which each folds by itself, if the plan brings streams together.

        Args:
            session: where it runs.
            plan: this projection's, divided among tasks.
        """
        if self._read is None:
            self._plans = [replace(plan, projection=each) for each in self._members]
            self._read = _frame(session, self._plans).persist(StorageLevel.DISK_ONLY)
        if plan.together:
            return self._read
        place = self._members.index(plan.projection)
        return self._read.where(f"{_MARK} = {place}").drop(_MARK)

    def close(self) -> None:
        """Lets Spark delete what it keeps; blocks."""
        if self._read is not None:
            self._read.unpersist()
            self._read = None


def _frame(session: SparkSession, plans: list[FoldPlan]) -> DataFrame:
    plan = plans[0]
    count = len(plan.tasks)
    places = session.range(0, count, 1, count)
    if plan.together:
        return by_key(map_records(places, read_streams, plan), count)

    # A function of its own travels by value, with the plans; the step it calls by name.
    def run(batches: Batches) -> Batches:
        with rarely_collecting():
            for mark, batch in fold_for_all(plans, batches):
                yield batch.append_column(_MARK, pa.repeat(pa.scalar(mark, pa.int32()), len(batch)))

    return places.mapInArrow(run, _MARKED_SCHEMA)

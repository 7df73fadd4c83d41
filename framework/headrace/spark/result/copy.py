"""
A task's share of a rebuild's result, copied into PostgreSQL by the task itself.

    batches ─▶ rows, versions, deleted keys ─▶ COPY, in one transaction, which notes the share
           └─▶ counts, and nothing else ─▶ the driver, and the note

Spark may run a task again, or twice at a time. What an attempt has copied is invisible before
it commits; the first one that does has noted the share, and no other can. Used by the last fold of
a job, which yields records; fills the tables of `shadow_load`. It runs on executors. It must not
know a live table.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy.ext.asyncio import AsyncConnection

from headrace.projections.tables.shadow_load import copy_share, is_noted, note_share
from headrace.spark.executor.fold import (
    DELETED,
    MISSING,
    RECORD_ARROW_SCHEMA,
    ROW,
    TALLY,
    VERSION,
    Batches,
    Record,
    records_to_arrow,
)
from headrace.spark.executor.plan import FoldPlan, load_application, projection_of
from headrace.spark.result.connection import CONNECTIONS_MAX, TaskConnection
from headrace.spark.rows import RowCodec

__all__ = ["LEFT_OUT", "SHARES", "Copying", "copy_out", "told_in"]

# What a task counts: itself if it copied something, and sentences that it kept to itself.
SHARES: Final = "shares"
LEFT_OUT: Final = "missing"

# Sentences about missing versions that a task lets pass: a few of them are shown.
_SENTENCES_MAX: Final = 5
# Kinds of records that no task passes on as they come.
_KEPT: Final = (ROW, VERSION, DELETED, MISSING)
_OTHERS: Final = ("kind", "key", "number")


@dataclass(frozen=True, slots=True, kw_only=True)
class Copying:
    """Where the tasks of a job copy to; travels with it.

    Attributes:
        url: of the database, as every executor reaches it; not shown, it may hold a password.
        table: the shadow's.
        owner: of the shadow.
        connections_max: of all tasks together.
        places: which share each task has; empty: that of its own number.
    """

    url: str = field(repr=False)
    table: str
    owner: str
    connections_max: int = CONNECTIONS_MAX
    places: tuple[int, ...] = ()


def copy_out(copying: Copying, plan: FoldPlan, share: int, batches: Batches) -> Batches:
    """Copies rows, versions and deleted keys; yields the records of other kinds.

    Args:
        copying: where to.
        plan: names the projection.
        share: which part of the result this is, the same for each attempt.
        batches: the records of the share.

    Raises:
        ProjectionError: the database cannot be reached from here, or refuses the rows.
    """
    application = load_application(plan.app, plan.folder)
    codec: RowCodec[Any] = RowCodec(projection_of(application, plan))
    sentences = left_out = 0
    told: list[pa.RecordBatch] = []
    with closing(_Share(copying, plan.projection, share)) as own:
        for batch in batches:
            kinds = batch["kind"]
            rows = batch.filter(pc.equal(kinds, ROW))["data"].to_pylist()
            others = batch.filter(pc.is_in(kinds, pa.array([VERSION, DELETED])))
            own.add(
                [codec.values(row) for row in rows],
                list(zip(*(others[name].to_pylist() for name in _OTHERS), strict=True)),
            )
            rest = batch.filter(pc.invert(pc.is_in(kinds, pa.array(_KEPT))))
            if rest.num_rows:
                told.append(rest)
                yield rest
            missing = batch.filter(pc.equal(kinds, MISSING))
            if missing.num_rows:
                some = missing.slice(0, _SENTENCES_MAX - sentences)
                sentences += some.num_rows
                left_out += missing.num_rows - some.num_rows
                told.append(some)
                yield some
        counts = {SHARES: int(own.opened), LEFT_OUT: left_out}
        last = records_to_arrow(
            [Record.known(TALLY, name, number=count) for name, count in counts.items() if count]
        )
        own.commit([*told, last])
    yield last


def told_in(note: bytes) -> list[pa.RecordBatch]:
    """Returns what the task of a share has yielded, of the note that it made of it."""
    with pa.ipc.open_stream(note) as found:
        return list(found)


def _noted(told: Sequence[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, RECORD_ARROW_SCHEMA) as note:
        for batch in told:
            note.write_batch(batch)
    return bytes(sink.getvalue())


class _Share:
    """One attempt at a share: a connection and a transaction, from the first rows on.

    Args:
        copying: where to.
        projection: its name, for errors.
        share: which one.
    """

    def __init__(self, copying: Copying, projection: str, share: int) -> None:
        self._copying = copying
        self._share = share
        self._task = TaskConnection(
            copying.url,
            copying.table,
            projection=projection,
            doing=f"copying rows into {copying.table}",
            connections_max=copying.connections_max,
        )
        self._connection: AsyncConnection | None = None
        self._done = False
        self._rows = 0

    def add(self, rows: Sequence[tuple[Any, ...]], others: Sequence[tuple[str, str, int]]) -> None:
        """Copies some rows, and some others."""
        if rows or others:
            self._task.run(self._add(rows, others))

    @property
    def opened(self) -> bool:
        """Whether there was anything to copy."""
        return self._connection is not None

    def commit(self, told: Sequence[pa.RecordBatch]) -> None:
        """Commits, with a note of what the task tells; unless another attempt has."""
        if self._connection is not None and not self._done:
            self._task.run(self._commit(self._connection, _noted(told)))

    def close(self) -> None:
        """Ends the connection; what was not committed is gone."""
        self._task.close()

    async def _add(
        self, rows: Sequence[tuple[Any, ...]], others: Sequence[tuple[str, str, int]]
    ) -> None:
        if self._connection is None:
            self._connection = await self._task.enter()
            self._done = await is_noted(self._connection, self._copying.table, self._share)
        if not self._done:
            await copy_share(self._connection, self._copying.table, rows, others)
            self._rows += len(rows)

    async def _commit(self, connection: AsyncConnection, note: bytes) -> None:
        copying = self._copying
        if await note_share(
            connection, copying.table, copying.owner, self._share, self._rows, note
        ):
            await connection.commit()
        else:
            await connection.rollback()

"""
Files in a folder that driver and tasks both see: that of a session on this machine.

    rows and versions that a rebuild begins with, a page at a time ─▶ files ─▶ tasks that read them

Used by `load`, which reads a database that tasks cannot; feeds the folds with records. It must not
know that database.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa
from pyspark import SparkFiles
from pyspark.sql import SparkSession

from headrace.spark.executor.fold import RECORD_ARROW_SCHEMA, Batches
from headrace.spark.executor.plan import FoldPlan

__all__ = ["Stored", "read_stored", "shared_folder", "store"]

# Of one file, as much as a share of blocks is on PostgreSQL: a second of a task.
_FILE_BYTES: Final = 16 << 20


@contextmanager
def shared_folder(session: SparkSession) -> Iterator[str | None]:
    """Yields a folder that is deleted at the end; None where tasks may be on another machine."""
    # Spark Connect has no context.
    context = getattr(session, "sparkContext", None)
    if context is None or not context.master.startswith("local"):
        yield None
        return
    # Spark deletes what is in its own when it ends, which it does if this process is killed.
    with TemporaryDirectory(
        prefix="headrace-", dir=SparkFiles.getRootDirectory(), ignore_cleanup_errors=True
    ) as folder:
        yield folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Records in files, of one kind each; travels with the job.

    Attributes:
        shares: kind and path of each file.
    """

    shares: tuple[tuple[str, str], ...]

    def of(self, kind: str) -> tuple[tuple[str, str], ...]:
        """Returns the files of a kind."""
        return tuple(share for share in self.shares if share[0] == kind)


async def store(folder: str, found: AsyncIterator[tuple[str, pa.RecordBatch]]) -> Stored:
    """Writes records into files, a batch of them in memory at a time.

    Args:
        folder: that tasks see too.
        found: batches of `RECORD_ARROW_SCHEMA`, each of one kind, with the kind.
    """
    shares: list[tuple[str, str]] = []
    with ExitStack() as opened:
        writer: Any = None
        kind, size = "", 0
        async for each, batch in found:
            if writer is None or each != kind or size >= _FILE_BYTES:
                opened.close()
                path, kind, size = str(Path(folder) / f"begin-{len(shares)}"), each, 0
                file = opened.enter_context(pa.OSFile(path, "wb"))
                writer = opened.enter_context(pa.ipc.new_stream(file, RECORD_ARROW_SCHEMA))
                shares.append((kind, path))
            writer.write_batch(batch)
            size += batch.nbytes
    return Stored(shares=tuple(shares))


def read_stored(stored: Stored, _plan: FoldPlan, batches: Batches) -> Batches:
    """Reads the files whose places come in; runs on executors."""
    for batch in batches:
        for place in batch.column(0).to_pylist():
            _, path = stored.shares[place]
            with pa.OSFile(path) as file, pa.ipc.open_stream(file) as reader:
                yield from reader

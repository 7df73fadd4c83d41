"""
A job's result on its way to the driver's disk, of which never more than a part is in memory.

    on this machine  records of a task ─▶ files that it writes ─▶ their names ─▶ spool
    elsewhere        records of a task ─▶ pieces, kept on executors' disks ─▶ their sizes
                                             └─▶ all of them, or by a shuffle some at a time ─▶ spool

The pieces are kept so that all tasks run once and at a time; the shuffle is there so that what
comes together is small even where a task makes much. Used by the last fold of a job, which yields
records, and by the loading of them where executors cannot write themselves. It must not know a
database.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame

from headrace.spark.executor.fold import (
    DELETED,
    RECORD_ARROW_SCHEMA,
    ROW,
    VERSION,
    Batches,
    Record,
    records_to_arrow,
)

__all__ = [
    "FETCHED",
    "FETCHED_ARROW_SCHEMA",
    "PIECE_ARROW_SCHEMA",
    "PIECE_SCHEMA",
    "Spool",
    "fetch_parts",
    "in_files",
    "in_pieces",
]

# What of a record the driver needs.
FETCHED: Final = ("kind", "key", "number", "data")
PIECE_SCHEMA: Final = "task int, turn bigint, bytes bigint, data binary"

FETCHED_ARROW_SCHEMA: Final = pa.schema([RECORD_ARROW_SCHEMA.field(name) for name in FETCHED])
PIECE_ARROW_SCHEMA: Final = pa.schema(
    [("task", pa.int32()), ("turn", pa.int64()), ("bytes", pa.int64()), ("data", pa.binary())]
)
# Of one piece: some of them are a part, and a row of a table in Spark must not be large.
_PIECE_BYTES: Final = 1 << 20
# Of pieces that are fetched together: most read models are one part, and a job takes 50 ms.
_PART_BYTES: Final = 16 << 20
# Keys compared in memory at once.
_KEYS_MAX: Final = 500_000
# A record that names a file: its path, how many there are in it, and of which kind.
_KEPT: Final = "kept"
# What a spool keeps, and which columns of it.
_SPOOLED: Final = {ROW: ["data"], DELETED: ["key"], VERSION: ["key", "number"]}


def in_pieces(task: int, batches: Batches) -> Batches:
    """Makes pieces of a task's records; runs on executors.

    Args:
        task: the same for each attempt, as are the pieces: which part one is in hangs on its number.
        batches: the records.
    """
    turn = 0
    for batch in batches:
        for some in _sliced(batch.select(list(FETCHED))):
            piece = some.serialize().to_pybytes()
            columns = ([task], [turn], [len(piece)], [piece])
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(column, field.type)
                    for column, field in zip(columns, PIECE_ARROW_SCHEMA, strict=True)
                ],
                schema=PIECE_ARROW_SCHEMA,
            )
            turn += 1


def in_files(folder: str, batches: Batches) -> Batches:
    """Writes rows, deleted keys and versions of a task into files; yields their names, and the rest.

    Runs on executors. Files of a failed attempt are never reported.

    Args:
        folder: which the driver has too.
        batches: the records.
    """
    with closing(Spool(folder)) as own:
        for batch in batches:
            rest = own.add(batch)
            if rest.num_rows:
                yield rest
        yield records_to_arrow(list(own.named()))


def _sliced(records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    size = max(1, records.num_rows * _PIECE_BYTES // max(records.nbytes, 1))
    for start in range(0, records.num_rows, size):
        yield records.slice(start, size)


def fetch_parts(frame: DataFrame) -> Iterator[pa.RecordBatch]:
    """Runs the job, and yields its records; one part of them is in memory.

    Args:
        frame: pieces.
    """
    kept = frame.persist(StorageLevel.DISK_ONLY)
    try:
        size = sum(kept.select("bytes").toArrow()["bytes"].to_pylist())
        for piece in _fetched(kept, -(-size // _PART_BYTES)):
            yield pa.ipc.read_record_batch(pa.py_buffer(piece), FETCHED_ARROW_SCHEMA)
    finally:
        kept.unpersist()


def _fetched(kept: DataFrame, parts: int) -> Iterator[Any]:
    if parts <= 1:
        yield from (piece.as_buffer() for piece in kept.select("data").toArrow()["data"])
        return
    for piece in kept.repartition(parts, "task", "turn").select("data").toLocalIterator():
        yield piece["data"]


class Spool:
    """Rows, deleted keys and versions in files that are gone when it is closed.

    Args:
        folder: in which tasks write them, if it is on their disk too; its maker deletes it.

    Attributes:
        rows: how many there are.
    """

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder
        self.rows = 0
        self._files: dict[str, list[Any]] = {}
        self._writers: dict[str, Any] = {}
        self._counts: Counter[str] = Counter()

    def add(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Keeps some records, or files that are named by them; returns those of other kinds."""
        kinds = records["kind"]
        for kind, names in _SPOOLED.items():
            found = records.filter(pc.equal(kinds, kind)).select(names)
            for some in _sliced(found):
                self._writer(kind, found.schema).write_batch(some)
            self._count(kind, found.num_rows)
        for named in records.filter(pc.equal(kinds, _KEPT)).to_pylist():
            kind = named["data"].decode()
            self._files.setdefault(kind, []).append(Path(named["key"]).open("rb"))  # noqa: SIM115 - closed with the spool
            self._count(kind, named["number"])
        return records.filter(pc.invert(pc.is_in(kinds, pa.array([*_SPOOLED, _KEPT]))))

    def named(self) -> Iterator[Record]:
        """Yields the names of its files, as `add` of another spool takes them."""
        self._finish()
        for kind, files in self._files.items():
            for file in files:
                yield Record.known(_KEPT, file.name, number=self._counts[kind], data=kind.encode())

    def read(self, kind: str) -> Iterator[dict[str, list[Any]]]:
        """Yields the columns of what was kept of a kind, a mebibyte or so at a time."""
        self._finish()
        for file in self._files.get(kind, ()):
            file.seek(0)
            with pa.ipc.open_stream(file) as reader:
                for batch in reader:
                    yield batch.to_pydict()

    def find_twice(self) -> str | None:
        """Returns an aggregate that has two versions, if there is one."""
        count = sum(len(found["key"]) for found in self.read(VERSION))
        passes = count // _KEYS_MAX + 1
        for remainder in range(passes):
            seen: set[str] = set()
            for found in self.read(VERSION):
                some = (key for key in found["key"] if crc32(key.encode()) % passes == remainder)
                for key in some:
                    if key in seen:
                        return str(key)
                    seen.add(key)
        return None

    def close(self) -> None:
        """Deletes the files, or leaves them to the maker of the folder."""
        for file in (
            *self._writers.values(),
            *(each for some in self._files.values() for each in some),
        ):
            file.close()

    def _count(self, kind: str, number: int) -> None:
        self._counts[kind] += number
        self.rows = self._counts[ROW]

    def _finish(self) -> None:
        """Ends what is written, so that it can be read."""
        for kind in list(self._writers):
            self._writers.pop(kind).close()
            self._files[kind][-1].flush()

    def _writer(self, kind: str, schema: pa.Schema) -> Any:
        if kind not in self._writers:
            # One without a name leaves nothing of a process that is killed.
            file: Any = (
                tempfile.TemporaryFile()  # noqa: SIM115 - closed with the spool
                if self.folder is None
                else tempfile.NamedTemporaryFile(dir=self.folder, delete=False)  # noqa: SIM115 - likewise
            )
            self._files.setdefault(kind, []).append(file)
            self._writers[kind] = pa.ipc.new_stream(file, schema)
        return self._writers[kind]

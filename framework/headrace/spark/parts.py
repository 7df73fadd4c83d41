"""
A job's result on its way through the driver, a part at a time, and on the driver's disk.

    records of a task ─▶ pieces of at most a mebibyte ─▶ shuffle ─▶ parts, fetched one by one ─▶ spool

The shuffle is there so that all tasks run once and at a time, and so that a part is small even where
a task makes much. Sits between: the last fold of a job, which yields records, and the loading of them
where executors cannot write themselves. Must never know a database.
"""

import tempfile
from collections.abc import Iterator
from typing import Any, Final
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from headrace.spark.fold import DELETED, RECORD_ARROW_SCHEMA, ROW, VERSION, Batches

__all__ = [
    "FETCHED",
    "FETCHED_ARROW_SCHEMA",
    "PIECE_ARROW_SCHEMA",
    "PIECE_SCHEMA",
    "Spool",
    "fetch_parts",
    "in_pieces",
]

# What of a record the driver needs.
FETCHED: Final = ("kind", "key", "number", "data")
PIECE_SCHEMA: Final = "task int, turn bigint, data binary"

FETCHED_ARROW_SCHEMA: Final = pa.schema([RECORD_ARROW_SCHEMA.field(name) for name in FETCHED])
PIECE_ARROW_SCHEMA: Final = pa.schema(
    [("task", pa.int32()), ("turn", pa.int64()), ("data", pa.binary())]
)
# Of one piece: some of them are a part, and a row of a table in Spark must not be large.
_PIECE_BYTES: Final = 1 << 20
# Keys compared in memory at once.
_KEYS_MAX: Final = 500_000
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
        records = batch.select(list(FETCHED))
        size = max(1, records.num_rows * _PIECE_BYTES // max(records.nbytes, 1))
        pieces = [
            records.slice(start, size).serialize().to_pybytes()
            for start in range(0, records.num_rows, size)
        ]
        for piece in pieces:
            columns = ([task], [turn], [piece])
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(column, field.type)
                    for column, field in zip(columns, PIECE_ARROW_SCHEMA, strict=True)
                ],
                schema=PIECE_ARROW_SCHEMA,
            )
            turn += 1


def fetch_parts(frame: DataFrame, parts: int) -> Iterator[pa.RecordBatch]:
    """Runs the job, and yields its records; one part of them is in memory.

    Args:
        frame: pieces.
        parts: how many; each is a job of its own, of some milliseconds.
    """
    for piece in frame.repartition(parts, "task", "turn").select("data").toLocalIterator():
        yield pa.ipc.read_record_batch(pa.py_buffer(piece["data"]), FETCHED_ARROW_SCHEMA)


class Spool:
    """Rows, deleted keys and versions in files that are gone when it is closed.

    Attributes:
        rows: how many there are.
    """

    def __init__(self) -> None:
        self._files: dict[str, Any] = {}
        self._writers: dict[str, Any] = {}
        self.rows = 0

    def add(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Keeps some records; returns those that are of other kinds."""
        kinds = records["kind"]
        for kind, names in _SPOOLED.items():
            found = records.filter(pc.equal(kinds, kind)).select(names)
            if found.num_rows:
                self._writer(kind, found.schema).write_batch(found)
                self.rows += found.num_rows if kind == ROW else 0
        return records.filter(pc.invert(pc.is_in(kinds, pa.array(list(_SPOOLED)))))

    def read(self, kind: str) -> Iterator[dict[str, list[Any]]]:
        """Yields the columns of what was kept of a kind, as much at a time as was added."""
        if kind not in self._files:
            return
        if (writer := self._writers.pop(kind, None)) is not None:
            writer.close()
        self._files[kind].seek(0)
        with pa.ipc.open_stream(self._files[kind]) as reader:
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
        """Deletes the files."""
        for opened in (*self._writers.values(), *self._files.values()):
            opened.close()

    def _writer(self, kind: str, schema: pa.Schema) -> Any:
        if kind not in self._writers:
            # Without a name, so that nothing is left of a process that is killed.
            self._files[kind] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the spool
            self._writers[kind] = pa.ipc.new_stream(self._files[kind], schema)
        return self._writers[kind]

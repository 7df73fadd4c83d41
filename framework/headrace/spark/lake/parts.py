"""
A folder of Parquet that grows by parts, each visible whole or not at all.

    PATH/_writing-0f3c…/…                                         a part that is not finished
    PATH/export=000001/event_type=Deposited/day=2026-01-31/…      a part
    PATH/export=000001/_part.json                                 its offsets, and its files

A part is written under the first name and renamed. It counts when `_part.json` and every file that
this names are there: where a file system cannot rename a folder at once, a part that a killed driver left
behind does not count, and the next export replaces it. Used by `events`; uses a folder of Hadoop's.
"""

from collections.abc import Mapping
from typing import Final
from uuid import uuid4

import msgspec
from pyspark.sql import DataFrame, SparkSession

from headrace.errors import ProjectionError
from headrace.spark.lake.hadoop import HadoopFolder
from headrace.spark.lake.schema import is_wider

__all__ = ["LakePart", "LakeParts"]

_PART: Final = "export="
_WRITING: Final = "_writing-"
_MANIFEST: Final = "_part.json"


class LakePart(msgspec.Struct, frozen=True, kw_only=True):
    """What one export wrote.

    Attributes:
        number: of the part, from 1.
        topic: where the events come from.
        start: the first offset of each queue.
        end: the offset of each queue at which the next part begins.
        partition_by: the columns by which it is divided into folders.
        schema: the type of its rows, as JSON in Spark's words.
        files: the bytes of each file, by its path in the part.
        identity: the UUID that the topic got when it was made; empty: an older version has written this.
        epochs: of each queue's brokers before it was read; none in parts of older versions.
    """

    number: int
    topic: str
    start: dict[int, int]
    end: dict[int, int]
    partition_by: list[str]
    schema: str
    files: dict[str, int]
    identity: str = ""
    epochs: dict[int, int] = {}


_decode = msgspec.json.Decoder(LakePart).decode


class LakeParts:
    """The parts of a folder.

    Args:
        spark: a session that reaches it.
        path: on any file system that Hadoop knows.

    Raises:
        ProjectionError: a part before the last one is damaged, or the session is one of Spark Connect.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._folder = HadoopFolder(spark, path)
        self._unfinished: list[str] = []
        self.parts: list[LakePart] = []
        for number, name in enumerate(self._folder.folders(_PART), start=1):
            part = self._finished(name)
            if part is None:
                self._unfinished.append(name)
            elif self._unfinished or part.number != number:
                raise ProjectionError(
                    f"{self._folder.path}: {name} does not follow the part before it, or a file of that"
                    " is missing; put it back, or export into an empty folder"
                )
            else:
                self.parts.append(part)

    @property
    def last(self) -> LakePart | None:
        """The newest part."""
        return self.parts[-1] if self.parts else None

    def frame(self, schema: str | None = None) -> DataFrame | None:
        """Returns what is in the parts, with the number of the part as `export`; None if nothing is.

        Args:
            schema: columns in Spark's words; None: all there are, which every file is asked for.
        """
        # A part of nothing but rejections has no file, and so no columns.
        filled = [part for part in self.parts if part.files]
        if not filled:
            return None
        places = [f"{self._folder.path}/{_name(part.number)}" for part in filled]
        reader = self._spark.read.option("basePath", self._folder.path)
        if schema is not None:
            return reader.schema(schema).parquet(*places)
        return reader.option("mergeSchema", "true").parquet(*places)

    def add(
        self,
        events: DataFrame,
        *,
        topic: str,
        identity: str,
        start: Mapping[int, int],
        end: Mapping[int, int],
        epochs: Mapping[int, int],
        partition_by: list[str],
    ) -> LakePart:
        """Writes the next part.

        Raises:
            ProjectionError: another export has written it meanwhile, or a column has another type in
                earlier parts.
        """
        schema = events.schema.json()
        for part in self.parts:
            is_wider(self._folder.path, part.schema, schema)
        number = len(self.parts) + 1
        writing = f"{_WRITING}{uuid4().hex}"
        try:
            place = f"{self._folder.path}/{writing}"
            events.write.partitionBy(*partition_by).option("compression", "zstd").parquet(place)
            part = LakePart(
                number=number,
                topic=topic,
                identity=identity,
                start=dict(start),
                end=dict(end),
                epochs=dict(epochs),
                partition_by=partition_by,
                schema=schema,
                files={
                    path: size
                    for path, size in self._folder.sizes(writing).items()
                    if path.endswith(".parquet")
                },
            )
            self._folder.write(f"{writing}/{_MANIFEST}", msgspec.json.encode(part))
            self._put_in_place(writing, _name(number))
        finally:
            self._folder.delete(writing)
        self.parts.append(part)
        return part

    def _put_in_place(self, writing: str, name: str) -> None:
        if name in self._unfinished:
            # A killed export's, on a file system that renames file by file.
            self._folder.delete(name)
        if not self._folder.rename(writing, name):
            raise ProjectionError(
                f"{self._folder.path}: another export has written {name} meanwhile; run it again"
            )

    def _finished(self, name: str) -> LakePart | None:
        text = self._folder.read(f"{name}/{_MANIFEST}")
        if text is None:
            return None
        try:
            part = _decode(text)
        except msgspec.DecodeError as error:
            raise ProjectionError(f"{self._folder.path}/{name} is no part: {error}") from error
        found = self._folder.sizes(name)
        whole = all(found.get(path) == size for path, size in part.files.items())
        return part if whole else None


def _name(number: int) -> str:
    return f"{_PART}{number:06}"

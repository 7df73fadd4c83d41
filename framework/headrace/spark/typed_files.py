"""
The typed files of an export as frames of Spark: what `read_typed` yields of a topic, without Python.

    events/TYPE/*.parquet ─▶ one row per event, with the columns of a reading
    versions/*.parquet    ─▶ the last version of each aggregate

What is in files went through the gate when it was exported. Used by `job`, which has a session; which files
there are, and whether they fit, was found out before. It must not know a broker.
"""

import re
from collections.abc import Mapping
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from headrace.projections.definition.shape import ColumnKind
from headrace.spark.analysis.export import ORDER, PLACES
from headrace.spark.executor.decode import EventField
from headrace.spark.executor.event_reader import EVENT, Reading, column_of, context_column
from headrace.spark.executor.fold import VERSION
from headrace.spark.native import TypedFiles
from headrace.spark.sql import SPARK_TYPES, places_column

__all__ = ["events_in_files", "portion_moment", "versions_in_files"]

# What is in one portion was stored before what is in the next, also where a clock was set back: a moment
# (ms since 1970) takes fewer bits than this.
_MOMENT_BITS: Final = 44
# From the type of a column in a file to that of a plain value.
_PLAIN: Final[Mapping[ColumnKind | None, str]] = {
    ColumnKind.DATE: "unix_date(%s)",
    ColumnKind.TIMESTAMP: "unix_micros(%s)",
}
_CONTEXT_TYPES: Final = {
    "version": "bigint",
    "sequence": "bigint",
    "recorded_at": "timestamp",
}
_VERSIONS: Final = "aggregate_id string, version bigint"
# Places in the path of a file: DIR/export-000001/events/TYPE/queue-000-v1.parquet
_PART: Final = (
    "cast(substring(substring_index(substring_index(_metadata.file_path, '/', -4), '/', 1),"
    f" {len('export-') + 1}) as bigint)"
)
_QUEUE: Final = (
    f"cast(substring_index(substring(_metadata.file_name, {len('queue-') + 1}), '-v', 1) as int)"
)
# Hadoop reads these in a path as a pattern.
_PATTERN: Final = re.compile(r"([\\{}\[\]*?])")


def portion_moment(moment: str, portion: str) -> str:
    """Returns the expression for a moment that is later than all of portions before."""
    return f"({moment} + shiftleft(cast({portion} as bigint), {_MOMENT_BITS}))"


def events_in_files(spark: SparkSession, files: TypedFiles, reading: Reading) -> DataFrame:
    """Returns a row per event, with the columns that `plain_columns` makes of a reading."""
    frames = [
        _read(spark, paths, _schema(reading, place)).selectExpr(*_columns(reading, place))
        for place, paths in files.events.items()
    ]
    if not frames:
        nothing = (f"cast(null as {kind}) as `{name}`" for name, kind in _plain_types(reading))
        return spark.range(0, 0, 1, 1).selectExpr(*nothing)
    return reduce(DataFrame.union, frames)


def versions_in_files(spark: SparkSession, files: TypedFiles) -> DataFrame:
    """Returns the last versions of aggregates, as `kind`, `key` and `number`; of some there are several."""
    return _read(spark, files.versions, _VERSIONS).selectExpr(
        f"'{VERSION}' as kind", "aggregate_id as key", "version as number"
    )


def _read(spark: SparkSession, paths: tuple[str, ...], schema: str) -> DataFrame:
    # Of the machine's own file system, whichever one a cluster has as its first.
    urls = ["file://" + _PATTERN.sub(r"\\\1", path) for path in paths]
    # Days and moments are those of Arrow, which has no other calendar, also long ago.
    reader = spark.read.schema(schema).option("datetimeRebaseMode", "CORRECTED")
    return reader.parquet(*urls)


def _schema(reading: Reading, place: int) -> str:
    """Returns the columns of a type's files that are wanted, in Spark's words."""
    fields = reading.types[place].fields
    context = ", ".join(
        f"`{name}`: {_CONTEXT_TYPES.get(name, 'string')}" for name in reading.context
    )
    columns = [f"`{ORDER}` struct<`moment`: bigint, `turn`: bigint>"]
    if context:
        columns.append(f"`context` struct<{context}>")
    columns += [f"`{each.name}` {SPARK_TYPES[each.kind]}" for each in fields]
    places = ", ".join(
        f"`{each.name}`: tinyint" for each in fields if each.kind is ColumnKind.DECIMAL
    )
    if places:
        columns.append(f"`{PLACES}` struct<{places}>")
    return ", ".join(columns)


def _columns(reading: Reading, place: int) -> list[str]:
    own = {column_of(each): each for each in reading.types[place].fields}
    texts = {
        "kind": f"'{EVENT}'",
        "part": _QUEUE,
        "type": str(place),
        "moment": portion_moment(f"`{ORDER}`.`moment`", _PART),
        "turn": f"`{ORDER}`.`turn`",
    }
    for name in reading.context:
        member = f"`context`.`{name}`"
        texts[context_column(name)] = f"unix_micros({member})" if name == "recorded_at" else member
    for column, field in own.items():
        texts[column] = _plain(field)
        if field.kind is ColumnKind.DECIMAL:
            texts[places_column(column)] = f"`{PLACES}`.`{field.name}`"
    return [
        f"cast({texts.get(name, 'null')} as {kind}) as `{name}`"
        for name, kind in _plain_types(reading)
    ]


def _plain(field: EventField) -> str:
    return _PLAIN.get(field.kind, "%s") % f"`{field.name}`"


def _plain_types(reading: Reading) -> list[tuple[str, str]]:
    """Returns name and type of each column that `plain_columns` makes of a reading."""
    kinds = {name: kind for name, (_, kind) in reading.columns.items()}
    types: list[tuple[str, str]] = []
    for name, kind in reading.spark_types:
        if kinds.get(name) is ColumnKind.DECIMAL:
            types += [(name, SPARK_TYPES[ColumnKind.DECIMAL]), (places_column(name), "int")]
        else:
            types.append((name, kind))
    return types

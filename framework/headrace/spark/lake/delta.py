"""
A Delta table that remembers, in its own transactions, up to which offsets it holds a topic.

    write files ─▶ one entry of the table's log: files or changed rows, and the offset of each queue

An entry is there or not, and two that begin at the same offsets cannot both be: so each message counts
once. Used by `events` and `read_model`; uses delta-rs, which needs no Java. It must not know what a
projection is.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import (
    CommitProperties,
    DeltaTable,
    QueryBuilder,
    Schema,
    Transaction,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from headrace.errors import ProjectionError
from headrace.spark.held_offsets import check_same_topic
from headrace.spark.lake.schema import is_wider

__all__ = ["LakeTable", "NewFile"]

_DELETED: Final = "_deleted"
# What a table remembers of a topic besides offsets, as transactions whose version means nothing: that it
# knows which topic it is, and which one. Tables of older versions remember neither.
_KNOWN: Final = "headrace:{topic}:identity"
_SAME: Final = "headrace:{topic}:identity:{identity}"


class NewFile(NamedTuple):
    """A file of Parquet below a table's folder.

    Attributes:
        path: below the table's folder.
        bytes: its size.
        rows: how many it has.
        partition: the value of each column by which the table is divided.
    """

    path: str
    bytes: int
    rows: int
    partition: Mapping[str, str | None]


class LakeTable:
    """A Delta table at one of its versions.

    Args:
        uri: such as `s3://bucket/table`, or a path.
        storage_options: what delta-rs needs to reach it.
        version: which version of it; None: the newest.
    """

    def __init__(
        self,
        uri: str,
        storage_options: Mapping[str, str] | None = None,
        *,
        version: int | None = None,
    ) -> None:
        self.uri = uri
        self._options = dict(storage_options or {})
        self._table: DeltaTable | None
        try:
            self._table = DeltaTable(uri, version=version, storage_options=self._options)
        except TableNotFoundError:
            self._table = None

    @property
    def version(self) -> int:
        """Of the table; -1 where there is none."""
        return -1 if self._table is None else self._table.version()

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return [field.name for field in self._opened.schema().fields]

    @property
    def partition_by(self) -> list[str]:
        """The columns by which it is divided into folders."""
        return list(self._opened.metadata().partition_columns)

    def files(self) -> list[str]:
        """Returns its files, by their paths below its folder."""
        if self._table is None:
            return []
        paths = pa.table(self._table.get_add_actions())["path"].to_pylist()
        return [unquote(path) for path in paths]

    def offsets(self, topic: str, queues: Iterable[int]) -> dict[int, int]:
        """Returns up to which offset, exclusive, it holds each queue; none where it holds nothing."""
        if self._table is None:
            return {}
        found = {queue: self._table.transaction_version(_app(topic, queue)) for queue in queues}
        return {queue: offset for queue, offset in found.items() if offset is not None}

    def epochs(self, topic: str, queues: Iterable[int]) -> dict[int, int]:
        """Returns the epoch of each queue's brokers when it was read; none where an older version has written."""
        if self._table is None:
            return {}
        found = {queue: self._table.transaction_version(_epoch(topic, queue)) for queue in queues}
        return {queue: epoch for queue, epoch in found.items() if epoch is not None}

    def check_topic(self, topic: str, identity: str) -> None:
        """Checks that what it holds of a topic is of the one with this identity.

        Args:
            topic: its name.
            identity: the UUID that it got when it was made; empty: the broker does not know.

        Raises:
            ProjectionError: it is of another topic of that name.
        """
        if self._table is None or not identity:
            return
        known = self._table.transaction_version(_KNOWN.format(topic=topic))
        same = self._table.transaction_version(_SAME.format(topic=topic, identity=identity))
        if known is not None and same is None:
            # A table tells whether an identity is its own, and not which one is.
            check_same_topic(topic, "another one", identity)

    def at(self, topic: str, queues: Sequence[int], offsets: Mapping[int, int]) -> "LakeTable":
        """Returns the newest version that holds the queues of a topic up to these offsets.

        Raises:
            ProjectionError: there is none.
        """
        for version in range(self.version, -1, -1):
            found = LakeTable(self.uri, self._options, version=version)
            if found.offsets(topic, queues) == offsets:
                return found
        raise ProjectionError(
            f"{self.uri} has no version for the offsets {offsets}: it was cleaned up or changed by"
            " another hand; write into an empty folder"
        )

    def create(self, schema: str | pa.Schema, partition_by: Sequence[str] = ()) -> None:
        """Makes the table if it is not there, or adds columns that it lacks.

        Args:
            schema: as JSON in Spark's words, or Arrow's.
            partition_by: columns by which a new table is divided.

        Raises:
            ProjectionError: a column of the table has another type.
        """
        made = Schema.from_json(schema) if isinstance(schema, str) else Schema.from_arrow(schema)
        if self._table is None:
            self._table = DeltaTable.create(
                self.uri,
                made,
                mode="ignore",
                partition_by=list(partition_by),
                storage_options=self._options,
            )
        elif is_wider(self.uri, self._table.schema().to_json(), made.to_json()):
            nothing = pa.schema(made.to_arrow()).empty_table()
            write_deltalake(self._table, nothing, mode="append", schema_mode="merge")

    def add_files(
        self,
        files: Sequence[NewFile],
        topic: tuple[str, str],
        offsets: Mapping[int, int],
        epochs: Mapping[int, int] | None = None,
    ) -> None:
        """Makes files a part of the table, and these its offsets, in one transaction.

        Args:
            files: written below its folder.
            topic: whose offsets: name and identity.
            offsets: of each queue.
            epochs: of each queue's brokers before it was read.

        Raises:
            ProjectionError: another has written meanwhile.
        """
        table = self._opened
        actions: list[AddAction | RemoveAction] = [
            AddAction(
                path=file.path,
                size=file.bytes,
                partition_values=file.partition,
                modification_time=0,
                data_change=True,
                stats=json.dumps({"numRecords": file.rows}),
            )
            for file in files
        ]
        try:
            table.create_write_transaction(
                actions,
                "append",
                table.schema(),
                self.partition_by,
                commit_properties=_moving(topic, offsets, epochs or {}),
            )
        except CommitFailedError as error:
            raise self._overtaken(error) from error

    def merge(
        self,
        rows: pa.Table,
        deleted: Sequence[str],
        key: str,
        topic: tuple[str, str],
        offsets: Mapping[int, int],
        epochs: Mapping[int, int] | None = None,
    ) -> None:
        """Replaces rows by their key, adds new ones and deletes others, and makes these its offsets.

        All of it is one transaction.

        Args:
            rows: the new rows, of a table's columns.
            deleted: keys of those that are no more.
            key: the column that tells rows apart.
            topic: whose offsets: name and identity.
            offsets: of each queue.
            epochs: of each queue's brokers before it was read.

        Raises:
            ProjectionError: another has written meanwhile.
        """
        before = self.version
        if rows.num_rows or deleted:
            self._merge(rows, deleted, key, _moving(topic, offsets, epochs or {}))
        if self.version == before:
            # No row has changed, and so nothing was written.
            self.add_files([], topic, offsets, epochs)

    def _merge(
        self, rows: pa.Table, deleted: Sequence[str], key: str, moving: CommitProperties
    ) -> None:
        gone = pa.table({key: pa.array(deleted, rows.schema.field(key).type)})
        marked = [
            each.append_column(_DELETED, pa.array([mark] * each.num_rows, pa.bool_()))
            for each, mark in ((rows, False), (gone, True))
        ]
        source = pa.concat_tables(marked, promote_options="default")
        values = {f"`{name}`": f"source.`{name}`" for name in rows.column_names}
        try:
            (
                self._opened.merge(
                    source,
                    predicate=f"target.`{key}` = source.`{key}`",
                    source_alias="source",
                    target_alias="target",
                    commit_properties=moving,
                )
                .when_matched_delete(f"source.`{_DELETED}`")
                .when_matched_update(values)
                .when_not_matched_insert(values, f"not source.`{_DELETED}`")
                .execute()
            )
        except CommitFailedError as error:
            raise self._overtaken(error) from error

    def rows(self, column: str, wanted: Iterable[str], schema: pa.Schema) -> pa.Table:
        """Returns the rows whose column has one of these values: the whole table is passed through.

        Args:
            column: of text.
            wanted: the values.
            schema: the columns to return.
        """
        if self._table is None:
            return schema.empty_table()
        values = pa.array(list(wanted), pa.string())
        names = ", ".join(_quoted(name) for name in schema.names)
        found = QueryBuilder().register("stored", self._table)
        stored = pa.RecordBatchReader.from_stream(found.execute(f"select {names} from stored"))  # noqa: S608 # the names are quoted
        some = []
        for batch in stored:
            part = pa.Table.from_batches([batch]).cast(schema)
            some.append(part.filter(pc.is_in(part[column], values)))
        return pa.concat_tables(some) if some else schema.empty_table()

    @property
    def _opened(self) -> DeltaTable:
        assert self._table is not None, "it is made first"
        return self._table

    def _overtaken(self, error: Exception) -> ProjectionError:
        return ProjectionError(
            f"{self.uri}: another job has written into it meanwhile; run this again ({error})"
        )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _app(topic: str, queue: int) -> str:
    return f"headrace:{topic}:{queue}"


def _epoch(topic: str, queue: int) -> str:
    return f"headrace:{topic}:epoch:{queue}"


def _moving(
    topic: tuple[str, str], offsets: Mapping[int, int], epochs: Mapping[int, int]
) -> CommitProperties:
    name, identity = topic
    moved = [Transaction(_app(name, queue), offset) for queue, offset in sorted(offsets.items())]
    moved += [Transaction(_epoch(name, queue), epoch) for queue, epoch in sorted(epochs.items())]
    if identity:
        own = (_KNOWN.format(topic=name), _SAME.format(topic=name, identity=identity))
        moved += [Transaction(each, 1) for each in own]
    return CommitProperties(
        app_transactions=moved,
        # Tried again, it would no longer begin where it began.
        max_commit_retries=0,
    )

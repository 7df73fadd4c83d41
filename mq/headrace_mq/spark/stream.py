"""
Topics as a stream of micro-batches: `spark.readStream.format("headrace")`.

Used by Spark, which keeps the offsets in its checkpoint and asks for the next ones. This module keeps no
state that a restart would need.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from headrace_mq._runtime.log import get_logger
from headrace_mq.errors import OffsetOutOfRange
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import QueueRange
from headrace_mq.spark.offsets import split_slices
from headrace_mq.spark.options import SourceOptions
from headrace_mq.spark.plan import SlicePartition, starts_of
from headrace_mq.spark.progress import (
    Loss,
    advance,
    begin,
    between,
    epochs_after,
    epochs_of,
    from_json,
    missing,
    to_json,
)
from headrace_mq.spark.reader import (
    Choice,
    TopicReader,
    connect,
    fetch_ranges,
    read_record_batches,
)

__all__ = ["TopicsStream"]

Checkpoint = Mapping[str, Mapping[str, int]]

_log = get_logger(__name__)


class TopicsStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches and reads them.

    Args:
        options: what to read.
        choice: the columns.
    """

    def __init__(self, options: SourceOptions, choice: Choice) -> None:
        self._options = options
        self._choice = choice
        # The end of an available-now query; None for a stream without an end.
        self._target: list[QueueRange] | None = None
        self._seen: list[QueueRange] | None = None

    @staticmethod
    def connect(address: str, timeout_ms: int) -> AbstractContextManager[TopicReader]:
        """Opens a connection, on the driver and on executors."""
        return connect(address, timeout_ms)

    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802 - PySpark's spelling
        """Returns the start of a query without a checkpoint; Spark asks once and keeps the answer.

        Raises:
            OffsetOutOfRange: brokers lost messages in front of it since its epochs, and data loss is an error.
        """
        known, starting = self._options.starting_epochs, self._options.starting
        held = self._held(known)
        if known and isinstance(starting, Mapping):
            _, losses = begin(held, starting)
            self._tell([one for one in losses if one.changed_from >= 0])
        starts = starts_of(self._options, held)
        return to_json(starts, {**epochs_after(held, {}, starts, {}), **known})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - PySpark's spelling
        """Returns the limit of the option `maxRecordsPerBatch`."""
        most = self._options.records_per_batch
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - PySpark's spelling
        """Makes the current ends of the topics the end of the query."""
        self._target = self._held()

    def latestOffset(  # noqa: N802 - PySpark's spelling
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, dict[str, int]]:
        """Returns the end of the next micro-batch.

        Raises:
            OffsetOutOfRange: a queue does not hold its next record, and data loss is an error.
            ConnectionLost: the broker could not be reached for as long as the settings allow.
        """
        at, epochs = from_json(start), epochs_of(start)
        held = self._seen = self._now(epochs)
        _, losses = begin(held, at)
        self._tell(losses)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        goals = advance(held, at, most)
        return to_json(goals, epochs_after(held, at, goals, epochs))

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:  # noqa: N802 - PySpark's
        """Returns the ends of the topics at the last call of `latestOffset`."""
        return None if self._seen is None else to_json(advance(self._seen, {}, None))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Returns one partition for each queue and range of a micro-batch.

        Raises:
            OffsetOutOfRange: the broker does not hold all of it, and data loss is an error.
        """
        first, last = from_json(start), from_json(end)
        held = ends = self._held(epochs_of(start))
        if epochs_of(start) != epochs_of(end):
            ends = self._held(epochs_of(end))
        self._tell(missing(held, first, last, ends))
        pieces = split_slices(between(held, first, last, ends), self._options.split_records)
        return [SlicePartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one partition, on an executor."""
        return read_record_batches(
            self._options.broker, partition.value, self._choice, connect=self.connect
        )

    def _held(self, epochs: Mapping[QueueRef, int] | None = None) -> list[QueueRange]:
        # A stream outlives a restart of the broker.
        return fetch_ranges(
            self._options.broker,
            self._options.topics,
            known=epochs,
            patient=True,
            connect=self.connect,
        )

    def _now(self, epochs: Mapping[QueueRef, int]) -> list[QueueRange]:
        """Returns what a micro-batch may read; an available-now query reads no more than there was at its start."""
        if self._target is None:
            return self._held(epochs)
        changed = {
            (one.topic, one.queue_id): one.changed_from
            for one in (self._held(epochs) if epochs else ())
        }
        return [
            replace(one, changed_from=changed.get((one.topic, one.queue_id), -1))
            for one in self._target
        ]

    def _tell(self, losses: Sequence[Loss]) -> None:
        if losses and self._options.fail_on_data_loss:
            raise OffsetOutOfRange(
                "; ".join(loss.sentence for loss in losses)
                + "; set failOnDataLoss=false to go on with the records that are left"
            )
        for loss in losses:
            _log.warning(
                "records were deleted before the stream read them"
                if loss.changed_from < 0
                else "brokers lost records that the stream had read; it reads those in their place",
                topic=loss.queue.topic, queue_id=loss.queue.queue_id,
                next=loss.at, first=loss.first, end=loss.end, changed_from=loss.changed_from,
            )  # fmt: skip

"""
A micro-batch of the event topic: which offsets it holds, and its messages, here or as streams there.

Used by the sink; reads the batch of a structured-streaming query, a frame of `format("headrace")`.
It must not know a database.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

from headrace.spark.executor.fold import STREAM
from headrace.transports.base import Incoming, QueueId

__all__ = ["MicroBatch", "Span"]

_MESSAGE: Final = (
    "topic",
    "queue_id",
    "offset",
    "key",
    "body",
    "coalesce(headers['kind'], '') as kind",
    "unix_millis(stored_at) as moment",
)
# What `fold.RECORD_SCHEMA` says, of a message with events in it.
_STREAM: Final = (
    f"'{STREAM}' as kind",
    "key",
    "unix_millis(stored_at) as moment",
    "queue_id as queue",
    "offset",
    "cast(0 as bigint) as turn",
    "cast(0 as bigint) as number",
    "body as data",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Offsets of one queue: `start` is the first one, `end` the one behind the last."""

    queue: QueueId
    start: int
    end: int


class MicroBatch:
    """Messages of one topic, all between two offsets of each queue.

    Args:
        frame: the messages, with every column of the data source but perhaps the times.
    """

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame

    def spans(self) -> list[Span]:
        """Returns what it holds of each queue."""
        queues = self._frame.groupBy("topic", "queue_id")
        found = queues.agg(expr("min(offset)"), expr("max(offset)")).collect()
        return [
            Span(queue=(topic, queue_id), start=first, end=last + 1)
            for topic, queue_id, first, last in sorted(map(tuple, found))
        ]

    def after(self, offsets: Mapping[QueueId, int]) -> "MicroBatch":
        """Returns what stands at these offsets or behind them."""
        if not offsets:
            return self
        wanted = (f"(queue_id <> {n} or offset >= {at})" for (_, n), at in offsets.items())
        return MicroBatch(self._frame.where(" and ".join(wanted)))

    def messages(self) -> list[Incoming]:
        """Brings its messages here, in the order in which the broker stored them."""
        found = self._frame.selectExpr(*_MESSAGE).toArrow().to_pylist()
        found.sort(key=lambda one: (one["queue_id"], one["offset"]))
        latest: dict[int, int] = {}
        for one in found:
            # A broker's clock may have been set back; the order of a queue holds all the same.
            one["moment"] = max(one["moment"], latest.get(one["queue_id"], 0))
            latest[one["queue_id"]] = one["moment"]
        found.sort(key=lambda one: (one["moment"], one["queue_id"], one["offset"]))
        return [
            Incoming(
                queue=(one["topic"], one["queue_id"]),
                offset=one["offset"],
                key=one["key"],
                tag="",
                headers={"kind": one["kind"]},
                body=one["body"],
            )
            for one in found
        ]

    def streams(self) -> DataFrame:
        """Returns its streams as records of `fold.RECORD_SCHEMA`, rejections left out."""
        return self._frame.where("headers['kind'] is distinct from 'rejection'").selectExpr(
            *_STREAM
        )

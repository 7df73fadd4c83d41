"""
Typed events of streams that were brought together by aggregate.

    read_streams ─▶ shuffle by aggregate, in the order of places ─▶ type_streams: gate, decode, columns

An event stands where the message stood that let it pass: `moment`, `part` (the queue) and `turn`, which
grows with the offset. So events of several aggregates have the order in which the broker stored them, as if
each queue were read by one task. Used by jobs that read typed events; uses `event_reader`.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from headrace.spark.executor.decode import LightStream
from headrace.spark.executor.event_reader import Reading, TypedSlice, open_reading
from headrace.spark.executor.fold import Batches, EventPlace, TopicMessage
from headrace.spark.executor.plan import FoldPlan
from headrace.spark.executor.streams import streams_beside, whole_aggregates

__all__ = ["type_streams"]

# Room behind an offset for the events that one message lets pass: a million of them.
_TURN_BITS: Final = 20


class _TypedStreams(TypedSlice):
    """The events of streams that come one at a time, each with its place."""

    _part = 0
    _under_way = ""

    def take(self, topic: str, messages: Sequence[TopicMessage]) -> None:
        """Takes messages in; raises as `TypedSlice.take`."""
        for message in messages:
            self._part = message.place.queue
            self._turn = message.place.offset << _TURN_BITS
            # Of another aggregate the next one may have been stored before.
            self._moment = message.place.moment
            super().take(topic, [message])

    def learn(self, records: pa.RecordBatch) -> None:
        """Takes in the last versions from before the topic that streams came with; zero: there is none."""
        if not pc.any(pc.not_equal(records["number"], 0)).as_py():
            return
        keys = records["key"].to_pylist()
        bases = dict(zip(keys, records["number"].to_pylist(), strict=True))
        # The gate has moved on from the base of an aggregate that is under way.
        bases.pop(self._under_way, None)
        self._under_way = keys[-1]
        self._gate.learn({key: version for key, version in bases.items() if version})

    def settle(self) -> None:
        """Lets pass what was held back, because no more will come of the aggregates so far."""
        self._pass_rest()

    def _gather(self, stream: LightStream, moment: int) -> None:
        super()._gather(stream, moment)
        for gathered in self._gathered:
            gathered.parts += [self._part] * (len(gathered.streams) - len(gathered.parts))


def type_streams(plan: FoldPlan, reading: Reading, batches: Batches) -> Batches:
    """Yields events, versions and tallies of sorted streams, and what reading queues took.

    The last version of an aggregate before the topic's part that is read comes as the `number` of its streams.

    Raises:
        ProjectionError: as `read_typed`.
    """
    with closing(open_reading(plan, reading)) as typing:
        context = TaskContext.get()
        # What a task tells stays apart from what another one tells.
        task = context.partitionId() if context else 0
        typed = _TypedStreams(reading, typing.decoder, typing.places, task, typing.find)
        measured: Counter[str] = Counter()

        def take_others(others: pa.RecordBatch) -> None:
            columns = (others[name].to_pylist() for name in ("key", "number"))
            for name, number in zip(*columns, strict=True):
                measured[name] += number

        topic = plan.slices[0].queue.topic
        for some in whole_aggregates(streams_beside(batches, take_others)):
            if some is None:
                typed.settle()
            else:
                typed.learn(some)
                typed.take(topic, _messages(some))
            if typed.full:
                yield from typed.flush()
        yield from typed.finish(measured.items())


def _messages(records: pa.RecordBatch) -> list[TopicMessage]:
    columns = (records[name].to_pylist() for name in ("moment", "queue", "offset", "key", "data"))
    return [
        TopicMessage(EventPlace(moment, queue, offset), key, body)
        for moment, queue, offset, key, body in zip(*columns, strict=True)
    ]

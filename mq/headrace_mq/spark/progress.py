"""
The progress of a stream: its offsets, as Spark keeps them in a checkpoint, and its next step.

Used by `stream`, which passes in the ranges that the broker holds. Pure.

A checkpoint holds `{"orders": {"0": 12, "1": 7}}`: the next offset to read of each queue. If a queue
is not in it, the queue was added to its topic later: the stream reads it from 0.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import QueueRange
from headrace_mq.spark.offsets import QueueSlice

__all__ = ["Loss", "advance", "begin", "between", "from_json", "missing", "to_json"]

Offsets = Mapping[QueueRef, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A queue without the next record: it was deleted, or the queue was recreated.

    The stream wants to read `at` next. The queue holds `first` to before `end`.
    """

    queue: QueueRef
    at: int
    first: int
    end: int

    @property
    def sentence(self) -> str:
        """Returns what happened, as a sentence for the user."""
        name = f"{self.queue.topic}/{self.queue.queue_id}"
        if self.at < self.first:
            return f"offset {self.at} of {name} was deleted; the first one held is {self.first}"
        return (
            f"offset {self.at} of {name} was reached before, but the queue ends at {self.end}: the"
            " topic was recreated, or the broker lost its data"
        )


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> dict[QueueRef, int]:
    """Reads offsets from a checkpoint."""
    return {
        QueueRef(topic, int(queue_id)): offset
        for topic, queues in offsets.items()
        for queue_id, offset in queues.items()
    }


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Returns offsets as a checkpoint keeps them, in a fixed order: Spark compares the text."""
    topics: dict[str, dict[str, int]] = {}
    for queue, offset in sorted(offsets.items()):
        topics.setdefault(queue.topic, {})[str(queue.queue_id)] = offset
    return topics


def begin(held: Iterable[QueueRange], start: Offsets) -> tuple[dict[QueueRef, int], list[Loss]]:
    """Returns the next offset of each queue that the broker holds, and the losses.

    If a queue lost records, its next offset is the first record that it holds.
    """
    places: dict[QueueRef, int] = {}
    losses: list[Loss] = []
    for one in held:
        queue = QueueRef(one.topic, one.queue_id)
        at = places[queue] = start.get(queue, 0)
        if not one.first <= at <= one.end:
            losses.append(Loss(queue=queue, at=at, first=one.first, end=one.end))
            places[queue] = one.first
    return places, losses


def advance(
    held: Sequence[QueueRange], start: Offsets, records_max: int | None
) -> dict[QueueRef, int]:
    """Returns the end of the next micro-batch: each queue advances by its share of `records_max`.

    Each queue that has records to read gets one. The rest of the limit is divided in proportion to
    what waits in each queue. None is no limit. Queues that the broker does not hold keep their offset;
    new queues start at their first record.
    """
    places, _ = begin(held, start)
    ends = {QueueRef(one.topic, one.queue_id): one.end for one in held}
    waiting = {queue: ends[queue] - at for queue, at in places.items()}
    total, queues = sum(waiting.values()), sum(map(bool, waiting.values()))
    goals = dict(start)
    for queue, at in places.items():
        step = waiting[queue]
        if records_max is not None and total > records_max and step:
            step = 1 + (step - 1) * max(records_max - queues, 0) // max(total - queues, 1)
        if queue in start or step:
            goals[queue] = at + step
    return goals


def between(held: Iterable[QueueRange], start: Offsets, end: Offsets) -> list[QueueSlice]:
    """Returns the held ranges that a micro-batch reads.

    If the end is before the start, the queue was recreated: it is read from its first record.
    """
    ranges = {QueueRef(one.topic, one.queue_id): one for one in held}
    slices: list[QueueSlice] = []
    for queue, goal in sorted(end.items()):
        at, one = start.get(queue, 0), ranges.get(queue)
        if one is None or at == goal:
            continue
        first = one.first if goal < at else max(at, one.first)
        last = min(goal, one.end)
        if first < last:
            slices.append(QueueSlice(queue=queue, start=first, end=last))
    return slices


def missing(held: Iterable[QueueRange], start: Offsets, end: Offsets) -> list[Loss]:
    """Returns the queues that do not hold all of a micro-batch; a deleted queue holds nothing."""
    ranges = {QueueRef(one.topic, one.queue_id): one for one in held}
    losses: list[Loss] = []
    for queue, goal in sorted(end.items()):
        at = start.get(queue, 0)
        one = ranges.get(queue) or QueueRange(queue.topic, queue.queue_id, 0, 0)
        if at == goal:
            continue
        if at < one.first:
            losses.append(Loss(queue=queue, at=at, first=one.first, end=one.end))
        elif goal < at or goal > one.end:
            losses.append(Loss(queue=queue, at=max(at, goal), first=one.first, end=one.end))
    return losses

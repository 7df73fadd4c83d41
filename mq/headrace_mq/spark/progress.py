"""
The progress of a stream: its offsets, as Spark keeps them in a checkpoint, and its next step.

Used by `stream`, which passes in the ranges that the broker holds. Pure.

A checkpoint holds `{"orders": {"0": 12, "1": 7}}`: the next offset to read of each queue. If a queue
is not in it, the queue was added to its topic later: the stream reads it from 0. With `"%epochs%orders": {"0": 3}` it
holds the epoch of the queue's brokers before the messages in front of the offset were read: if brokers have lost
messages since, others may stand there. Earlier versions wrote no epochs, and take these for queues that are gone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import QueueRange
from headrace_mq.spark.offsets import QueueSlice

__all__ = [
    "Loss",
    "advance",
    "begin",
    "between",
    "epochs_after",
    "epochs_of",
    "from_json",
    "missing",
    "to_json",
]

Offsets = Mapping[QueueRef, int]

_EPOCHS: Final = "%epochs%"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A queue without the next record: it was deleted, or the queue was recreated, or brokers lost it.

    The stream wants to read `at` next. The queue holds `first` to before `end`. From `changed_from` on it holds other
    messages than those that the stream has read; -1: it does not.
    """

    queue: QueueRef
    at: int
    first: int
    end: int
    changed_from: int = -1

    @property
    def sentence(self) -> str:
        """Returns what happened, as a sentence for the user."""
        name = f"{self.queue.topic}/{self.queue.queue_id}"
        if self.changed_from >= 0:
            return (
                f"{name} was read up to offset {self.at}, but brokers lost its messages from {self.changed_from} on, and"
                " others have their offsets: what was written may have lost messages, and lacks those that followed, so"
                " build it again with a new checkpoint"
            )
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
        if not topic.startswith(_EPOCHS)
    }


def epochs_of(offsets: Mapping[str, Mapping[str, int]]) -> dict[QueueRef, int]:
    """Reads epochs from a checkpoint; none of queues that an earlier version has read."""
    return {
        QueueRef(topic.removeprefix(_EPOCHS), int(queue_id)): epoch
        for topic, queues in offsets.items()
        for queue_id, epoch in queues.items()
        if topic.startswith(_EPOCHS)
    }


def to_json(
    offsets: Offsets, epochs: Mapping[QueueRef, int] | None = None
) -> dict[str, dict[str, int]]:
    """Returns offsets as a checkpoint keeps them, in a fixed order: Spark compares the text."""
    topics: dict[str, dict[str, int]] = {}
    for queue, offset in sorted(offsets.items()):
        topics.setdefault(queue.topic, {})[str(queue.queue_id)] = offset
    for queue, epoch in sorted((epochs or {}).items()):
        topics.setdefault(f"{_EPOCHS}{queue.topic}", {})[str(queue.queue_id)] = epoch
    return topics


def epochs_after(
    held: Iterable[QueueRange], start: Offsets, goals: Offsets, epochs: Mapping[QueueRef, int]
) -> dict[QueueRef, int]:
    """Returns the epochs of the next micro-batch; those of queues in which nothing is read stay as they are.

    Args:
        held: asked for before the messages are read.
        start: where the micro-batch begins.
        goals: where it ends.
        epochs: those at the start.
    """
    found = dict(epochs)
    for one in held:
        queue = QueueRef(one.topic, one.queue_id)
        at = start.get(queue)
        moved = queue in goals and (at is None or goals[queue] != at or one.kept(at) != at)
        if moved and one.epoch:
            found[queue] = one.epoch
    return found


def begin(held: Iterable[QueueRange], start: Offsets) -> tuple[dict[QueueRef, int], list[Loss]]:
    """Returns the next offset of each queue that the broker holds, and the losses.

    If a queue lost records, its next offset is the first record that it holds, or the first one that has changed.
    """
    places: dict[QueueRef, int] = {}
    losses: list[Loss] = []
    for one in held:
        queue = QueueRef(one.topic, one.queue_id)
        at = places[queue] = start.get(queue, 0)
        if (kept := one.kept(at)) < at:
            losses.append(_changed(queue, at, one))
            places[queue] = max(kept, one.first)
        elif not one.first <= at <= one.end:
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


def between(
    held: Iterable[QueueRange], start: Offsets, end: Offsets, ends: Iterable[QueueRange] = ()
) -> list[QueueSlice]:
    """Returns the held ranges that a micro-batch reads.

    If the end is before the start, the queue was recreated: it is read from its first record. If messages in front of the
    end have changed since it was planned, those are left to the next micro-batch, which begins with them.

    Args:
        held: what the broker holds, and what has changed since the epochs of the start.
        start: where the micro-batch begins.
        end: where it ends.
        ends: as `held`, since the epochs of the end.
    """
    ranges = {QueueRef(one.topic, one.queue_id): one for one in held}
    limits = {QueueRef(one.topic, one.queue_id): one for one in ends}
    slices: list[QueueSlice] = []
    for queue, planned in sorted(end.items()):
        one = ranges.get(queue)
        if one is None:
            continue
        goal = limits[queue].kept(planned) if queue in limits else planned
        at = one.kept(start.get(queue, 0))
        # It was cut back, and is read again from where it was cut.
        cut = goal < planned or at < start.get(queue, 0)
        if at == goal or (cut and goal < at):
            continue
        first = one.first if goal < at else max(at, one.first)
        last = min(goal, one.end)
        if first < last:
            slices.append(QueueSlice(queue=queue, start=first, end=last))
    return slices


def missing(
    held: Iterable[QueueRange], start: Offsets, end: Offsets, ends: Iterable[QueueRange] = ()
) -> list[Loss]:
    """Returns the queues that do not hold all of a micro-batch; a deleted queue holds nothing. `ends` as of `between`."""
    ranges = {QueueRef(one.topic, one.queue_id): one for one in held}
    limits = {QueueRef(one.topic, one.queue_id): one for one in ends}
    losses: list[Loss] = []
    for queue, goal in sorted(end.items()):
        at = start.get(queue, 0)
        one = ranges.get(queue) or QueueRange(queue.topic, queue.queue_id, 0, 0)
        limit = limits.get(queue, one)
        if one.kept(at) < at:
            losses.append(_changed(queue, at, one))
        elif at == goal:
            continue
        elif at < one.first:
            losses.append(Loss(queue=queue, at=at, first=one.first, end=one.end))
        elif limit.kept(goal) < goal:
            losses.append(_changed(queue, goal, limit))
        elif goal < at or goal > one.end:
            losses.append(Loss(queue=queue, at=max(at, goal), first=one.first, end=one.end))
    return losses


def _changed(queue: QueueRef, at: int, one: QueueRange) -> Loss:
    changed = max(one.first, one.changed_from)
    return Loss(queue=queue, at=at, first=one.first, end=one.end, changed_from=changed)

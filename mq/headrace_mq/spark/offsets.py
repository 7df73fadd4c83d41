"""
Which offsets a read covers: options in, one slice per Spark partition out.

Used by `source`, which has the options as text, and by `reader`, which reads one slice. Pure: the
caller passes the ranges that the broker holds.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import QueueRange

__all__ = [
    "Bound",
    "QueueSlice",
    "deleted_before",
    "parse_bound",
    "parse_moment",
    "plan_slices",
    "split_slices",
]

# "earliest", "latest", or offsets of some queues; all other queues keep the default.
Bound = Literal["earliest", "latest"] | Mapping[QueueRef, int]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_decode = msgspec.json.Decoder(dict[str, dict[str, int]]).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSlice:
    """A range of one queue's offsets: `start` is read, `end` is not."""

    queue: QueueRef
    start: int
    end: int

    @property
    def records(self) -> int:
        """The number of offsets in the range."""
        return self.end - self.start


def parse_bound(option: str, text: str) -> Bound:
    """Reads the value of `startingOffsets` or `endingOffsets`.

    Raises:
        ValueError: it is neither a known word nor JSON such as `{"orders": {"0": 12}}`.
    """
    word = text.strip().lower()
    if word == "earliest":
        return "earliest"
    if word == "latest":
        return "latest"
    wanted = f'{option}: use "earliest", "latest" or JSON such as {{"orders": {{"0": 12}}}}'
    try:
        topics = _decode(text)
        bound = {
            QueueRef(topic, int(queue_id)): offset
            for topic, queues in topics.items()
            for queue_id, offset in queues.items()
        }
    except (msgspec.DecodeError, ValueError) as error:
        raise ValueError(f"{wanted}, not {text!r}: {error}") from error
    negative = [offset for offset in bound.values() if offset < 0]
    if negative:
        raise ValueError(f"{wanted}; an offset is 0 or more, not {negative[0]}")
    return bound


def parse_moment(option: str, text: str) -> int:
    """Reads the value of `startingTimestamp` or `endingTimestamp` as milliseconds since 1970 UTC.

    Raises:
        ValueError: it is neither a number of milliseconds nor an ISO 8601 time with its zone.
    """
    word = text.strip()
    if word.isascii() and word.isdigit():
        return int(word)
    try:
        moment = datetime.fromisoformat(word)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(
            f"{option}: use milliseconds since 1970 UTC or a time with its zone such as"
            f" 2026-01-31T09:00:00Z, not {text!r}"
        )
    # Round up: a record stored earlier within the same millisecond is before the moment.
    return -((_EPOCH - moment) // timedelta(milliseconds=1))


def deleted_before(held: Sequence[QueueRange], bound: Bound) -> list[QueueSlice]:
    """Returns the ranges that a bound names but the broker has deleted."""
    if isinstance(bound, str):
        return []
    firsts = {QueueRef(one.topic, one.queue_id): one.first for one in held}
    return [
        QueueSlice(queue=queue, start=offset, end=firsts[queue])
        for queue, offset in bound.items()
        if offset < firsts.get(queue, 0)
    ]


def plan_slices(
    held: Sequence[QueueRange],
    *,
    starting: Bound = "earliest",
    ending: Bound = "latest",
    split_records: int | None = None,
) -> list[QueueSlice]:
    """Cuts what the broker holds into slices; a queue without a record to read gets no slice.

    Args:
        held: the ranges of all queues of the topics, taken once.
        starting: where to begin; queues that a mapping leaves out begin at their first offset.
        ending: where to end; queues that a mapping leaves out end where they end now.
        split_records: the most records in one slice; None for one slice per queue.

    Raises:
        ValueError: a bound names a queue that is not there, lies outside what the broker holds, or
            starts after its end; or `split_records` is below 1.
    """
    if split_records is not None and split_records < 1:
        raise ValueError(f"splitRecords is 1 or more, not {split_records}")
    known = {QueueRef(queue.topic, queue.queue_id) for queue in held}
    for option, bound in (("startingOffsets", starting), ("endingOffsets", ending)):
        _refuse_unknown(option, bound, known)
    return list(split_slices((_slice_of(queue, starting, ending) for queue in held), split_records))


def split_slices(slices: Iterable[QueueSlice], records_max: int | None) -> Iterator[QueueSlice]:
    """Cuts slices into pieces of at most `records_max` records, in order; leaves out empty slices."""
    for whole in slices:
        step = records_max or max(whole.records, 1)
        for start in range(whole.start, whole.end, step):
            yield QueueSlice(queue=whole.queue, start=start, end=min(start + step, whole.end))


def _refuse_unknown(option: str, bound: Bound, known: Iterable[QueueRef]) -> None:
    unknown = [] if isinstance(bound, str) else sorted(set(bound) - set(known))
    if unknown:
        names = ", ".join(f"{queue.topic}/{queue.queue_id}" for queue in unknown)
        raise ValueError(f"{option} names queues that are not read or do not exist: {names}")


def _slice_of(queue: QueueRange, starting: Bound, ending: Bound) -> QueueSlice:
    ref = QueueRef(queue.topic, queue.queue_id)
    name = f"{queue.topic}/{queue.queue_id}"
    start = _offset(starting, ref, queue, default=queue.first)
    end = _offset(ending, ref, queue, default=queue.end)
    if not queue.first <= start <= queue.end:
        raise ValueError(
            f"startingOffsets asks for offset {start} of {name}, which holds {queue.first} to"
            f" {queue.end}; start at an offset in this range"
            + (
                f"; or set failOnDataLoss=false to go on from {queue.first}"
                if start < queue.first
                else ""
            )
        )
    if end > queue.end:
        raise ValueError(
            f"endingOffsets asks for offset {end} of {name}, which ends at {queue.end}; ask for this offset or a lower one"
        )
    if end < start:
        raise ValueError(
            f"{name}: the read would start at {start}, after its end at {end}; correct one of the options"
        )
    return QueueSlice(queue=ref, start=start, end=end)


def _offset(bound: Bound, ref: QueueRef, queue: QueueRange, *, default: int) -> int:
    if bound == "earliest":
        return queue.first
    if bound == "latest":
        return queue.end
    assert not isinstance(bound, str)
    return bound.get(ref, default)

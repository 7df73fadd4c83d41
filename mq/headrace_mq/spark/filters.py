"""
Turns Spark's filters into bounds on what is fetched: filters in, a `RowFilter` and the filters left over out.

Used by `source`, to which Spark offers its filters. This module accepts a filter only if the bounds
leave out every row that the filter rejects. All other filters go back to Spark, which applies them
to each row. Pure.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from headrace_mq.protocol.batch import BatchHeader, tag_bit
from headrace_mq.spark.offsets import QueueSlice

__all__ = ["NumberRange", "RowFilter", "take_filters"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER_NULL = frozenset(
    {"topic", "queue_id", "offset", "key", "tag", "body", "born_at", "stored_at"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberRange:
    """Whole numbers from `low` to `high`, both included, and only those of `among` if given."""

    low: int | None = None
    high: int | None = None
    among: frozenset[int] | None = None

    def __contains__(self, number: int) -> bool:
        return (
            (self.low is None or number >= self.low)
            and (self.high is None or number <= self.high)
            and (self.among is None or number in self.among)
        )

    def __and__(self, other: "NumberRange") -> "NumberRange":
        lows = [low for low in (self.low, other.low) if low is not None]
        highs = [high for high in (self.high, other.high) if high is not None]
        sets = [among for among in (self.among, other.among) if among is not None]
        return NumberRange(
            low=max(lows, default=None),
            high=min(highs, default=None),
            among=frozenset.intersection(*sets) if sets else None,
        )


ANY = NumberRange()


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFilter:
    """The rows that may pass the filters; None and `ANY` stand for no bound.

    `stored_us` counts microseconds since 1970 UTC, as Spark's timestamps do.
    """

    topics: frozenset[str] | None = None
    tags: frozenset[str] | None = None
    queue_ids: NumberRange = ANY
    offsets: NumberRange = ANY
    stored_us: NumberRange = ANY

    def narrow(self, slices: Iterable[QueueSlice]) -> Iterator[QueueSlice]:
        """Yields the part of each slice that may pass; slices without such a part are left out."""
        among = self.offsets.among
        offsets = self.offsets
        if among is not None:
            # Read one range that covers all of them; Spark picks the rows.
            offsets &= NumberRange(low=min(among, default=0), high=max(among, default=-1))
        for piece in slices:
            topic, queue_id = piece.queue
            if self.topics is not None and topic not in self.topics:
                continue
            if queue_id not in self.queue_ids:
                continue
            start = piece.start if offsets.low is None else max(piece.start, offsets.low)
            end = piece.end if offsets.high is None else min(piece.end, offsets.high + 1)
            if start < end:
                yield QueueSlice(queue=piece.queue, start=start, end=end)

    def chooser(self) -> Callable[[BatchHeader], bool] | None:
        """Returns a test of wire batches: may any row of it pass? None if every batch may."""
        stored = self.stored_us
        if self.tags is None and stored == ANY:
            return None
        mask = -1
        if self.tags is not None:
            mask = 0
            for tag in self.tags:
                mask |= tag_bit(tag)

        def keep(header: BatchHeader) -> bool:
            return bool(header.tag_summary & mask) and header.appended_at_ms * 1_000 in stored

        return keep


def take_filters(filters: Iterable[Filter]) -> tuple[RowFilter, list[Filter]]:
    """Returns the bounds, and the filters that Spark still has to apply."""
    wanted, left = RowFilter(), []
    for one in filters:
        wanted, exact = _take(wanted, one)
        if not exact:
            left.append(one)
    return wanted, left


def _take(wanted: RowFilter, one: Filter) -> tuple[RowFilter, bool]:
    column = ".".join(getattr(one, "attribute", ()))
    if isinstance(one, IsNotNull):
        return wanted, column in _NEVER_NULL
    if column in {"topic", "tag"}:
        words = _words(one)
        if words is None:
            return wanted, False
        if column == "topic":
            return replace(wanted, topics=_common(wanted.topics, words)), True
        # Several tags share one bit of the summary, so Spark must check each row.
        return replace(wanted, tags=_common(wanted.tags, words)), False
    if column in {"queue_id", "offset", "stored_at"}:
        numbers = _numbers(one, _microseconds if column == "stored_at" else _whole)
        if numbers is None:
            return wanted, False
        if column == "queue_id":
            return replace(wanted, queue_ids=wanted.queue_ids & numbers), True
        if column == "offset":
            return replace(wanted, offsets=wanted.offsets & numbers), numbers.among is None
        # All records of a wire batch were stored at once, so leaving out batches is exact.
        return replace(wanted, stored_us=wanted.stored_us & numbers), True
    return wanted, False


def _common(before: frozenset[str] | None, words: frozenset[str]) -> frozenset[str]:
    return words if before is None else before & words


def _words(one: Filter) -> frozenset[str] | None:
    values = one.value if isinstance(one, In) else [getattr(one, "value", None)]
    if isinstance(one, EqualTo | EqualNullSafe | In) and all(isinstance(v, str) for v in values):
        return frozenset(values)
    return None


def _numbers(one: Filter, convert: Callable[[Any], int | None]) -> NumberRange | None:
    if isinstance(one, In):
        several = [convert(value) for value in one.value]
        known = frozenset(value for value in several if value is not None)
        return NumberRange(among=known) if None not in several else None
    value = convert(getattr(one, "value", None))
    if value is None:
        return None
    match one:
        case EqualTo() | EqualNullSafe():
            return NumberRange(low=value, high=value)
        case GreaterThan():
            return NumberRange(low=value + 1)
        case GreaterThanOrEqual():
            return NumberRange(low=value)
        case LessThan():
            return NumberRange(high=value - 1)
        case LessThanOrEqual():
            return NumberRange(high=value)
    return None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _microseconds(value: Any) -> int | None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // timedelta(microseconds=1)

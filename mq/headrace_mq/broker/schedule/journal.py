"""
What stands in the schedule's journal, queue 0 of `%SCHEDULE%`: records to values and back. PURE.

    client   a message for a date, as `protocol.scheduled` says                  -> Entry
             a message for a time from now                                        -> Delayed
    broker   `moved`      the same message again, further on in the journal       -> Moved
             `cancelled`  one that was taken back                                 -> Cancelled
             `deliver`    what is about to be delivered, and as which batches     -> Delivery
             `delivered`  the last `deliver` is done                              -> Delivered
             `clock`      by how much the clock was set, for delays behind it     -> ClockSet

A record of the broker has KIND_HEADER; a client's may not.

Used by `scheduler`, which reads and appends the records. `entries` knows what they mean together.
"""

from collections.abc import Mapping, Sequence

import msgspec

from headrace_mq.access.audit import AUDIT_TOPIC
from headrace_mq.broker.journal.batches import own_columns
from headrace_mq.broker.schedule.wheel import Entry
from headrace_mq.errors import DataCorrupt, InvalidArgument
from headrace_mq.message import check_topic
from headrace_mq.protocol.batch import BatchHeader, Columns
from headrace_mq.protocol.scheduled import (
    AHEAD_MS_MAX,
    AT_HEADER,
    DELAY_HEADER,
    RESERVED_PREFIX,
    SCHEDULE_TOPIC,
    TOPIC_HEADER,
)

__all__ = [
    "KIND_HEADER",
    "Cancelled",
    "ClockSet",
    "Delayed",
    "Delivered",
    "Delivery",
    "Event",
    "Moved",
    "ScheduledBatch",
    "check_scheduled",
    "headers_of",
    "moved_headers",
    "own_record",
    "read_event",
]

KIND_HEADER = RESERVED_PREFIX + "kind"
_NUMBER_HEADER = RESERVED_PREFIX + "number"
# On a message that is written again: its time is not a date, but a delay that counts on.
_STEADY_HEADER = RESERVED_PREFIX + "steady"
_MOVED = "moved"
# A batch is refused as a whole, and clients check what they send: so only a client with a clock that
# is wrong by more than this gets others refused.
_SKEW_MS_MAX = 86_400_000
# 2^53: what every language's numbers hold.
_TIME_MS_MAX = 1 << 53


class Delayed(msgspec.Struct, frozen=True):
    """A message that is due some time after it was stored; `entry.due_ms` as the clock said then."""

    entry: Entry


class Moved(msgspec.Struct, frozen=True):
    """A pending message stands at another place now; a delay is as the clock says at that place."""

    entry: Entry
    is_delay: bool = False


class Cancelled(msgspec.Struct, frozen=True, array_like=True, tag="cancelled"):
    """A pending message was taken back."""

    number: int
    due_ms: int


class ScheduledBatch(msgspec.Struct, frozen=True, array_like=True):
    """One batch of a delivery: where it goes, its producer's sequence, and what is in it."""

    topic: str
    queue_id: int
    first_sequence: int
    entries: list[Entry]


class Delivery(msgspec.Struct, frozen=True, array_like=True, tag="deliver"):
    """The batches that are about to be appended, by the producer epoch of one broker start.

    `lost` are messages that can no longer be read; they are not pending either.
    """

    epoch: int
    parts: list[ScheduledBatch]
    lost: list[Entry] = []

    def entries(self) -> list[Entry]:
        """Everything that is pending no more."""
        return [*(entry for part in self.parts for entry in part.entries), *self.lost]


class Delivered(msgspec.Struct, frozen=True, array_like=True, tag="delivered"):
    """The delivery before this is done, durably."""


class ClockSet(msgspec.Struct, frozen=True, array_like=True, tag="clock"):
    """From here on the clock is so much ahead of the steady one."""

    ahead_ms: int


Event = Entry | Delayed | Moved | Cancelled | Delivery | Delivered | ClockSet
_OwnEvent = Cancelled | Delivery | Delivered | ClockSet

_decode = msgspec.msgpack.Decoder(_OwnEvent).decode


def own_record(*events: _OwnEvent) -> Columns:
    """Returns the columns of a batch that holds the broker's own records."""
    return own_columns(KIND_HEADER, events)


def moved_headers(
    headers: Mapping[str, str], entry: Entry, *, is_delay: bool = False
) -> dict[str, str]:
    """Returns the headers of a pending message that is written again."""
    steady = {_STEADY_HEADER: "1"} if is_delay else {}
    kept = {name: text for name, text in headers.items() if name != DELAY_HEADER}
    return (
        kept
        | steady
        | {
            KIND_HEADER: _MOVED,
            _NUMBER_HEADER: str(entry.number),
            AT_HEADER: str(entry.due_ms),
        }
    )


def headers_of(headers: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Returns the topic a message goes to, and the headers it arrives with."""
    kept = {name: text for name, text in headers.items() if not name.startswith(RESERVED_PREFIX)}
    return headers[TOPIC_HEADER], kept


def read_event(header: BatchHeader, columns: Columns, index: int) -> Event:
    """Reads the record at `index` of a batch. Raises DataCorrupt where it means nothing."""
    headers = columns.headers[index] if columns.headers else {}
    offset = header.base_offset + index
    try:
        kind = headers.get(KIND_HEADER)
        if kind is None:
            entry = Entry(_due_ms(headers, header.appended_at_ms), offset, offset)
            return entry if AT_HEADER in headers else Delayed(entry)
        if kind == _MOVED:
            entry = Entry(int(headers[AT_HEADER]), int(headers[_NUMBER_HEADER]), offset)
            return Moved(entry, _STEADY_HEADER in headers)
        event: Event = _decode(columns.bodies[index])
    except (KeyError, ValueError, msgspec.DecodeError) as error:
        raise DataCorrupt(f"record {offset} of the schedule's journal means nothing") from error
    return event


def check_scheduled(headers: Sequence[Mapping[str, str]], count: int, *, now_ms: int) -> None:
    """Raises InvalidArgument unless a client may schedule every record with these headers."""
    if len(headers) != count:
        raise InvalidArgument(f"a scheduled message names its topic in the header {TOPIC_HEADER!r}")
    for one in headers:
        _check_one(one, now_ms)


def _check_one(headers: Mapping[str, str], now_ms: int) -> None:
    reserved = {name for name in headers if name.startswith(RESERVED_PREFIX)}
    if reserved not in ({TOPIC_HEADER, AT_HEADER}, {TOPIC_HEADER, DELAY_HEADER}):
        raise InvalidArgument(
            f"a scheduled message has the header {TOPIC_HEADER!r} and one of {AT_HEADER!r} and"
            f" {DELAY_HEADER!r}, and no other that begins with {RESERVED_PREFIX!r}"
        )
    topic = headers[TOPIC_HEADER]
    try:
        check_topic(topic)
        due_ms = _due_ms(headers, now_ms)
    except ValueError as error:
        raise InvalidArgument(f"the message cannot be scheduled: {error}") from error
    if topic in {SCHEDULE_TOPIC, AUDIT_TOPIC}:
        raise InvalidArgument(
            f"a message cannot be scheduled for {topic} itself; name another topic"
        )
    if due_ms - now_ms > AHEAD_MS_MAX + _SKEW_MS_MAX:
        raise InvalidArgument(
            f"a message is scheduled at most {AHEAD_MS_MAX} ms ahead, this one {due_ms - now_ms} ms;"
            " schedule one that schedules it later"
        )


def _due_ms(headers: Mapping[str, str], stored_at_ms: int) -> int:
    text = headers.get(AT_HEADER)
    due_ms = stored_at_ms + int(headers[DELAY_HEADER]) if text is None else int(text)
    if not 0 <= due_ms <= _TIME_MS_MAX:
        raise ValueError(f"{due_ms} ms since 1970 is no time to be due at")
    return due_ms

"""
What the parts of a folder hold, and which of them are sealed; reads no messages.

Used by `headrace history list`.
"""

from datetime import datetime
from pathlib import Path

import msgspec

from headrace.spark.archive import exported_parts
from headrace.spark.history.record import read_record

__all__ = ["ListedPart", "overview"]


class ListedPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part.

    Attributes:
        part: its number.
        topic: where its messages come from.
        start: the first offset of each queue.
        end: the offset of each queue at which the next part begins.
        messages: how many there are.
        events: how many typed events there are.
        bytes: of its files.
        sealed_at: when it was sealed, UTC; None: it is not.
        store: the id of the event store that holds the same; empty: it is not sealed.
        foreign: messages that the store does not vouch for.
        left_out: aggregates with events that do not decode.
        filled: streams that the topic lacked and the store had.
    """

    part: int
    topic: str
    start: dict[int, int]
    end: dict[int, int]
    messages: int
    events: int
    bytes: int
    sealed_at: datetime | None = None
    store: str = ""
    foreign: int = 0
    left_out: int = 0
    filled: int = 0

    def to_json(self) -> str:
        """Returns it as one line of JSON."""
        return msgspec.json.encode(self).decode()


def overview(folder: Path) -> list[ListedPart]:
    """Returns the parts, oldest first.

    Raises:
        ProjectionError: a part is missing or unreadable, or was changed after it was sealed.
    """
    listed = []
    for part in exported_parts(folder):
        record = read_record(folder, part.number)
        listed.append(
            ListedPart(
                part=part.number,
                topic=part.topic,
                start=part.start,
                end=part.end,
                messages=part.messages,
                events=sum(part.events.values()),
                bytes=part.bytes,
                sealed_at=record.sealed_at if record else None,
                store=record.store if record else "",
                foreign=record.foreign if record else 0,
                left_out=len(part.left_out),
                filled=part.filled,
            )
        )
    return listed

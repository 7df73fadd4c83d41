"""
The findings of a check, as values that can be printed or written as JSON.

Used by `inspection`, which fills it in, and by the command line and `repair`. Pure.
"""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

import msgspec

__all__ = ["CheckedFile", "Finding", "FoundQueue", "MetadataKind", "Report"]


class FoundQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue and its offsets, as its batches in the log show them."""

    topic: str
    queue_id: int
    log: str
    first: int
    next: int
    records: int


class MetadataKind(NamedTuple):
    """A small file of the broker: its type, what a start without it does, and how it is rebuilt."""

    kind: type
    loss: str
    rebuilt: Callable[[Iterable[FoundQueue]], bytes] | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding about a file.

    Attributes:
        kind: `damaged` and `missing` are damage. The others are not: `newer` needs a newer version
            to judge; `torn` is an interrupted write that was never acknowledged; `stale` is an index
            that the broker rebuilds; a start ignores `unfinished`, `set aside` and `unknown` files; an
            `undecodable` batch came from its producer in a form that no reader can decode.
        remedy: how `repair` handles it.
        position: in the log; -1 for a whole file.
        queue, base_offset, records: the messages concerned, if known.
    """

    file: str
    kind: Literal[
        "damaged",
        "missing",
        "newer",
        "torn",
        "stale",
        "unfinished",
        "set aside",
        "unknown",
        "undecodable",
    ]
    reason: str
    remedy: Literal["", "set aside", "shorten"] = ""
    position: int = -1
    length: int = 0
    queue: str = ""
    base_offset: int = -1
    records: int = 0

    @property
    def is_damage(self) -> bool:
        """Whether durable bytes cannot be read."""
        return self.kind in {"damaged", "missing"}


class CheckedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was read, and its sound content."""

    file: str
    kind: Literal["segment", "checkpoint", "metadata", "index"]
    bytes: int
    batches: int = 0
    records: int = 0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check.

    Attributes:
        ends: the log position at which each log ends.
    """

    directory: str
    files: list[CheckedFile]
    findings: list[Finding]
    queues: list[FoundQueue]
    ends: dict[str, int]

    @property
    def status(self) -> Literal["clean", "damaged", "newer"]:
        """The result in one word; `newer`: a newer version must judge a part of it."""
        if any(finding.is_damage for finding in self.findings):
            return "damaged"
        return "newer" if any(one.kind == "newer" for one in self.findings) else "clean"

"""
What a check of a store found, as values that can be printed or written as JSON.

Used by `inspection`, which fills it in, and by the command line and `repair`. Pure.
"""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

import msgspec

__all__ = ["CheckedFile", "Finding", "FoundQueue", "MetadataKind", "Report"]


class FoundQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as its batches in the log show it."""

    topic: str
    queue_id: int
    log: str
    first: int
    next: int
    records: int


class MetadataKind(NamedTuple):
    """A small file of the broker: its type, what a start without it does, how it is made again."""

    kind: type
    loss: str
    rebuilt: Callable[[Iterable[FoundQueue]], bytes] | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something to know about a file.

    Attributes:
        kind: `damaged` and `missing` are damage; `newer` cannot be judged by this version; `torn`
            is an interrupted write that was never acknowledged, `stale` an index that is made again
            by itself, `unfinished`, `set aside` and `unknown` are files that a start passes over,
            `undecodable` a batch that its producer made so that no reader can decode it: none of
            these is damage.
        remedy: what `repair` does about it.
        position: where in the log, -1 for a whole file.
        queue, base_offset, records: which messages it were, where that can be told.
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
        """Whether something that was durable cannot be read."""
        return self.kind in {"damaged", "missing"}


class CheckedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was read, and what is sound in it."""

    file: str
    kind: Literal["segment", "checkpoint", "metadata", "index"]
    bytes: int
    batches: int = 0
    records: int = 0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found.

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
        """The whole in one word; `newer`: a part cannot be judged by this version."""
        if any(finding.is_damage for finding in self.findings):
            return "damaged"
        return "newer" if any(one.kind == "newer" for one in self.findings) else "clean"

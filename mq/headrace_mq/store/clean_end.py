"""
`store.checkpoint`: how far everything reached when it was written, and from where on it is kept.

Sits between: `message_store`, `inspection` and `repair`, and the checkpoint file. All of it only
grows, so an old one stays true: it says less.
"""

from pathlib import Path

import msgspec

from headrace_mq._runtime.files import Files
from headrace_mq.errors import DataCorrupt
from headrace_mq.store.checkpoint import read_checkpoint, write_checkpoint

__all__ = ["CHECKPOINT_NAME", "CleanEnd", "QueueEnd", "read_clean_end", "write_clean_end"]

CHECKPOINT_NAME = "store.checkpoint"


class QueueEnd(msgspec.Struct, frozen=True, array_like=True):
    """A queue, its log, and the next offset to be given in it."""

    topic: str
    queue_id: int
    log: str
    end: int


class CleanEnd(msgspec.Struct, frozen=True, array_like=True):
    """What the checkpoint holds: how far everything reached when it was written.

    `starts` came later: below these positions everything is deleted, or is about to be.
    """

    logs: dict[str, int] = {}
    queues: list[QueueEnd] = []
    starts: dict[str, int] = {}


def read_clean_end(files: Files, path: Path) -> CleanEnd | None:
    """Returns what a checkpoint says, or None where there is none.

    Raises:
        DataCorrupt: it is damaged, or a checkpoint of something else.
        FormatTooNew: a newer version wrote it.
    """
    payload = read_checkpoint(files, path)
    if payload is None:
        return None
    try:
        return msgspec.msgpack.decode(payload, type=CleanEnd)
    except msgspec.DecodeError as error:
        raise DataCorrupt(f"{path} is no checkpoint of a store: {error}") from error


def write_clean_end(files: Files, path: Path, clean_end: CleanEnd) -> None:
    """Replaces a checkpoint; durable on return. Raises OSError like `write_checkpoint`."""
    write_checkpoint(files, path, msgspec.msgpack.encode(clean_end))

"""
The store's checkpoint: where each log and queue ended at a clean stop, and where each log begins.

The store writes it to two files, one after the other: no other file holds the end of a queue whose messages are
all deleted. Positions and offsets only grow, so an old checkpoint is still true and only says less. Used by `message_store`, `check.inspection` and `check.repair`.
"""

from pathlib import Path

import msgspec

from headrace_mq._runtime.files import Files
from headrace_mq._runtime.log import get_logger
from headrace_mq.errors import DataCorrupt
from headrace_mq.store.segment.checkpoint import read_checkpoint, write_checkpoint
from headrace_mq.store.segment.log_walk import Damage

__all__ = [
    "CHECKPOINT_NAME",
    "COPY_NAME",
    "LOCK_NAME",
    "CleanEnd",
    "QueueEnd",
    "read_clean_end",
    "read_either",
    "write_both",
]

_log = get_logger(__name__)

# Locked by the process that uses the directory.
LOCK_NAME = "lock"
CHECKPOINT_NAME = "store.checkpoint"
COPY_NAME = "store.checkpoint.copy"


class QueueEnd(msgspec.Struct, frozen=True, array_like=True):
    """A queue, its log, and its next offset."""

    topic: str
    queue_id: int
    log: str
    end: int


class CleanEnd(msgspec.Struct, frozen=True, array_like=True):
    """The content of the checkpoint: the ends of all logs and queues when it was written.

    `starts` is missing in old files: everything below these positions is deleted, or is about to be.
    """

    logs: dict[str, int] = {}
    queues: list[QueueEnd] = []
    starts: dict[str, int] = {}


def read_clean_end(files: Files, path: Path) -> CleanEnd | None:
    """Returns the content of one of the two files, or None if it does not exist.

    Raises:
        DataCorrupt: it is damaged, or another kind of checkpoint.
        FormatTooNew: a newer version wrote it.
    """
    payload = read_checkpoint(files, path)
    if payload is None:
        return None
    try:
        return msgspec.msgpack.decode(payload, type=CleanEnd)
    except msgspec.DecodeError as error:
        raise DataCorrupt(f"{path} is no checkpoint of a store: {error}") from error


def read_either(files: Files, directory: Path) -> tuple[CleanEnd, list[Damage]]:
    """Returns the content of a store's checkpoint, or else of its copy, and the damage of both.

    Raises:
        FormatTooNew: a newer version wrote it.
    """
    damage = []
    for name in (CHECKPOINT_NAME, COPY_NAME):
        try:
            found = read_clean_end(files, directory / name)
        except DataCorrupt as error:
            _log.error(
                "the store's checkpoint is damaged; the start uses its copy or the logs",
                name=name,
                error=str(error),
            )
            damage.append(Damage(name, 0, 0, str(error)))
        else:
            if found is not None:
                return found, damage
    # The logs hold the messages; the checkpoint only says how long they must be.
    return CleanEnd(), damage


def write_both(files: Files, directory: Path, clean_end: CleanEnd) -> None:
    """Replaces a store's checkpoint, then its copy, durably.

    Raises:
        OSError: each file holds its old content or the new one.
    """
    for name in (CHECKPOINT_NAME, COPY_NAME):
        write_checkpoint(files, directory / name, msgspec.msgpack.encode(clean_end))

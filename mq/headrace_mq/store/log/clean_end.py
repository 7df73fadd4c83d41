"""
The store's checkpoint: where each log and queue ended at a clean stop, and where each log begins.

The store writes it to two files, one after the other, because nothing else knows the end of a queue
whose messages are all deleted. Positions and offsets only grow, so an old checkpoint is still true; it
only says less. Used by `message_store`, `check.inspection` and `check.repair`.
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
    "CleanEnd",
    "QueueEnd",
    "read_clean_end",
    "read_either",
    "write_both",
]

_log = get_logger(__name__)

CHECKPOINT_NAME = "store.checkpoint"
COPY_NAME = "store.checkpoint.copy"


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
    """Returns what one of the two files says, or None where there is none.

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


def read_either(files: Files, directory: Path) -> tuple[CleanEnd, list[Damage]]:
    """Returns what a store's checkpoint says, or else its copy, and which of them are damaged.

    Raises:
        FormatTooNew: a newer version wrote it.
    """
    damage = []
    for name in (CHECKPOINT_NAME, COPY_NAME):
        try:
            found = read_clean_end(files, directory / name)
        except DataCorrupt as error:
            _log.error("the store's checkpoint is damaged", name=name, error=str(error))
            damage.append(Damage(name, 0, 0, str(error)))
        else:
            if found is not None:
                return found, damage
    # The logs are the truth; the checkpoint only knows how long they have to be.
    return CleanEnd(), damage


def write_both(files: Files, directory: Path, clean_end: CleanEnd) -> None:
    """Replaces a store's checkpoint, then its copy; durable on return.

    Raises:
        OSError: each of them holds what it held before, or the new one.
    """
    for name in (CHECKPOINT_NAME, COPY_NAME):
        write_checkpoint(files, directory / name, msgspec.msgpack.encode(clean_end))

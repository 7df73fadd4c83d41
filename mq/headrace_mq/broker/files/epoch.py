"""
The number of this start of the broker: greater than that of every start before it, durable.

It stands in every batch, so that what an older start wrote can be told from what a newer one did.

Used by `storage` once for each start, and by `replicated_broker`; uses a `metadata_file`.
"""

from pathlib import Path

import msgspec

from headrace_mq._runtime.files import Files, SystemFiles
from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.files.metadata_file import MetadataFile
from headrace_mq.store.message_store import LOCK_NAME, RETENTIONS

__all__ = ["KeptBroker", "above_all_epochs", "is_used", "last_epoch", "next_epoch"]

_log = get_logger(__name__)


class KeptBroker(msgspec.Struct, frozen=True):
    """The content of `broker.json`."""

    epoch: int


def next_epoch(
    file: MetadataFile[KeptBroker],
    *,
    store: Path,
    now_ms: int,
    files: Files | None = None,
    newest: int = 0,
) -> int:
    """Takes the next epoch; it is on disk on return.

    Args:
        file: where the last epoch stands.
        store: the directory with the messages; what it holds tells a first start.
        now_ms: the time, for a start that finds messages but no epoch.
        files: the file system.
        newest: the highest epoch of what other brokers of a group wrote here; 0: it never was in one.

    Raises:
        DataCorrupt: the file is damaged.
        FormatTooNew: a newer version wrote the file.
    """
    files = files or SystemFiles()
    kept = file.read()
    if kept is not None:
        epoch = kept.epoch + 1
    elif is_used(files, store):
        epoch = above_all_epochs(now_ms)
        _log.warning(
            "broker.json is missing; the broker takes a new epoch from the clock", epoch=epoch
        )
    else:
        epoch = 1
    epoch = max(epoch, newest + 1)
    file.write(KeptBroker(epoch))
    return epoch


def above_all_epochs(now_ms: int) -> int:
    """Returns an epoch above every one that counted: no broker starts once a second since 1970.

    Args:
        now_ms: the time.
    """
    return now_ms // 1_000


def last_epoch(
    file: MetadataFile[KeptBroker], *, holds_messages: bool, now_ms: int, newest: int = 0
) -> int:
    """Returns an epoch that no message of the store is above; 1 where no start has any.

    Args:
        file: where the last epoch stands.
        holds_messages: whether the store does; if so and the file is missing, the clock tells, as in `next_epoch`.
        now_ms: the time.
        newest: as in `next_epoch`.

    Raises:
        DataCorrupt: the file is damaged.
        FormatTooNew: a newer version wrote the file.
    """
    kept = file.read()
    if kept is not None:
        return max(kept.epoch, newest)
    return max(above_all_epochs(now_ms) if holds_messages else 1, newest)


def is_used(files: Files, store: Path) -> bool:
    """Whether an earlier start left anything but an empty store."""
    if not files.exists(store):
        return False
    names = set(files.names(store))
    logs = names & set(RETENTIONS)
    return bool(names - logs - {LOCK_NAME}) or any(files.names(store / log) for log in logs)

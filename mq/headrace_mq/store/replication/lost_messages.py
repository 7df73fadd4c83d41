"""
Files that keep what a broker cut from its log although it may have been acknowledged.

    log   │ common with the leader │ only here, from position 5,000 on, of epoch 3 │
                                   └──▶ lost/forever-5000-3-120.batches              120 messages, as on the wire

A file is durable before the log is cut. If the cut is interrupted, the next one finds the file, and writes no second one: a
position has one content in each epoch. Nothing here is read at a start; you may move or remove the files at any time.

Used by `cut`, which has the log; `headrace store lost` and the metrics read the files.
"""

import mmap
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from headrace_mq._runtime.files import Files, write_all
from headrace_mq.errors import CorruptBatch, DataCorrupt
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import (
    BatchHeader,
    check_body,
    check_head,
    read_header,
    split_batches,
)

__all__ = [
    "LOST_FOLDER",
    "LostFile",
    "LostQueue",
    "count_lost",
    "keep_lost",
    "lost_batches",
    "lost_files",
    "lost_queues",
]

LOST_FOLDER: Final = "lost"
_NAME = re.compile(r"([a-z]+)-(\d+)-(\d+)-(\d+)\.batches")
_UNFINISHED = "unfinished.new"


class LostFile(NamedTuple):
    """One file.

    Attributes:
        name: of the file.
        log: that was cut.
        position: log position from which on it was cut.
        epoch: of the first message.
        messages: how many it has.
    """

    name: str
    log: str
    position: int
    epoch: int
    messages: int


class LostQueue(NamedTuple):
    """Messages of one queue in a file: how many, and the first and the last of their offsets."""

    queue: QueueRef
    messages: int
    first: int
    last: int


def keep_lost(
    files: Files, directory: Path, log: str, batches: Iterable[tuple[BatchHeader, bytes]]
) -> LostFile | None:
    """Writes batches that a cut takes away to a file, durably.

    Args:
        files: the file system.
        directory: of the store.
        log: that is about to be cut.
        batches: in order; the first one begins at the cut, or behind it.

    Returns the file, which may be of an earlier try; None if there are no batches.

    Raises:
        OSError: it cannot be written; then nothing may be cut.
    """
    folder = directory / LOST_FOLDER
    at = messages = 0
    first: BatchHeader | None = None
    fd = -1
    try:
        for header, data in batches:
            if first is None:
                first = header
                _make(files, directory)
                fd = files.open(folder / _UNFINISHED, create=True)
                files.truncate(fd, 0)
            write_all(files, fd, at, [data])
            at, messages = at + len(data), messages + header.count
        if first is None:
            return None
        files.sync(fd)
    finally:
        if fd >= 0:
            files.close(fd)
    kept = _file_of(log, first, messages)
    for one in lost_files(files, directory):
        if one[1:4] == kept[1:4] and one.messages >= kept.messages:
            # Of an earlier try, before the end of the log was gone.
            files.remove(folder / _UNFINISHED)
            return one
    files.rename(folder / _UNFINISHED, folder / kept.name)
    files.sync_directory(folder)
    return kept


def _file_of(log: str, first: BatchHeader, messages: int) -> LostFile:
    name = f"{log}-{first.position}-{first.epoch}-{messages}.batches"
    return LostFile(name, log, first.position, first.epoch, messages)


def _make(files: Files, directory: Path) -> None:
    folder = directory / LOST_FOLDER
    if not files.exists(folder):
        files.make_directory(folder)
        files.sync_directory(directory)


def lost_files(files: Files, directory: Path) -> list[LostFile]:
    """Returns the files of a store's directory, in the order of their logs and positions; other names are left out."""
    folder = directory / LOST_FOLDER
    if not files.exists(folder):
        return []
    found = [_NAME.fullmatch(name) for name in files.names(folder)]
    return sorted(
        (
            LostFile(one.group(), one[1], int(one[2]), int(one[3]), int(one[4]))
            for one in found
            if one is not None
        ),
        key=lambda one: one[1:],
    )


def count_lost(files: Files, directory: Path) -> int:
    """Returns how many messages all files of a store's directory have."""
    return sum(one.messages for one in lost_files(files, directory))


def lost_batches(directory: Path, name: str) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yields each batch of a file.

    Args:
        directory: of the store.
        name: of the file.

    Raises:
        DataCorrupt: a byte is damaged.
        OSError: it cannot be read.
    """
    path = directory / LOST_FOLDER / name
    at = 0
    try:
        with path.open("rb") as file:
            # A file may be larger than the memory.
            held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        for batch in split_batches(memoryview(held)):
            check_body(batch)
            check_head(batch)
            yield read_header(batch), bytes(batch)
            at += len(batch)
    except (CorruptBatch, DataCorrupt, ValueError) as error:
        raise DataCorrupt(
            f"{path} is damaged from byte {at} on: {error}; restore it from a backup, or do without these messages"
        ) from error


def lost_queues(directory: Path, name: str) -> list[LostQueue]:
    """Returns what a file has of each queue, in the order of their names. Raises as `lost_batches`."""
    found: dict[QueueRef, LostQueue] = {}
    for header, _ in lost_batches(directory, name):
        known = found.get(header.queue)
        before, first = (0, header.base_offset) if known is None else (known.messages, known.first)
        found[header.queue] = LostQueue(
            header.queue, before + header.count, first, header.next_offset - 1
        )
    return [found[queue] for queue in sorted(found)]

"""
SQLite files that take no writes: why they do not, and how they are read all the same.

    next to the file                     opened as
    a log, and its index                 mode=ro: with what the log holds
    no log, or an empty one              immutable=1: SQLite could not make the two files
    a log without its index              refused: immutable=1 would pass over what the log holds

A connection to an immutable file sees no change, so one that finds the file changed is replaced.

Used by the engines and the composition root; uses the file system. It opens no database.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from headrace.errors import DefinitionError

__all__ = ["ReadOnlyFile", "why_read_only"]

_LOG: Final = "-wal"
_INDEX: Final = "-shm"

# What tells whether a file was changed: device, number, size, time of the last change in ns.
_Stamp = tuple[int, int, int, int] | None


def why_read_only(file: Path) -> str | None:
    """Returns why an SQLite file cannot be written, as the end of a sentence; None: it can.

    A file that does not exist yet is None: making it tells.
    """
    if not file.is_file():
        return None
    # Windows has no such call; there a write tells.
    if hasattr(os, "statvfs") and os.statvfs(file).f_flag & os.ST_RDONLY:
        return "its disk takes no writes"
    siblings = [_sibling(file, _LOG), _sibling(file, _INDEX)]
    for each in (file, *siblings):
        if each.exists() and not os.access(each, os.W_OK):
            return f"this user may not write {each.name}"
    if not os.access(file.parent, os.W_OK) and not all(each.exists() for each in siblings):
        return f"this user may not make {siblings[0].name} in its folder"
    return None


@dataclass(frozen=True, slots=True)
class ReadOnlyFile:
    """An SQLite file that can be read only, as it was when a connection to it was opened.

    Attributes:
        uri: what SQLite opens.
        stamps: of the file and its log; None: it is opened with its log, and sees every change.
    """

    uri: str
    stamps: tuple[_Stamp, _Stamp] | None

    @classmethod
    def of(cls, file: Path) -> "ReadOnlyFile":
        """Returns how a file is read.

        Raises:
            DefinitionError: its log has events that only a disk that takes writes can bring back.
        """
        log, index = _sibling(file, _LOG), _sibling(file, _INDEX)
        stamps = (_stamp(file), _stamp(log))
        path = quote(str(file.absolute()))
        if log.exists() and index.exists():
            return cls(f"file:{path}?mode=ro", None)
        if stamps[1] is not None and stamps[1][2]:
            raise DefinitionError(
                f"{file} takes no writes, and what is in {log.name} cannot be read without"
                f" {index.name}, which is missing; copy {file.name} and {log.name} into a folder"
                " that takes writes, and name that copy"
            )
        return cls(f"file:{path}?mode=ro&immutable=1", stamps)

    def is_outdated(self, file: Path) -> bool:
        """Whether another process has changed the file since; this connection does not see the change."""
        return self.stamps is not None and self.stamps != (
            _stamp(file),
            _stamp(_sibling(file, _LOG)),
        )


def _sibling(file: Path, ending: str) -> Path:
    return file.with_name(file.name + ending)


def _stamp(file: Path) -> _Stamp:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

"""
Files and folders that only the user of this process can open, from the moment they are made.

Used by the parts that keep events or rows in files; uses the operating system.
"""

import os
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, TextIO, overload

__all__ = ["FILE_MODE", "make_folder", "open_new"]

# The umask of the process can only take away from these.
FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700

_FLAGS: Final = {"w": os.O_TRUNC, "wb": os.O_TRUNC, "xb": os.O_EXCL}
# Windows changes line ends in what is not opened so.
_BINARY: Final = getattr(os, "O_BINARY", 0)


def make_folder(folder: Path) -> None:
    """Makes a folder and those above it, where they are missing; one that exists keeps its mode.

    Raises:
        OSError: it cannot be made.
    """
    for each in reversed([one for one in (folder, *folder.parents) if not one.exists()]):
        each.mkdir(mode=_FOLDER_MODE, exist_ok=True)


@overload
def open_new(path: Path, mode: Literal["w"]) -> TextIO: ...


@overload
def open_new(path: Path, mode: Literal["wb", "xb"]) -> BinaryIO: ...


def open_new(path: Path, mode: Literal["w", "wb", "xb"]) -> Any:
    """Opens a file as `open` does, for writing alone; one that exists keeps its mode.

    Raises:
        OSError: it cannot be opened; FileExistsError with mode `xb`, if it exists.
    """
    flags = os.O_WRONLY | os.O_CREAT | _BINARY | _FLAGS[mode]
    encoding = "utf-8" if mode == "w" else None
    return os.fdopen(os.open(path, flags, FILE_MODE), mode, encoding=encoding)

"""
One value in one small file: JSON inside a checkpoint, replaced as a whole, checked when read.

A file that fails its checks is an error to repair, never a reason to conclude that there is
nothing.

Used by the parts whose values it keeps; uses `store.segment.checkpoint`, which makes a replacement atomic
and durable.
"""

from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from headrace_mq._runtime.files import Files, SystemFiles
from headrace_mq.errors import DataCorrupt
from headrace_mq.store.segment.checkpoint import read_checkpoint, write_checkpoint

__all__ = ["MetadataFile"]

T = TypeVar("T")


class MetadataFile(Generic[T]):
    """A durable value of type `kind`.

    Args:
        path: where the file is; its directory is made when the first value is written.
        kind: the type of the value; msgspec encodes it.
        repair: what a person should do when the file is damaged, as a sentence.
        files: the file system.
    """

    def __init__(
        self, path: Path, kind: type[T], *, repair: str, files: Files | None = None
    ) -> None:
        self.path = path
        self._kind = kind
        self._repair = repair
        self._files = files or SystemFiles()

    def read(self) -> T | None:
        """Returns the value, or None where there is no file.

        Raises:
            DataCorrupt: the file is damaged; the sentence says what to do.
            FormatTooNew: a newer version wrote it.
        """
        try:
            content = read_checkpoint(self._files, self.path)
            return None if content is None else msgspec.json.decode(content, type=self._kind)
        except (DataCorrupt, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DataCorrupt(f"{self.path} is damaged ({error}). {self._repair}") from error

    def write(self, value: T) -> None:
        """Replaces the value; durable on return. Raises OSError, and the old value stands."""
        self.write_encoded(self.encode(value))

    def encode(self, value: T) -> bytes:
        """Encodes a value for `write_encoded`, so that another thread can do the waiting."""
        return msgspec.json.encode(value)

    def write_encoded(self, content: bytes) -> None:
        """Like `write`, for what `encode` returned; one caller at a time."""
        self._make_directories(self.path.parent)
        write_checkpoint(self._files, self.path, content)

    def _make_directories(self, directory: Path) -> None:
        if not self._files.exists(directory):
            self._make_directories(directory.parent)
            self._files.make_directory(directory)
            self._files.sync_directory(directory.parent)

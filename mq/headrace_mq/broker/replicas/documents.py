"""
The broker's own files that every member of a group must have: topics, offsets, limits and the like.

    leader    file replaced ─▶ version + 1 ─▶ sent with the next answer ─▶ a change is answered once all required have it
    replica   Document ─▶ the same file, replaced as a whole

Files of one disk stay out: the epoch of a start, and the shortcuts of journals, which are read from the log.

Used by `followers` and `replica`; to `ClusterMember` the versions of an epoch are the positions of one more log.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from headrace_mq._runtime.files import Files, SystemFiles
from headrace_mq.broker.replicas.bodies import Document
from headrace_mq.store.replication.epochs import EpochHistory
from headrace_mq.store.segment.checkpoint import read_checkpoint, write_checkpoint

__all__ = [
    "ARCHIVE_DOCUMENT",
    "DOCUMENTS",
    "DOCUMENTS_LOG",
    "USERS_DOCUMENT",
    "Documents",
    "WatchedFiles",
    "remove_shortcuts",
    "store_document",
]

# The name by which the rules of a group know their versions.
DOCUMENTS_LOG: Final = "documents"
# Of groups that have an archive: in others nothing is sent of it, because brokers of earlier versions do not know it.
ARCHIVE_DOCUMENT: Final = "archive.json"
USERS_DOCUMENT: Final = "users.json"
DOCUMENTS: Final = (
    "topics.json", "offsets.json", "limits.json", "releases.json", "producers.json", "timeline.json", USERS_DOCUMENT,
    ARCHIVE_DOCUMENT,
)  # fmt: skip
# What an earlier term as a leader left: they may tell of journals that were cut since.
SHORTCUTS: Final = ("schedule.json", "transactions.json")
_FOLDER = "metadata"


class Documents:
    """The documents of a broker, with the number of their changes in this epoch.

    Args:
        directory: the store's.
        files: the file system.
    """

    history = EpochHistory()

    def __init__(self, directory: Path, files: Files) -> None:
        self._folder = directory / _FOLDER
        self._files = files
        self._versions: dict[str, int] = {}
        self.end = 0

    @property
    def durable(self) -> int:
        """The changes that are on the disk: all of them."""
        return self.end

    def begin(self) -> None:
        """Begins an epoch: each document is new to every replica."""
        names = [one for one in DOCUMENTS if one != ARCHIVE_DOCUMENT or self._is_there(one)]
        self._versions = {name: number for number, name in enumerate(names, start=1)}
        self.end = len(names)

    def changed(self, path: Path) -> bool:
        """Notes that a file was replaced; returns whether it is a document."""
        if not self._versions or path.name not in DOCUMENTS or path.parent != self._folder:
            return False
        self.end += 1
        self._versions[path.name] = self.end
        return True

    def _is_there(self, name: str) -> bool:
        return self._files.exists(self._folder / name)

    @property
    def topics(self) -> int:
        """The newest change of topics."""
        return self._versions.get("topics.json", 0)

    def after(self, version: int, bytes_max: int) -> list[Document]:
        """Returns what changed after a version, oldest change first: at least one, if there is any.

        Raises:
            DataCorrupt: a file is damaged.
        """
        found: list[Document] = []
        size = 0
        for name, changed in sorted(self._versions.items(), key=lambda one: one[1]):
            if changed <= version:
                continue
            content = read_checkpoint(self._files, self._folder / name)
            size += len(content or b"")
            if found and size > bytes_max:
                break
            found.append(Document(name, changed, content or b"", missing=content is None))
        return found


class WatchedFiles(SystemFiles):
    """The machine's own files; tells which file was replaced.

    Args:
        on_renamed: called with the path, in the thread that replaced it.
    """

    def __init__(self, on_renamed: Callable[[Path], None]) -> None:
        self._on_renamed = on_renamed

    def rename(self, old: Path, new: Path) -> None:
        """Renames in one step, and tells it."""
        super().rename(old, new)
        self._on_renamed(new)


def store_document(files: Files, directory: Path, document: Document) -> None:
    """Takes over a document of the leader; durable on return. Raises OSError, and the old one stands.

    Raises:
        ValueError: it is none of `DOCUMENTS`.
    """
    if document.name not in DOCUMENTS:
        raise ValueError(f"the leader sent a file {document.name!r}, which is no document")
    folder = directory / _FOLDER
    path = folder / document.name
    if document.missing:
        _remove(files, path)
        return
    if not files.exists(folder):
        files.make_directory(folder)
        files.sync_directory(directory)
    write_checkpoint(files, path, document.content)


def remove_shortcuts(files: Files, directory: Path) -> None:
    """Removes what tells of journals without reading them: this broker's log may be cut."""
    for name in SHORTCUTS:
        _remove(files, directory / _FOLDER / name)


def _remove(files: Files, path: Path) -> None:
    """Removes a file if it is there; durable on return."""
    if files.exists(path):
        files.remove(path)
        files.sync_directory(path.parent)

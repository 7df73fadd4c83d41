"""The folder in which a demo keeps everything: broker data, databases and logs."""

import fcntl
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["Folder", "FolderUnusable"]

# Says that the folder is the demo's own, so that `--fresh` never deletes anything else.
MARK: Final = "demo.json"


class FolderUnusable(Exception):
    """The folder holds something else; the sentence says what to do."""


class Folder:
    """Paths and addresses below one folder."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.broker = self.path / "broker"
        self.logs = self.path / "logs"
        self.event_store = f"sqlite:///{self.path / 'events.db'}"
        self.read_models = f"sqlite:///{self.path / 'read.db'}"

    @contextmanager
    def open(self, data_set: str, *, fresh: bool) -> Iterator[None]:
        """Makes the folder and keeps other demos out of it until the block ends.

        Args:
            data_set: the only one that may use the folder from now on.
            fresh: delete what earlier demos left in it.

        Raises:
            FolderUnusable: it holds something else, or another demo runs in it.
        """
        mark = self.path / MARK
        if self.path.exists() and not mark.exists() and any(self.path.iterdir()):
            raise FolderUnusable(f"{self.path} holds something else; choose another with --data")
        self.path.mkdir(parents=True, exist_ok=True)
        with mark.open("a+", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FolderUnusable(f"another demo is running in {self.path}") from None
            if fresh:
                self._clear()
            self._claim(mark, data_set)
            self.logs.mkdir(exist_ok=True)
            yield

    def _clear(self) -> None:
        for entry in self.path.iterdir():
            if entry.name == MARK:
                entry.write_text("", encoding="utf-8")  # kept: it carries the lock
            elif entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    def _claim(self, mark: Path, data_set: str) -> None:
        text = mark.read_text(encoding="utf-8")
        owner = json.loads(text)["data_set"] if text else data_set
        if owner != data_set:
            raise FolderUnusable(
                f"{self.path} holds the demo of another data set ({owner});"
                " choose another folder with --data, or start over with --fresh"
            )
        mark.write_text(json.dumps({"data_set": data_set}), encoding="utf-8")

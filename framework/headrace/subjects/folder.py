"""
Subjects' keys in a folder, a file for each, that only its owner can read.

A file is named by the SHA-256 of the subject's id, and holds JSON. Destroying a key overwrites the file
with its tombstone and waits until the disk has it. Several processes may use a folder, over a file system
that has hard links. What root writes belongs to the folder's owner, who must read it. One file that is damaged
is no outage: others can be read. One that this process may not read is: so is a whole folder that root has restored,
until someone gives it to the service's user. Implements `SubjectKeys`.
"""

import base64
import errno
import os
import secrets
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from headrace.errors import SubjectKeysAway, SubjectKeysError
from headrace.subjects.keys import KEY_BYTES, Subject

__all__ = ["FolderKeys"]

_FILE_MODE = 0o600
_FOLDER_MODE = 0o700
# What is wrong with one file alone while its folder answers: its kind, a bad sector.
_OF_ONE_FILE: Final = frozenset((errno.EISDIR, errno.ELOOP, errno.EIO))


class _KeyFile(msgspec.Struct, frozen=True):
    subject: str
    key: str = ""
    forgotten_at: datetime | None = None


class FolderKeys:
    """Keys in a folder; see `SubjectKeys`.

    Args:
        folder: only for keys; made with the first one. Leave it out of backups of the events: a copy
            of a key keeps what is forgotten readable.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder).absolute()
        # A folder that goes away is not made again: its persons would get other keys there.
        self._seen = False

    def find(self, subject: str) -> bytes | None:
        """Returns a subject's key; None: it has none, or it was destroyed.

        Raises:
            SubjectKeysAway: the file cannot be read just now, this process may not read it, or the folder is not there.
            SubjectKeysError: the file is damaged.
        """
        held = self._read(self._path(subject))
        if held is None and not self._folder.is_dir():
            # Otherwise everyone would look forgotten.
            raise SubjectKeysAway(f"the folder of keys {self._folder} is not there; bring it back")
        return None if held is None else self._key(held)

    def make(self, subject: str) -> bytes | None:
        """Returns a subject's key, made durably if it never had one; None: it was destroyed.

        Raises:
            SubjectKeysError: the file cannot be read or written.
        """
        path = self._path(subject)
        held = self._read(path)
        if held is None:
            key = base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()
            self._write(path, _KeyFile(subject, key), first=True)
            held = self._read(path)
            assert held is not None, "a process has made it"
        return self._key(held)

    def forget(self, subject: str) -> bool:
        """Destroys a subject's key for ever; returns whether it had one.

        Raises:
            SubjectKeysError: the file cannot be read or written.
        """
        path = self._path(subject)
        # A key that is made at the same moment is found by `first`.
        self._write(path, _KeyFile(subject, forgotten_at=datetime.now(UTC)), first=True)
        held = self._read(path)
        assert held is not None, "it was just written"
        if not held.key:
            return False
        self._destroy(path, _KeyFile(subject, forgotten_at=datetime.now(UTC)))
        return True

    def subjects(self) -> list[Subject]:
        """Returns every subject, by id.

        Raises:
            SubjectKeysError: a file cannot be read.
        """
        held = [self._read(path) for path in self._folder.glob("*.json")]
        return sorted(Subject(one.subject, one.forgotten_at) for one in held if one is not None)

    def _path(self, subject: str) -> Path:
        return self._folder / f"{sha256(subject.encode()).hexdigest()}.json"

    def _key(self, held: _KeyFile) -> bytes | None:
        return base64.b64decode(held.key) if held.key else None

    def _read(self, path: Path) -> _KeyFile | None:
        try:
            held = msgspec.json.decode(path.read_bytes(), type=_KeyFile)
        except FileNotFoundError:
            return None
        except OSError as error:
            why = f"the key file {path} cannot be read: {error}"
            if isinstance(error, PermissionError):
                raise SubjectKeysAway(f"{why}; {self._mend()}") from error
            if not self._is_of_one(error):
                raise SubjectKeysAway(why) from error
            # Without the cause, which would make it an outage.
            raise SubjectKeysError(f"{why}; bring it back from a backup") from None
        except ValueError as error:
            raise SubjectKeysError(f"the key file {path} cannot be read: {error}") from error
        self._seen = True
        return held

    def _mend(self) -> str:
        """What to do where this process may not read a file, as after a restore by root."""
        if os.name == "nt":
            return "let the user of this process read it"
        return (
            f"this process runs as user {os.geteuid()}, so as root run: chown -R {os.geteuid()} {self._folder}"
            f" && chmod -R u+rwX,go= {self._folder}"
        )

    def _is_of_one(self, error: OSError) -> bool:
        """Whether an error is that of one file: the folder itself can be listed and entered."""
        if error.errno not in _OF_ONE_FILE:
            return False
        try:
            with os.scandir(self._folder) as files:
                next(files, None)
            os.stat(os.path.join(self._folder, "."))  # noqa: PTH116, PTH118 - pathlib drops the dot
        except OSError:
            return False
        return True

    def _write(self, path: Path, content: _KeyFile, *, first: bool) -> None:
        """Writes a file whole, durably; with `first` an existing one stays as it is."""
        made = path.with_name(f"{path.stem}.{secrets.token_hex(8)}.new")
        try:
            if not self._seen:
                self._folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
                self._seen = True
            descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE)
            with os.fdopen(descriptor, "wb") as file:
                self._give(descriptor)
                file.write(msgspec.json.encode(content))
                file.flush()
                os.fsync(file.fileno())
            try:
                if first:
                    with suppress(FileExistsError):
                        os.link(made, path)
                else:
                    made.replace(path)
            finally:
                made.unlink(missing_ok=True)
            self._sync_folder()
        except OSError as error:
            raise SubjectKeysAway(f"the key file {path} cannot be written: {error}") from error

    def _give(self, descriptor: int) -> None:
        """Gives a new file the folder's owner where this process may: root forgets, and a service reads."""
        if os.name == "nt":
            return
        owner = self._folder.stat()
        if owner.st_uid != os.geteuid():
            with suppress(PermissionError):
                os.fchown(descriptor, owner.st_uid, owner.st_gid)

    def _destroy(self, path: Path, tombstone: _KeyFile) -> None:
        """Puts the tombstone in place, then zeros over the blocks of the file that was there."""
        try:
            with path.open("r+b") as file:
                self._write(path, tombstone, first=False)
                file.write(bytes(os.fstat(file.fileno()).st_size))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise SubjectKeysAway(f"the key file {path} cannot be written: {error}") from error

    def _sync_folder(self) -> None:
        if os.name == "nt":
            return
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

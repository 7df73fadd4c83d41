"""Keys in a folder."""

import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.errors import SubjectKeysAway, SubjectKeysError
from headrace.subjects.folder import FolderKeys
from headrace.subjects.keys import KeptKeys
from headrace.testing.conformance.subject_keys import SubjectKeysConformance


class TestFolderKeys(SubjectKeysConformance):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "keys"
        self.folder.mkdir()

    def make_keys(self) -> FolderKeys:
        return FolderKeys(self.folder)


def test_only_the_owner_can_read_a_key(tmp_path: Path):
    FolderKeys(tmp_path / "keys").make("c-1")
    [file] = (tmp_path / "keys").iterdir()
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_key_of_another_process_is_found(tmp_path: Path):
    key = FolderKeys(tmp_path).make("c-1")
    assert FolderKeys(tmp_path).find("c-1") == key


def test_two_processes_at_once_make_one_key(tmp_path: Path):
    def make(_: int) -> bytes | None:
        return FolderKeys(tmp_path).make("c-1")

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(make, range(32)))) == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_a_key_that_cannot_be_read_is_no_destroyed_one(tmp_path: Path):
    keys = FolderKeys(tmp_path)
    keys.make("c-1")
    [file] = tmp_path.iterdir()
    file.write_bytes(b"{")
    asked: list[Callable[[str], object]] = [keys.find, keys.make, keys.forget]
    for ask in asked:
        with pytest.raises(SubjectKeysError, match="cannot be read"):
            ask("c-1")


def test_a_folder_that_takes_no_files_says_so(tmp_path: Path):
    (tmp_path / "keys").write_text("a file")
    with pytest.raises(SubjectKeysError):
        FolderKeys(tmp_path / "keys").make("c-1")


def test_a_folder_that_is_away_does_not_look_like_forgotten_persons(tmp_path: Path):
    with pytest.raises(SubjectKeysAway, match="is not there; bring it back"):
        FolderKeys(tmp_path / "keys").find("c-1")


def test_a_folder_that_goes_away_is_not_made_again(tmp_path: Path):
    keys = FolderKeys(tmp_path / "keys")
    key = keys.make("c-1")
    (tmp_path / "keys").rename(tmp_path / "elsewhere")
    for ask in (keys.find, keys.make, keys.forget):
        with pytest.raises(SubjectKeysAway):
            ask("c-1")
    # One that has read it alone knows it, too.
    (tmp_path / "elsewhere").rename(tmp_path / "keys")
    other = FolderKeys(tmp_path / "keys")
    assert other.find("c-1") == key
    (tmp_path / "keys").rename(tmp_path / "elsewhere")
    with pytest.raises(SubjectKeysAway):
        other.make("c-2")
    assert not (tmp_path / "keys").exists()


def test_a_folder_in_the_place_of_one_file_stops_no_other_person(tmp_path: Path):
    keys = FolderKeys(tmp_path / "keys")
    key = keys.make("c-1")
    (file,) = (tmp_path / "keys").iterdir()
    other = keys.make("c-2")
    file.unlink()
    file.mkdir()
    kept = KeptKeys(keys)
    kept.find_near(["c-1", "c-2"])
    assert kept.find("c-2") == other
    with pytest.raises(SubjectKeysError, match=r"cannot be read: .* backup") as raised:
        kept.find("c-1")
    assert not isinstance(raised.value, SubjectKeysAway)
    assert key != other


@pytest.mark.parametrize(
    ("number", "listed", "away"),
    [
        (errno.EACCES, True, True),
        (errno.EPERM, True, True),
        (errno.EIO, True, False),
        (errno.EACCES, False, True),
        (errno.EIO, False, True),
        (errno.ESTALE, True, True),
        (errno.ENOTCONN, True, True),
    ],
)
def test_an_error_of_one_file_is_an_outage_where_it_may_not_be_read_or_the_folder_has_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, listed: bool, away: bool
):
    keys = FolderKeys(tmp_path)
    keys.make("c-1")

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "read_bytes", fail)
    if not listed:
        monkeypatch.setattr(os, "scandir", fail)
    kept = KeptKeys(keys)
    for ask in (kept.find, kept.make):
        with pytest.raises(SubjectKeysError, match="cannot be read") as raised:
            ask("c-1")
        assert isinstance(raised.value, SubjectKeysAway) == away
        mend = f"chown -R {os.geteuid()} {tmp_path} && chmod -R u+rwX,go= {tmp_path}"
        denied = number in {errno.EACCES, errno.EPERM}
        assert (mend in str(raised.value)) == (denied and os.name != "nt")


@pytest.mark.skipif(os.name == "nt", reason="files have no such owner there")
@pytest.mark.parametrize("may", [True, False])
def test_what_root_writes_belongs_to_the_owner_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, may: bool
):
    given: list[tuple[int, int]] = []

    def give(_: int, user: int, group: int) -> None:
        if not may:
            raise PermissionError("only root may")
        given.append((user, group))

    keys = FolderKeys(tmp_path)
    monkeypatch.setattr(os, "fchown", give)
    keys.make("c-1")
    assert given == []
    owner = tmp_path.stat()
    monkeypatch.setattr(os, "geteuid", lambda: owner.st_uid + 1)
    assert keys.forget("c-1")
    # Its tombstone, and the one that would have been the first file.
    assert given == [(owner.st_uid, owner.st_gid)] * (2 if may else 0)

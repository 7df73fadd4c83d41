"""Files and folders for the user of the process alone."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace._runtime.private_files import make_folder, open_new


@pytest.fixture(autouse=True, params=[0, 0o022, 0o077])
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_folder_and_the_missing_ones_above_it_are_private(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    there.chmod(0o755)
    make_folder(there / "a" / "b")
    make_folder(there / "a" / "b")
    assert [mode(one) for one in (there, there / "a", there / "a" / "b")] == [0o755, 0o700, 0o700]


def test_a_new_file_is_private_and_holds_what_was_written(tmp_path: Path) -> None:
    with open_new(tmp_path / "text", "w") as text, open_new(tmp_path / "bytes", "wb") as data:
        # Before anything is written: there is no moment in which others may open it.
        assert [mode(tmp_path / name) for name in ("text", "bytes")] == [0o600, 0o600]
        text.write("ä\n")
        data.write(b"\r\n")
    assert (tmp_path / "text").read_bytes() == "ä\n".encode()
    assert (tmp_path / "bytes").read_bytes() == b"\r\n"


def test_an_existing_file_is_emptied_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old and long")
    path.chmod(0o640)
    with open_new(path, "wb") as file:
        file.write(b"new")
    assert (path.read_bytes(), mode(path)) == (b"new", 0o640)


def test_a_file_that_must_be_new_is_not_overwritten(tmp_path: Path) -> None:
    with open_new(tmp_path / "file", "xb") as file:
        file.write(b"kept")
    with pytest.raises(FileExistsError):
        open_new(tmp_path / "file", "xb")
    assert (tmp_path / "file").read_bytes() == b"kept"

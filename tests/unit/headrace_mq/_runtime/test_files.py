"""The port of the file system, and writing everything through calls that write less."""

import errno
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq._runtime.files import PARTS_MAX, SystemFiles, write_all


@pytest.fixture
def files() -> SystemFiles:
    return SystemFiles()


class Scripted(SystemFiles):
    """Writes into memory, as many bytes per call as it is told."""

    def __init__(self, steps: list[int]) -> None:
        self.steps = steps
        self.content = bytearray()

    def write(self, fd: int, at: int, parts: object) -> int:
        data = b"".join(parts)  # type: ignore[arg-type]  # the port's type says more than this fake needs
        step = min(self.steps.pop(0) if self.steps else len(data), len(data))
        self.content[at : at + step] = data[:step]
        return step


@given(
    parts=st.lists(st.binary(max_size=20), max_size=8),
    steps=st.lists(st.integers(min_value=1, max_value=30), max_size=10),
)
def test_every_byte_is_written_however_short_the_writes_are(
    parts: list[bytes], steps: list[int]
) -> None:
    fake = Scripted(steps)
    write_all(fake, 0, 0, parts)
    assert bytes(fake.content) == b"".join(parts)


def test_a_write_without_progress_is_an_error_and_no_endless_loop() -> None:
    with pytest.raises(OSError, match="no progress"):
        write_all(Scripted([0, 0]), 0, 0, [b"data"])


def test_more_parts_than_one_call_takes_are_written(tmp_path: Path, files: SystemFiles) -> None:
    parts = [n.to_bytes(4, "big") for n in range(PARTS_MAX * 2 + 1)]
    fd = files.open(tmp_path / "file", create=True)
    write_all(files, fd, 0, parts)
    assert files.read(fd, 0, 1 << 20) == b"".join(parts)
    files.close(fd)


def test_reserved_bytes_are_zeros_and_no_data(tmp_path: Path, files: SystemFiles) -> None:
    fd = files.open(tmp_path / "file", create=True)
    files.allocate(fd, 1 << 20)
    assert files.size(fd) == 1 << 20
    assert not any(files.read(fd, 0, 1 << 20))
    write_all(files, fd, 512 * 1024, [b"here"])
    files.sync(fd)
    found = files.next_data(fd, 0)
    # A file system that cannot tell says 0, which is right too, only slower.
    assert found in {0, 512 * 1024}
    files.close(fd)


def test_behind_the_end_there_is_no_data(tmp_path: Path, files: SystemFiles) -> None:
    fd = files.open(tmp_path / "file", create=True)
    assert files.next_data(fd, 10) is None
    files.close(fd)


def test_other_errors_of_looking_for_data_are_raised(files: SystemFiles) -> None:
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is checked below
        files.next_data(-1, 0)
    assert caught.value.errno == errno.EBADF


def test_creating_a_file_empties_it_and_opening_does_not(
    tmp_path: Path, files: SystemFiles
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    fd = files.open(path)
    assert files.read(fd, 0, 100) == b"content"
    files.close(fd)
    files.close(files.open(path, create=True))
    assert path.read_bytes() == b""


def test_a_lock_is_refused_to_a_second_holder(tmp_path: Path, files: SystemFiles) -> None:
    first = files.open(tmp_path / "lock", create=True)
    second = files.open(tmp_path / "lock", create=True)
    assert files.lock(first)
    assert not files.lock(second)
    files.close(first)
    assert files.lock(second)
    files.close(second)


def test_names_rename_truncate_and_remove(tmp_path: Path, files: SystemFiles) -> None:
    files.make_directory(tmp_path / "folder")
    files.make_directory(tmp_path / "folder")
    fd = files.open(tmp_path / "folder/b", create=True)
    write_all(files, fd, 0, [b"0123456789"])
    files.truncate(fd, 4)
    assert files.sync(fd) >= 0
    files.close(fd)
    files.rename(tmp_path / "folder/b", tmp_path / "folder/a")
    files.sync_directory(tmp_path / "folder")
    assert files.names(tmp_path / "folder") == ["a"]
    assert (tmp_path / "folder/a").read_bytes() == b"0123"
    assert (tmp_path / "folder/a").stat().st_mode & 0o007 == 0
    files.remove(tmp_path / "folder/a")
    assert files.names(tmp_path / "folder") == []


def test_a_file_and_a_directory_exist_once_made(files: SystemFiles, tmp_path: Path) -> None:
    assert files.exists(tmp_path)
    assert not files.exists(tmp_path / "file")
    files.close(files.open(tmp_path / "file", create=True))
    assert files.exists(tmp_path / "file")


def test_bytes_in_the_page_cache_are_read_without_waiting(
    tmp_path: Path, files: SystemFiles
) -> None:
    fd = files.open(tmp_path / "f", create=True)
    files.write(fd, 0, [b"abcdef"])
    assert files.read_cached(fd, 1, 4) == b"bcde"
    assert files.read_cached(fd, 4, 4) is None, "the file ends before"
    files.close(fd)


def test_a_machine_without_such_a_call_says_so(
    files: SystemFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "RWF_NOWAIT", raising=False)
    with pytest.raises(OSError, match="needs Linux") as caught:
        files.read_cached(0, 0, 1)
    assert caught.value.errno == errno.EOPNOTSUPP


def test_a_removed_and_a_replaced_file_are_known_as_removed(
    tmp_path: Path, files: SystemFiles
) -> None:
    path = tmp_path / "file (deleted)"
    gone, replaced = files.open(path, create=True), files.open(tmp_path / "two", create=True)
    assert not files.is_removed(gone)
    path.unlink()
    (tmp_path / "three").write_bytes(b"other")
    (tmp_path / "three").rename(tmp_path / "two")
    assert files.is_removed(gone)
    assert files.is_removed(replaced)
    files.close(gone)
    files.close(replaced)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux has this link")
def test_a_file_that_is_there_is_never_asked_for_its_times(
    tmp_path: Path, files: SystemFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To ask makes every write change the inode, and the sync after it slower by half."""
    fd = files.open(tmp_path / "file", create=True)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fstat", lambda _: pytest.fail("fstat was called"))
        assert not files.is_removed(fd)
    files.close(fd)


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_new_files_are_for_the_user_alone_from_the_first_moment(
    tmp_path: Path, files: SystemFiles, umask: int
) -> None:
    before = os.umask(umask)
    try:
        files.make_directory(tmp_path / "folder")
        fd = files.open(tmp_path / "folder" / "file", create=True)
    finally:
        os.umask(before)
    file = os.fstat(fd)
    files.close(fd)
    assert stat.S_IMODE(file.st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o700


def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path, files: SystemFiles) -> None:
    (tmp_path / "folder").mkdir(mode=0o750)
    files.make_directory(tmp_path / "folder")
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o750

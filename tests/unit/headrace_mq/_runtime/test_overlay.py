"""Over any history of calls an overlay reads like a disk that took them, and the disk stays as it was."""

import errno
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace_mq._runtime import overlay as overlay_module
from headrace_mq._runtime.files import Files, SystemFiles, write_all
from headrace_mq._runtime.overlay import Overlay

NAMES = st.sampled_from(["a", "b", "c"])
FULL = OSError(errno.ENOSPC, "No space left on device")


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def written(files: Files, path: Path, at: int, data: bytes) -> None:
    fd = files.open(path, create=not files.exists(path))
    write_all(files, fd, at, [data])
    files.close(fd)


def held(files: Files, path: Path) -> bytes:
    fd = files.open(path)
    try:
        return files.read(fd, 0, files.size(fd))
    finally:
        files.close(fd)


class OverlayLikeADisk(RuleBasedStateMachine):
    """The same calls go to an overlay over one directory and to a real twin of it."""

    @initialize(first=st.dictionaries(NAMES, st.binary(max_size=40)))
    def begin(self, first: dict[str, bytes]) -> None:
        self.root = Path(mkdtemp())
        self.below, self.twin = self.root / "below", self.root / "twin"
        for directory in (self.below, self.twin):
            directory.mkdir()
            for name, content in first.items():
                (directory / name).write_bytes(content)
        self.first = first
        self.pairs: list[tuple[Files, Path]] = [
            (Overlay(SystemFiles(), FULL), self.below),
            (SystemFiles(), self.twin),
        ]

    def both(self, call: Callable[[Files, Path], object]) -> None:
        outcomes = []
        for files, directory in self.pairs:
            try:
                outcomes.append(call(files, directory))
            except OSError as error:
                outcomes.append(error.errno)
        assert outcomes[0] == outcomes[1]

    @rule(name=NAMES, at=st.integers(0, 60), data=st.binary(min_size=1, max_size=30))
    def write(self, name: str, at: int, data: bytes) -> None:
        self.both(lambda files, directory: written(files, directory / name, at, data))

    @rule(name=NAMES, length=st.integers(0, 60), grow=st.booleans())
    def resize(self, name: str, length: int, grow: bool) -> None:
        def change(files: Files, directory: Path) -> None:
            fd = files.open(directory / name)
            (files.allocate if grow and length else files.truncate)(fd, length)
            files.sync(fd)
            files.close(fd)

        self.both(change)

    @rule(name=NAMES, data=st.binary(min_size=1, max_size=30))
    def replace(self, name: str, data: bytes) -> None:
        def change(files: Files, directory: Path) -> None:
            fd = files.open(directory / "new", create=True)
            write_all(files, fd, 0, [data])
            files.close(fd)
            files.rename(directory / "new", directory / name)
            files.sync_directory(directory)

        self.both(change)

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        self.both(lambda files, directory: files.remove(directory / name))

    @rule(name=NAMES, at=st.integers(0, 70), length=st.integers(0, 70))
    def read(self, name: str, at: int, length: int) -> None:
        def found(files: Files, directory: Path) -> tuple[bytes, bool]:
            fd = files.open(directory / name)
            part = files.read(fd, at, length)
            try:
                cached = files.read_cached(fd, at, length)
            except OSError:
                cached = None
            files.close(fd)
            return part, cached is None or bytes(cached) == part

        self.both(found)

    @invariant()
    def it_reads_the_same_and_the_disk_is_untouched(self) -> None:
        self.both(lambda files, directory: files.names(directory))
        for name in ("a", "b", "c"):
            self.both(lambda files, directory, name=name: held(files, directory / name))
        assert contents(self.below) == self.first

    def teardown(self) -> None:
        if hasattr(self, "root"):
            shutil.rmtree(self.root)


TestOverlayLikeADisk = OverlayLikeADisk.TestCase


@pytest.fixture
def overlay() -> Iterator[Overlay]:
    return Overlay(SystemFiles(), FULL)


@given(at=st.integers(0, 12), cut=st.integers(0, 8), write=st.integers(8, 12))
def test_the_first_data_is_never_told_too_late(at: int, cut: int, write: int) -> None:
    root = Path(mkdtemp())
    (root / "f").write_bytes(b"12345678")
    overlay = Overlay(SystemFiles(), FULL)
    fd = overlay.open(root / "f")
    overlay.truncate(fd, cut)
    overlay.write(fd, write, [b"x"])
    whole = overlay.read(fd, 0, 20)
    first = next((place for place in range(at, len(whole)) if whole[place]), None)
    told = overlay.next_data(fd, at)
    overlay.close(fd)
    shutil.rmtree(root)
    assert first is None or (told is not None and told <= first)
    assert told is None or told >= at


def test_after_the_start_new_files_go_to_the_disk_and_open_ones_are_refused(
    overlay: Overlay, tmp_path: Path
) -> None:
    (tmp_path / "log").write_bytes(b"12345678")
    fd = overlay.open(tmp_path / "log")
    overlay.truncate(fd, 4)
    written(overlay, tmp_path / "kept", 0, b"in memory")
    overlay.pass_through()
    with pytest.raises(OSError, match="No space left") as refused:
        overlay.write(fd, 4, [b"x"])
    assert refused.value.errno == errno.ENOSPC
    assert overlay.read(fd, 0, 8) == b"1234"
    new = overlay.open(tmp_path / "kept.new", create=True)
    overlay.allocate(new, 20)
    overlay.truncate(new, 0)
    write_all(overlay, new, 0, [b"on the disk"])
    overlay.sync(new)
    overlay.close(new)
    overlay.rename(tmp_path / "kept.new", tmp_path / "kept")
    overlay.make_directory(tmp_path / "folder")
    assert contents(tmp_path / "folder") == {}
    assert held(overlay, tmp_path / "kept") == (tmp_path / "kept").read_bytes() == b"on the disk"
    overlay.remove(tmp_path / "kept")
    assert not (tmp_path / "kept").exists()
    overlay.close(fd)


def test_a_directory_that_is_not_on_the_disk_holds_what_is_written(
    overlay: Overlay, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    overlay.make_directory(folder)
    overlay.make_directory(tmp_path)
    overlay.sync_directory(folder)
    assert overlay.exists(folder)
    assert overlay.names(folder) == []
    written(overlay, folder / "f", 0, b"x")
    assert overlay.names(folder) == ["f"]
    assert not folder.exists()


def test_memory_is_bounded(
    overlay: Overlay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlay_module, "MEMORY_BYTES_MAX", 10)
    small = Overlay(SystemFiles(), FULL)
    fd = small.open(tmp_path / "f", create=True)
    small.write(fd, 0, [b"12345678"])
    with pytest.raises(OSError, match="No space left"):
        small.write(fd, 8, [b"123"])
    assert small.write(fd, 8, [b"12"]) == 2
    assert overlay.exists(tmp_path / "f") is False


def test_the_lock_of_an_overlay_keeps_another_broker_away(overlay: Overlay, tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    files = SystemFiles()
    other = files.open(tmp_path / "lock")
    fd = overlay.open(tmp_path / "lock", create=True)
    assert files.lock(other)
    assert not overlay.lock(fd)
    files.close(other)
    assert overlay.lock(fd)
    assert not overlay.is_removed(fd)
    overlay.close(fd)
    nowhere = overlay.open(tmp_path / "none", create=True)
    assert overlay.lock(nowhere)
    assert overlay.sync(nowhere) == 0
    assert not overlay.is_removed(nowhere)


def test_a_file_of_the_disk_alone_is_not_renamed(overlay: Overlay, tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(OSError, match="No space left"):
        overlay.rename(tmp_path / "f", tmp_path / "g")

"""The power goes: a real ext4 on a loop device forgets everything that was not synced.

`FS_IOC_SHUTDOWN` without a flush makes the file system a dead disk at once; mounting the image
again replays its journal, as after a real cut. On top of that a random half of the sectors that
were written and not synced is put back, in no order, as a drive may have done.
"""

import fcntl
import os
import random
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

FS_IOC_SHUTDOWN = 0x8004587D
WITHOUT_FLUSH = 2
IMAGE_BYTES = 48 << 20
SECTOR_BYTES = 512
MERGES = 6


class Disk:
    """An ext4 in a file, mounted; loses power when told."""

    def __init__(self, folder: Path) -> None:
        self.image = folder / "disk.img"
        self.mount = folder / "mount"
        self.mount.mkdir()
        with self.image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(self.image)], check=True)

    def power_on(self) -> None:
        subprocess.run(["mount", "-o", "loop", str(self.image), str(self.mount)], check=True)

    def cut(self) -> None:
        fd = os.open(self.mount, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, FS_IOC_SHUTDOWN, struct.pack("I", WITHOUT_FLUSH))
        finally:
            os.close(fd)

    def unplug(self) -> None:
        if os.path.ismount(self.mount):
            subprocess.run(["umount", str(self.mount)], check=True)


def missing_for_a_power_cut() -> str | None:
    """Says what this machine lacks for a loop-mounted ext4, or None."""
    if os.geteuid() != 0:
        return "mounting needs root"
    for program in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(program) is None:
            return f"the program {program} is not installed"
    if not Path("/dev/loop-control").exists():
        return "there is no /dev/loop-control: the kernel has no loop devices, or a container hides them"
    return None


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    reason = missing_for_a_power_cut()
    if reason is not None:
        pytest.skip(f"the power cut test cannot run: {reason}")
    made = Disk(tmp_path)
    try:
        made.power_on()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"the power cut test cannot run: loop-mounting an ext4 image failed: {error}")
    yield made
    made.unplug()


def contents(directory: Path) -> dict[Path, bytes]:
    return {
        path.relative_to(directory): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def after_the_cut(disk: Disk, child: Any) -> dict[Path, bytes]:
    """Cuts the power, kills the child, and returns what the disk holds when it comes back."""
    disk.cut()
    child.kill()
    disk.unplug()
    disk.power_on()
    return contents(disk.mount / "store")


def merged(durable: dict[Path, bytes], visible: dict[Path, bytes], seed: int) -> dict[Path, bytes]:
    """The durable bytes, with half of the sectors that were only written put in."""
    chosen = random.Random(seed)
    result = {}
    for path, content in durable.items():
        mixed, newer = bytearray(content), visible.get(path, b"")
        if len(newer) == len(content):
            for at in range(0, len(content), SECTOR_BYTES):
                if chosen.random() < 0.5:
                    mixed[at : at + SECTOR_BYTES] = newer[at : at + SECTOR_BYTES]
        result[path] = bytes(mixed)
    return result


def write(directory: Path, files: dict[Path, bytes]) -> Path:
    for path, content in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(content)
    return directory


def test_nothing_acknowledged_is_lost_when_the_power_goes_at_any_moment(
    disk: Disk,
    tmp_path: Path,
    start_appender: Callable[..., Any],
    check_store: Callable[..., int],
) -> None:
    chosen = random.Random(5)
    acks: list[tuple[int, int, int]] = []
    for round_number in range(4):
        child = start_appender(disk.mount / "store", seed=round_number)
        child.run(chosen.randint(1, 100))
        after_the_cut(disk, child)
        assert child.acks
        acks += child.acks
        assert check_store(disk.mount / "store", acks) >= len(acks)


def test_nothing_acknowledged_is_lost_when_sectors_of_the_last_write_arrive_in_any_order(
    disk: Disk,
    tmp_path: Path,
    start_appender: Callable[..., Any],
    check_store: Callable[..., int],
) -> None:
    acks: list[tuple[int, int, int]] = []
    torn = 0
    for round_number, stop_at in enumerate((7, 12, 30, 41)):
        child = start_appender(disk.mount / "store", seed=round_number, stop_at=stop_at)
        child.run(1_000)
        assert child.stopped
        visible = contents(disk.mount / "store")
        durable = after_the_cut(disk, child)
        acks += child.acks
        torn += durable != visible
        for merge in range(MERGES):
            copy = tmp_path / f"merged-{round_number}-{merge}"
            check_store(write(copy, merged(durable, visible, merge)), acks)
        check_store(disk.mount / "store", acks)
    assert torn, "the cut lost nothing, so nothing was tested"

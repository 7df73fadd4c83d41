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
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.errors import StoreFull, StoreReadOnly
from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore

FS_IOC_SHUTDOWN = 0x8004587D
WITHOUT_FLUSH = 2
IMAGE_BYTES = 48 << 20
SECTOR_BYTES = 512
MERGES = 6
# Cuts before a new store: recovery reads all of it each time, and the disk is small.
CUTS_PER_STORE = 20


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

    def turn_read_only(self) -> None:
        """As ext4 does by itself after an error of the disk, with files open for writing."""
        subprocess.run(["mount", "-o", "remount,abort", str(self.mount)], check=True)

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


def after_the_cut(disk: Disk, appender: Any) -> dict[Path, bytes]:
    """Cuts the power, kills the process, and returns what the disk holds when it comes back."""
    disk.cut()
    appender.kill()
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


@pytest.mark.timeout(3_600)
def test_nothing_acknowledged_is_lost_when_the_power_goes_at_any_moment(
    disk: Disk,
    appender: Any,
    judge_acks: Callable[..., Counter[str]],
    rounds: Callable[..., int],
    figures: Callable[..., None],
) -> None:
    chosen = random.Random(5)
    faults: Counter[str] = Counter()
    checked, cuts = 0, rounds(6, share=1 / 2)
    acks: list[Any] = []
    for number in range(cuts):
        if number % CUTS_PER_STORE == 0:
            shutil.rmtree(disk.mount / "store", ignore_errors=True)
            acks = []
        appender.live(disk.mount / "store", seed=number)
        appender.run(acks=chosen.randint(1, 100))
        # What is said later is said without power: a sync that runs while ext4 is shut down may
        # return without an error, which no machine that loses its power lives to see.
        heard = list(appender.acks)
        after_the_cut(disk, appender)
        assert heard
        acks += heard
        checked += len(heard)
        faults += judge_acks(disk.mount / "store", acks)
    figures("power cuts of an ext4", power_cuts=cuts, acks_checked=checked, **faults)
    assert not faults


@pytest.mark.timeout(3_600)
def test_nothing_acknowledged_is_lost_when_sectors_of_the_last_write_arrive_in_any_order(
    disk: Disk,
    tmp_path: Path,
    appender: Any,
    judge_acks: Callable[..., Counter[str]],
    rounds: Callable[..., int],
    figures: Callable[..., None],
) -> None:
    faults: Counter[str] = Counter()
    chosen = random.Random(6)
    torn, cuts = 0, rounds(4, share=1 / 2)
    acks: list[Any] = []
    for number in range(cuts):
        if number % CUTS_PER_STORE == 0:
            shutil.rmtree(disk.mount / "store", ignore_errors=True)
            acks = []
        appender.live(disk.mount / "store", seed=number, stop_at=chosen.randint(5, 40))
        appender.run()
        assert appender.stopped
        visible = contents(disk.mount / "store")
        durable = after_the_cut(disk, appender)
        acks += appender.acks
        torn += durable != visible
        for merge in range(MERGES):
            copy = write(tmp_path / "merged", merged(durable, visible, merge))
            faults += judge_acks(copy, acks)
            shutil.rmtree(copy)
        faults += judge_acks(disk.mount / "store", acks)
    figures(
        "power cuts of an ext4 with torn sectors",
        power_cuts=cuts, disks_checked=cuts * (MERGES + 1), torn=torn, **faults,
    )  # fmt: skip
    assert not faults
    assert torn, "the cut lost nothing, so nothing was tested"


async def test_a_file_system_that_turns_read_only_stops_acknowledgements_and_not_readers(
    disk: Disk, ledger: Any, rounds: Callable[..., int], figures: Callable[..., None]
) -> None:
    faults: Counter[str] = Counter()
    failures = min(rounds(2), 20)
    for number in range(failures):
        promised = ledger(number)
        settings = StoreSettings(directory=disk.mount / str(number), segment_bytes=64 * 1024)
        store = MessageStore(settings)
        store.open()
        for _ in range(5 + number):
            await promised.send(store)
        disk.turn_read_only()
        for _ in range(3):
            # A segment that cannot be made is only refused; a write that fails is the end.
            with pytest.raises((StoreReadOnly, StoreFull)):
                await promised.send(store)
        faults += promised.judge(store)
        await store.aclose()
        disk.unplug()
        disk.power_on()
        again = MessageStore(settings)
        again.open()
        faults += promised.judge(again)
        await promised.send(again)
        faults += promised.judge(again)
        await again.aclose()
    figures("an ext4 that turns read-only", read_only_disks=failures, **faults)
    assert not faults

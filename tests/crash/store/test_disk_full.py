"""No space at the n-th write: refused, nothing lost, readers go on, and room ends it by itself."""

import errno
import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.errors import StoreFull
from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore

QUICK = 60
GROWING = frozenset({"create", "write", "allocate"})
RESUME_SECONDS_MAX = 5.0
SPARE_BYTES = 128 << 10


class Full:
    """The disk is full from the n-th change that needs room on, until `room` is set."""

    def __init__(self, at: int) -> None:
        self._left = at
        self.room = False
        self.happened = 0

    def __call__(self, step: int, kind: str) -> None:
        if kind in GROWING:
            self._left -= 1
            if self._left <= 0 and not self.room:
                self.happened += 1
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def store_in(directory: Path, files: Any = None) -> MessageStore:
    settings = StoreSettings(directory=directory, segment_bytes=64 * 1024)
    return MessageStore(settings, files=files)


async def fill(store: MessageStore, ledger: Any, full: Full | None = None) -> Counter[str]:
    """Appends until the disk is full, and once more; counts what must not be."""
    faults: Counter[str] = Counter()
    refused = 0
    while refused < 2:
        try:
            await ledger.send(store)
            faults["acks_without_room"] += full is not None and full.happened > 0
        except StoreFull:
            refused += 1
            faults["refused_with_room"] += full is not None and not full.happened
            # Consumers go on.
            faults += ledger.judge(store)
    faults["read_only"] += store.read_only is not None
    return +faults


@pytest.mark.timeout(3_600)
async def test_a_disk_that_is_full_at_any_write_costs_nothing_but_time(
    tmp_path: Path,
    faulty_files: Any,
    ledger: Any,
    rounds: Callable[..., int],
    figures: Callable[..., None],
) -> None:
    faults: Counter[str] = Counter()
    # The first change that needs room is the lock file's, and then the store does not open at all.
    for at in range(2, rounds(QUICK, share=1 / 3) + 2):
        full, promised = Full(at), ledger(at)
        files = faulty_files(full)
        files.torn_bytes = 50 * at
        store = store_in(tmp_path / str(at), files)
        store.open()
        faults += await fill(store, promised, full)
        full.room = True
        await promised.send(store)
        faults += promised.judge(store)
        # Half of them end cleanly, half are killed.
        if at % 2:
            await store.aclose()
        else:
            files.abandon()
        again = store_in(tmp_path / str(at), faulty_files())
        again.open()
        faults += promised.judge(again)
        await again.aclose()
    figures("ENOSPC at the n-th write", full_disks=rounds(QUICK, share=1 / 3), **faults)
    assert not faults


@pytest.mark.timeout(3_600)
async def test_a_restart_after_a_full_disk_loses_nothing(
    tmp_path: Path, faulty_files: Any, ledger: Any, rounds: Callable[..., int]
) -> None:
    faults: Counter[str] = Counter()
    for at in range(2, rounds(QUICK, share=1 / 3) + 2):
        full, promised = Full(at), ledger(at)
        files = faulty_files(full)
        files.torn_bytes = 50 * at
        store = store_in(tmp_path / str(at), files)
        store.open()
        faults += await fill(store, promised, full)
        files.abandon()
        # The disk is as full as before: a start succeeds, consumers read, producers wait.
        still_full = Full(2)
        again = store_in(tmp_path / str(at), faulty_files(still_full))
        again.open()
        faults += promised.judge(again)
        still_full.room = True
        await promised.send(again)
        faults += promised.judge(again)
        await again.aclose()
    assert not faults


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 1 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    if shutil.which("mount") is None:
        pytest.skip("the program mount is not installed")
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "small", str(place)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


async def test_sending_goes_on_by_itself_when_a_full_disk_has_room_again(
    small_disk: Path,
    ledger: Any,
    rounds: Callable[..., int],
    figures: Callable[..., None],
    *,
    thorough: bool,
) -> None:
    faults: Counter[str] = Counter()
    slowest = 0.0
    for number in range(min(rounds(3), 40)):
        spare = small_disk / "spare"
        spare.write_bytes(bytes(SPARE_BYTES))
        promised = ledger(number)
        store = store_in(small_disk / "store")
        store.open()
        faults += await fill(store, promised)
        began = time.monotonic()
        spare.unlink()
        await promised.send(store)
        slowest = max(slowest, time.monotonic() - began)
        faults += promised.judge(store)
        await store.aclose()
        again = store_in(small_disk / "store")
        again.open()
        faults += promised.judge(again)
        await again.aclose()
        shutil.rmtree(small_disk / "store")
    figures(
        "a full tmpfs", full_disks=min(rounds(3), 40), seconds_to_resume=round(slowest, 4), **faults
    )
    assert not faults
    assert slowest <= RESUME_SECONDS_MAX or not thorough

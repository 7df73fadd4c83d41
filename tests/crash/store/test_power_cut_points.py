"""The power goes during every single change of the disk, and any part of what was not synced stays."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace_mq.errors import MessageQueueError
from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore

SEGMENT_BYTES = 64 * 1024
LIVES, GROUPS = 3, 15


def store_in(directory: Path, files: Any, flush: Any = "always") -> MessageStore:
    settings = StoreSettings(
        directory=directory,
        segment_bytes=SEGMENT_BYTES,
        flush=flush,
        flush_interval_ms=3_600_000,
    )
    return MessageStore(settings, files=files)


async def live(store: MessageStore, ledger: Any, groups: int) -> None:
    """Opens a store, appends and closes it; raises where the disk ends that."""
    try:
        store.open()
        for _ in range(groups):
            await ledger.send(store)
    finally:
        await store.aclose()


async def lives(directory: Path, files: Any, ledger: Any, flush: str = "always") -> None:
    """What is cut: a first start, restarts after a clean end, several segments of both logs."""
    for _ in range(LIVES):
        await live(store_in(directory, files, flush), ledger, GROUPS)


async def after_the_cut(directory: Path, files: Any, ledger: Any) -> Counter[str]:
    """Recovers what the disk kept, and goes on; counts what must not be."""
    store = store_in(directory, files)
    store.open()
    faults: Counter[str] = ledger.judge(store)
    if not faults:
        await ledger.send(store)
    files.abandon()
    if faults:
        return faults
    again = store_in(directory, files)
    again.open()
    # All that was not acknowledged was sent again: everything is there, nothing twice.
    faults = ledger.judge(again)
    await again.aclose()
    return faults


async def cut(
    folder: Path, cut_at: int, new: dict[str, Any], *, flush: str = "always"
) -> tuple[Counter[str], bool]:
    """Runs the lives up to a cut at a step; says whether the power went before the end."""
    files, ledger = new["disk"](folder / "store"), new["ledger"](cut_at)
    files.cut_at = cut_at
    (folder / "store").mkdir(parents=True)
    try:
        await lives(folder / "store", files, ledger, flush)
    except MessageQueueError:
        assert files.dead
    files.image(folder / "kept", random.Random(str(folder)))
    files.forget()
    return await after_the_cut(folder / "kept", new["files"](), ledger), files.dead


async def test_a_power_cut_during_any_change_loses_nothing_acknowledged(
    tmp_path: Path,
    power_cut_files: Any,
    faulty_files: Any,
    ledger: Any,
    rounds: Callable[..., int],
    figures: Callable[..., None],
) -> None:
    new = {"disk": power_cut_files, "files": faulty_files, "ledger": ledger}
    faults: Counter[str] = Counter()
    cuts, step, sweeps = 0, 0, 0
    steps = 0
    # Every step once, however few rounds were asked for.
    while cuts < rounds(1) or sweeps == 0:
        step += 1
        found, happened = await cut(tmp_path / f"{sweeps}-{step}", step, new)
        faults += found
        cuts += happened
        if not happened:
            assert step > LIVES * GROUPS * 2
            steps, step, sweeps = step - 1, 0, sweeps + 1
    figures("power cuts at every change of the disk", power_cuts=cuts, steps=steps, **faults)
    assert not faults


async def test_acknowledging_before_the_sync_is_noticed_by_the_same_cuts(
    tmp_path: Path, power_cut_files: Any, faulty_files: Any, ledger: Any
) -> None:
    new = {"disk": power_cut_files, "files": faulty_files, "ledger": ledger}
    faults: Counter[str] = Counter()
    for step in range(20, 60):
        found, _ = await cut(tmp_path / str(step), step, new, flush="interval")
        faults += found
    assert faults["lost_acks"] > 0


async def test_a_disk_that_lies_about_syncs_is_noticed_by_the_same_cuts(
    tmp_path: Path, power_cut_files: Any, faulty_files: Any, ledger: Any
) -> None:
    def lying(root: Path) -> Any:
        files = power_cut_files(root)
        files.sync = lambda fd: 0
        return files

    new = {"disk": lying, "files": faulty_files, "ledger": ledger}
    faults: Counter[str] = Counter()
    for step in range(20, 60):
        try:
            found, _ = await cut(tmp_path / str(step), step, new)
        except MessageQueueError:
            # A new segment whose header never reached the disk: refused, which is loud as well.
            found = Counter(refused=1)
        faults += found
    assert faults["lost_acks"] > 0


async def test_the_judge_sees_each_kind_of_fault(
    tmp_path: Path, faulty_files: Any, ledger: Any
) -> None:
    files, promised = faulty_files(), ledger(1)
    store = store_in(tmp_path, files)
    store.open()
    for _ in range(5):
        await promised.send(store)
    assert promised.judge(store) == {}
    queue = max(promised.acked, key=promised.acked.__getitem__)
    right = promised.sent[queue][0]
    promised.sent[queue][0] = tuple(body + b"!" for body in right)
    assert promised.judge(store) == {"wrong_bodies": 1}
    promised.sent[queue][0] = right
    last = promised.sent[queue].pop()
    assert promised.judge(store) == {"phantoms": 1}
    promised.sent[queue] += [last, (b"never sent",)]
    promised.acked[queue] += 1
    assert promised.judge(store) == {"lost_acks": 1}
    await store.aclose()

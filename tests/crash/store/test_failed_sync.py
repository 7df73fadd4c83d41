"""The n-th sync or write fails: no acknowledgement after it, and a restart has all before it."""

import errno
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.errors import MessageQueueError, StoreReadOnly
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore

QUICK, GROUPS_MAX = 40, 300
SYNCS = frozenset({"sync", "sync_directory"})


class Failing:
    """Fails the n-th change of some kinds, once or from then on.

    Attributes:
        happened: how often it failed.
    """

    def __init__(self, kinds: frozenset[str], at: int, number: int, *, sticky: bool) -> None:
        self._kinds = kinds
        self._left = at
        self._error = number
        self._sticky = sticky
        self.happened = 0

    def __call__(self, step: int, kind: str) -> None:
        if kind in self._kinds:
            self._left -= 1
        elif not (self._sticky and self.happened):
            return
        if self._left == 0 or (self._sticky and self._left < 0):
            self.happened += 1
            raise OSError(self._error, errno.errorcode[self._error])


def store_in(directory: Path, files: Any) -> MessageStore:
    settings = StoreSettings(directory=directory, segment_bytes=64 * 1024)
    return MessageStore(settings, files=files)


async def fail(directory: Path, files: Any, ledger: Any) -> Counter[str]:
    """Appends until the store refuses; counts what must not be, there and after a restart."""
    store = store_in(directory, files)
    faults: Counter[str] = Counter()
    try:
        store.open()
        for _ in range(GROUPS_MAX):
            await ledger.send(store)
        faults["never_refused"] += 1
    except StoreReadOnly:
        faults["writable_after_failure"] += store.read_only is None
        faults["acks_after_failure"] += await acks_after_failure(store)
        # Reading goes on, whatever the disk does.
        faults += ledger.judge(store)
    except MessageQueueError:
        faults["acks_at_refused_start"] += ledger.messages
    await store.aclose()
    again = store_in(directory, type(files)())
    again.open()
    faults += ledger.judge(again)
    await ledger.send(again)
    faults += ledger.judge(again)
    await again.aclose()
    return +faults


async def acks_after_failure(store: MessageStore) -> int:
    """Tries both logs again; returns how many were acknowledged."""
    acked = 0
    for retention in ("forever", "transient"):
        batch = encode_batch(QueueRef("t", 9), Columns([], [], [], [b""], []), born_first_ms=0)
        try:
            store.append(batch, retention=retention)
            await store.durable()
            acked += 1
        except StoreReadOnly:
            pass
    return acked


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("sticky", [False, True], ids=["once", "for good"])
async def test_no_failed_sync_is_ever_acknowledged_or_retried(
    tmp_path: Path,
    faulty_files: Any,
    ledger: Any,
    rounds: Callable[..., int],
    figures: Callable[..., None],
    *,
    sticky: bool,
) -> None:
    faults: Counter[str] = Counter()
    failures = 0
    for at in range(1, rounds(QUICK, share=2 / 3) + 1):
        failing = Failing(SYNCS, at, errno.EIO, sticky=sticky)
        promised = ledger(at)
        faults += await fail(tmp_path / str(at), faulty_files(failing), promised)
        failures += failing.happened > 0
    figures(
        f"EIO at the n-th sync, {'for good' if sticky else 'once'}",
        failed_syncs=failures, **faults,
    )  # fmt: skip
    assert failures == rounds(QUICK, share=2 / 3)
    assert not faults


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.EINTR], ids=errno.errorcode.get)
async def test_no_failed_write_is_ever_acknowledged_or_retried(
    tmp_path: Path,
    faulty_files: Any,
    ledger: Any,
    rounds: Callable[..., int],
    figures: Callable[..., None],
    number: int,
) -> None:
    faults: Counter[str] = Counter()
    # The first writes are those of the two logs' first segments: a start may fail there.
    for at in range(1, rounds(QUICK, share=1 / 3) + 1):
        failing = Failing(frozenset({"write"}), at, number, sticky=number != errno.EINTR)
        files = faulty_files(failing)
        files.torn_bytes = 100 * at
        faults += await fail_write(tmp_path / str(at), files, ledger(at))
    figures(
        f"{errno.errorcode[number]} at the n-th write",
        failed_writes=rounds(QUICK, share=1 / 3),
        **faults,
    )
    assert not faults


async def fail_write(directory: Path, files: Any, ledger: Any) -> Counter[str]:
    """Like `fail`; a segment that cannot be made is only refused, so it is tried again first."""
    store = store_in(directory, files)
    store.open()
    faults: Counter[str] = Counter()
    while not files.fault.happened:
        try:
            await ledger.send(store)
        except MessageQueueError as error:
            faults["refused_without_failure"] += not files.fault.happened
            faults["unknown_refusal"] += type(error).__name__ not in {"StoreReadOnly", "StoreFull"}
    if store.read_only is not None:
        faults["acks_after_failure"] += await acks_after_failure(store)
    faults += ledger.judge(store)
    files.abandon()
    again = store_in(directory, type(files)())
    again.open()
    faults += ledger.judge(again)
    await ledger.send(again)
    faults += ledger.judge(again)
    await again.aclose()
    return +faults


@pytest.mark.parametrize("longest", [1, 7, 512, 4_097])
async def test_short_writes_change_nothing(
    tmp_path: Path, faulty_files: Any, ledger: Any, longest: int
) -> None:
    files, promised = faulty_files(), ledger(longest)
    files.longest_write = longest
    store = store_in(tmp_path, files)
    store.open()
    for _ in range(3 if longest == 1 else 30):
        await promised.send(store, new=2)
    assert promised.judge(store) == {}
    files.abandon()
    again = store_in(tmp_path, faulty_files())
    again.open()
    assert promised.judge(again) == {}
    assert promised.messages > 0
    await again.aclose()


async def test_signals_in_the_middle_of_system_calls_change_nothing(
    tmp_path: Path, ledger: Any
) -> None:
    arrived = 0

    def count(number: int, frame: object) -> None:
        nonlocal arrived
        arrived += 1

    before = signal.signal(signal.SIGALRM, count)
    signal.setitimer(signal.ITIMER_REAL, 0.000_5, 0.000_5)
    try:
        promised = ledger(1)
        store = MessageStore(StoreSettings(directory=tmp_path, segment_bytes=256 * 1024))
        store.open()
        while arrived < 100:
            await promised.send(store)
        assert promised.judge(store) == {}
        await store.aclose()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


async def test_a_store_that_hides_failed_syncs_is_noticed(
    tmp_path: Path, faulty_files: Any, ledger: Any
) -> None:
    class Hiding(faulty_files):  # type: ignore[misc]  # a class that a fixture hands out
        def sync(self, fd: int) -> int:
            try:
                return int(super().sync(fd))
            except OSError:
                return 0

    faults: Counter[str] = Counter()
    for at in range(5, 15):
        files = Hiding(Failing(frozenset({"sync"}), at, errno.EIO, sticky=False))
        faults += await fail(tmp_path / str(at), files, ledger(at))
    assert faults["never_refused"] > 0

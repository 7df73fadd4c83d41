"""The machine's clock jumps: order, offsets and reading do not depend on it."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import read_header
from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore

HOUR_MS = 3_600_000
JUMPS = (-HOUR_MS, 48 * HOUR_MS, -72 * HOUR_MS, 0, 365 * 24 * HOUR_MS)


class JumpingClock:
    """A clock that somebody sets, again and again; its monotonic side goes on."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        self._monotonic_ms += 1
        return self._monotonic_ms


def store_in(directory: Path, files: Any, clock: Any) -> MessageStore:
    settings = StoreSettings(directory=directory, segment_bytes=64 * 1024, tail_cache_bytes=0)
    return MessageStore(settings, files=files, clock=clock)


@pytest.mark.parametrize("end", ["clean", "killed"])
async def test_a_clock_that_jumps_changes_neither_order_nor_offsets(
    tmp_path: Path, faulty_files: Any, ledger: Any, end: str
) -> None:
    clock, promised = JumpingClock(), ledger(3)
    times = []
    for jump in JUMPS:
        files = faulty_files()
        store = store_in(tmp_path, files, clock)
        store.open()
        assert promised.judge(store) == {}
        for _ in range(10):
            await promised.send(store)
            clock.ms += 1
        clock.ms += jump
        for _ in range(10):
            await promised.send(store)
        assert promised.judge(store) == {}
        times = append_times(store)
        if end == "clean":
            await store.aclose()
        else:
            files.abandon()
    again = store_in(tmp_path, faulty_files(), clock)
    again.open()
    assert promised.judge(again) == {}
    assert append_times(again) == times
    # The append time is what the clock said then, jumps and all: no order may be read from it.
    assert any(following < time for time, following in pairwise(times))
    await again.aclose()


def append_times(store: MessageStore) -> list[int]:
    queue = QueueRef("t", 1)
    batches = store.read(queue, store.range(queue)[0], 1 << 30)
    headers = [read_header(batch) for batch in batches]
    assert [h.base_offset for h in headers] == sorted(h.base_offset for h in headers)
    return [header.appended_at_ms for header in headers]

"""What tests of replicated logs share: a store behind a gate, driven as an owner drives it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from headrace_mq._runtime.files import SystemFiles
from headrace_mq.protocol.batch import decode_records
from headrace_mq.settings import StoreSettings
from headrace_mq.store.log.commit_gate import CommitGate
from headrace_mq.store.message_store import MessageStore
from headrace_mq.store.replication.raw_log import RawRange, raw_groups

LOG = "forever"
EVERYTHING = 1 << 40


class Copy:
    """One copy of a log, open or closed."""

    def __init__(self, directory: Path, files: Any = None, epoch: int = 1) -> None:
        self.settings = StoreSettings(directory=directory, segment_bytes=64 * 1024)
        self.files = files or SystemFiles()
        self.open(epoch)

    def open(self, epoch: int = 1) -> None:
        self.gate = CommitGate()
        self.store = MessageStore(self.settings, epoch=epoch, files=self.files, gate=self.gate)
        self.store.open()

    async def append(self, batch: bytearray, *, commit: bool = True, log: str = LOG) -> int:
        """Appends a batch as a leader does; returns where the log ends on the disk."""
        end = self.end(log)
        self.store.append(batch, retention=log)
        waits = self.store.durable()
        while self.end(log) == end:
            await asyncio.sleep(0)
        if commit:
            self.gate.reached(log, EVERYTHING)
            await waits
        return self.end(log)

    def end(self, log: str = LOG) -> int:
        return self.store.raw.ends()[log]

    async def pull(self, leader: "Copy", *, bytes_max: int = 10_000, commit: bool = True) -> None:
        """Takes over what the leader has more."""
        while (raw := leader.store.raw.read(LOG, self.end(), bytes_max)).data:
            await self.take(raw)
        if commit:
            self.gate.reached(LOG, self.end())

    async def take(self, raw: RawRange) -> None:
        """Appends a range; returns when it is on the disk."""
        self.store.raw.append(raw)
        while self.end() < raw.position + len(raw.data):
            await asyncio.sleep(0)

    def batches(self) -> list[bytes]:
        """Returns the bytes of every batch of the log, visible or not."""
        found: list[bytes] = []
        at = self.store.segments(LOG)[0].base if self.store.segments(LOG) else 0
        while (raw := self.store.raw.read(LOG, at, 1 << 20)).data:
            found += [
                data for group in raw_groups(raw.data, raw.position) for _, data in group.batches
            ]
            at += len(raw.data)
        return found

    def bodies(self, queue: Any) -> list[bytes]:
        first, end = self.store.range(queue)
        found: list[bytes] = []
        while first < end and (batches := self.store.read(queue, first, 1 << 20)):
            records = [record for batch in batches for record in decode_records(batch)]
            found += [record.body for record in records]
            first = records[-1].offset + 1
        return found


@pytest.fixture
async def new_copy(tmp_path: Path) -> AsyncIterator[Callable[..., Copy]]:
    """Makes copies: `new_copy("a")`."""
    made: list[Copy] = []

    def make(name: str, **options: Any) -> Copy:
        made.append(Copy(tmp_path / name, **options))
        return made[-1]

    yield make
    for copy in made:
        await copy.store.aclose()

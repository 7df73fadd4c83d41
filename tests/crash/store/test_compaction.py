"""The power goes, or the process dies, while a log is compacted: the state stays what it was."""

import errno
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.errors import MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, decode_records, encode_batch, read_header
from headrace_mq.settings import StoreSettings
from headrace_mq.store.compaction.latest_keys import LatestKeys
from headrace_mq.store.message_store import MessageStore
from headrace_mq.testing.simulated_disk import MountedFiles, SimulatedDisk

DIRECTORY = Path("/store")
SEGMENT_BYTES = 64 * 1024
TOMBSTONE_MS = 50
QUEUES = [QueueRef("state", 0), QueueRef("state", 1)]

Value = tuple[str, bytes]


class Clock:
    ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


class Machine:
    """A disk that stops at a chosen change, and all that was ever sent to it.

    Attributes:
        latest: what a reader from the beginning has to come to.
        written: what stands at each offset, for ever.
    """

    def __init__(self, seed: int, *, memory_bytes: int = 1 << 20) -> None:
        self.chosen = random.Random(seed)
        self.disk = SimulatedDisk(random.Random(seed + 1))
        self.disk.fault = self._count
        self.clock = Clock()
        self.memory_bytes = memory_bytes
        self.latest: dict[tuple[QueueRef, str], bytes] = {}
        self.written: dict[tuple[QueueRef, int], Value] = {}
        self.sent: dict[QueueRef, int] = dict.fromkeys(QUEUES, 0)
        self.pending: tuple[QueueRef, list[Value]] | None = None
        self.changes = 0
        self.stop_at: int | None = None
        self.rewritten = 0
        self.files: MountedFiles | None = None
        self.disk.make_directory(DIRECTORY)
        self.disk.sync_directory(DIRECTORY.parent)

    def _count(self, _kind: str) -> None:
        self.changes += 1
        if self.stop_at is not None and self.changes >= self.stop_at:
            raise OSError(errno.EIO, "the machine stands still")

    def open(self) -> MessageStore:
        self.files = self.disk.mount()
        settings = StoreSettings(
            directory=DIRECTORY, compact_segment_bytes=SEGMENT_BYTES, compact_lag_ms=0,
            compact_bytes_per_s=0, tombstone_ms=TOMBSTONE_MS,
            compact_memory_bytes=self.memory_bytes,
        )  # fmt: skip
        store = MessageStore(settings, clock=self.clock, files=self.files)
        store.open()
        return store

    async def send(self, store: MessageStore) -> None:
        """Sends a batch and waits for it; one that was not acknowledged is sent again first."""
        self.clock.ms += self.chosen.randrange(20)
        if self.pending is None:
            count = self.chosen.randint(1, 12)
            values = [
                (
                    f"key {self.chosen.randrange(40)}",
                    b"" if self.chosen.random() < 0.2 else self.chosen.randbytes(300),
                )
                for _ in range(count)
            ]
            self.pending = (self.chosen.choice(QUEUES), values)
        queue, values = self.pending
        batch = encode_batch(
            queue,
            Columns([key for key, _ in values], [], [], [body for _, body in values], []),
            born_first_ms=1, producer_id=5, first_sequence=self.sent[queue],
        )  # fmt: skip
        base = store.append(batch, retention="compact").base_offset
        assert base == self.sent[queue]
        await store.durable()
        for number, (key, body) in enumerate(values):
            self.written[queue, base + number] = (key, body)
            self.latest[queue, key] = body
        self.sent[queue] = base + len(values)
        self.pending = None

    def judge(self, store: MessageStore) -> None:
        """Reads everything like a reader from the beginning."""
        assert not store.damage
        found: dict[tuple[QueueRef, str], bytes] = {}
        for queue in QUEUES:
            at, end = store.range(queue)
            assert (at, end) == (0, self.sent[queue])
            while at < end:
                batches = store.read(queue, at, 20_000)
                assert batches
                records = [one for batch in batches for one in decode_records(batch)]
                offsets = [record.offset for record in records]
                assert offsets == sorted(set(offsets))
                for record in records:
                    assert (record.key, record.body) == self.written[queue, record.offset]
                    found[queue, record.key] = record.body
                at = read_header(batches[-1]).next_offset
        alive = {place: body for place, body in found.items() if body}
        assert alive == {place: body for place, body in self.latest.items() if body}


async def life(machine: Machine, rounds: int) -> None:
    """Opens the store, sends and compacts by turns; raises where the disk ends that."""
    store = machine.open()
    try:
        for _ in range(rounds):
            for _ in range(40):
                await machine.send(store)
            await store.compaction.run({}, force=True)
            rewritten = [one.compacted.rounds for one in store.segments("compact") if one.compacted]
            machine.rewritten = max(machine.rewritten, sum(rewritten))
            while store.index_keys(1 << 20):
                pass
    finally:
        await store.aclose()


async def lives(machine: Machine) -> None:
    for _ in range(2):
        await life(machine, 3)


async def stop_and_judge(machine: Machine, stop_at: int, *, power: bool) -> None:
    """Stops the machine at a change of its disk, starts it again and looks."""
    machine.stop_at = stop_at
    with suppress(MessageQueueError, OSError):
        await lives(machine)
    machine.stop_at = None
    assert machine.files is not None
    machine.files.abandon()
    if power:
        machine.disk.cut_power()
    store = machine.open()
    if machine.pending is not None:
        await machine.send(store)
    machine.judge(store)
    await store.compaction.run({}, force=True)
    assert store.compaction.figures.trouble == ""
    machine.judge(store)
    await store.aclose()
    again = machine.open()
    machine.judge(again)
    await again.aclose()


@pytest.mark.parametrize("power", [True, False], ids=["power cut", "killed"])
@pytest.mark.parametrize("memory_bytes", [64 << 10, 1 << 20], ids=["in parts", "at once"])
async def test_whenever_it_stops_a_reader_from_the_beginning_finds_the_same_state(
    power: bool, memory_bytes: int, rounds: Callable[..., int]
) -> None:
    whole = Machine(7, memory_bytes=memory_bytes)
    await lives(whole)
    assert whole.rewritten > 3
    chosen = random.Random(memory_bytes + power)
    for _ in range(rounds(15)):
        machine = Machine(7, memory_bytes=memory_bytes)
        await stop_and_judge(machine, chosen.randrange(1, whole.changes), power=power)


async def test_a_record_too_many_taken_out_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = LatestKeys.kept

    def too_few(self: LatestKeys, *given: Any, **named: Any) -> list[int]:
        return kept(self, *given, **named)[1:]

    monkeypatch.setattr(LatestKeys, "kept", too_few)
    machine = Machine(7)
    # Never sent again: whatever else the newest segment repeats, this one is missed.
    machine.pending = (QUEUES[0], [("sent once", b"and it has to stay")])
    await lives(machine)
    store = machine.open()
    with pytest.raises(AssertionError):
        machine.judge(store)
    await store.aclose()

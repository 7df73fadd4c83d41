"""The store against a list in memory, with kills, power cuts, full disks and flipped bits."""

import asyncio
import contextlib
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from headrace_mq.errors import StoreFull, StoreReadOnly
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, decode_records, encode_batch, read_header
from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore
from headrace_mq.store.segment.segment import SEGMENT_HEADER_BYTES

QUEUES = 3
SEGMENT_BYTES = 64 * 1024


# A queue, the sizes of a batch's bodies and the byte they are made of.
BATCHES = st.tuples(
    st.integers(0, QUEUES - 1),
    st.lists(st.sampled_from([0, 10, 500, 3_000, 20_000]), min_size=1, max_size=3),
    st.integers(0, 255),
)


class Entry(NamedTuple):
    """One batch as its producer remembers it."""

    sequence: int
    bodies: tuple[bytes, ...]


def retention(queue: int) -> str:
    return "transient" if queue == 0 else "forever"


def reference(queue: int) -> QueueRef:
    return QueueRef("t", queue)


class StoreModel(RuleBasedStateMachine):
    """Rules do to the store what brokers, disks and people do; `acked` is what was promised.

    One producer per queue sends again, in order, whatever was not acknowledged; so after every
    crash each message must be there once and in order.
    """

    new_files: Callable[[Path], Any]
    new_folder: Callable[[], Path]

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = type(self).new_folder()
        self.generation = 0
        self.directory = self.folder / "0"
        self.directory.mkdir()
        self.acked: dict[int, list[tuple[int, bytes]]] = {q: [] for q in range(QUEUES)}
        self.waiting: list[tuple[int, Entry]] = []
        self.next_sequence = dict.fromkeys(range(QUEUES), (1 << 32) - 20)
        self.last: dict[int, tuple[int, Entry]] = {}
        self.damaged: set[tuple[int, int]] = set()

    @initialize(flush=st.sampled_from(["always", "always", "interval"]))
    def begin(self, flush: str) -> None:
        self.flush = flush
        self.open()

    def teardown(self) -> None:
        with contextlib.suppress(StoreReadOnly):
            self.loop.run_until_complete(self.store.aclose())
        self.files.forget()
        self.loop.close()
        shutil.rmtree(self.folder)

    def open(self) -> None:
        self.files = type(self).new_files(self.directory)
        self.store = MessageStore(
            StoreSettings(
                directory=self.directory,
                segment_bytes=SEGMENT_BYTES,
                flush=self.flush,  # type: ignore[arg-type]  # one of the two words
                flush_interval_ms=3_600_000,
            ),
            files=self.files,
        )
        self.store.open()

    def batch(self, queue: int, entry: Entry) -> bytearray:
        return encode_batch(
            reference(queue),
            Columns([], [], [], list(entry.bodies), []),
            born_first_ms=0,
            producer_id=queue + 1,
            first_sequence=entry.sequence,
        )

    async def send_waiting(self) -> None:
        """Sends what waits; raises what `durable` raises."""
        sent = [
            (queue, entry, self.store.append(self.batch(queue, entry), retention=retention(queue)))
            for queue, entry in self.waiting
        ]
        await self.store.durable()
        for queue, entry, appended in sent:
            assert not appended.duplicate
            self.acknowledge(queue, entry, appended.base_offset)
        self.waiting.clear()

    def acknowledge(self, queue: int, entry: Entry, offset: int) -> None:
        held = self.acked[queue]
        assert offset == (held[-1][0] + 1 if held else 0)
        held += [(offset + n, body) for n, body in enumerate(entry.bodies)]
        self.last[queue] = (offset, entry)

    def visible(self, queue: int) -> list[tuple[int, bytes]]:
        first, end = self.store.range(reference(queue))
        found: list[tuple[int, bytes]] = []
        at = first
        while at < end and (batches := self.store.read(reference(queue), at, 5_000)):
            for batch in batches:
                found += [(r.offset, r.body) for r in decode_records(batch) if r.offset >= at]
                at = read_header(batch).next_offset
        return found

    def recovered(self) -> None:
        """Checks what a crash left, then lets producers send again what was not acknowledged."""
        before = {queue: self.visible(queue) for queue in range(QUEUES)}
        for queue, found in before.items():
            kept = [pair for pair in self.acked[queue] if (queue, pair[0]) not in self.damaged]
            assert found[: len(kept)] == kept
        self.loop.run_until_complete(self.send_again(before))

    async def send_again(self, before: dict[int, list[tuple[int, bytes]]]) -> None:
        again, self.waiting = self.waiting, []
        for queue, entry in again:
            held = self.acked[queue]
            offset = held[-1][0] + 1 if held else 0
            appended = self.store.append(self.batch(queue, entry), retention=retention(queue))
            there = [body for at, body in before[queue] if at >= offset]
            assert appended == (offset, bool(there))
            if appended.duplicate:
                assert there[: len(entry.bodies)] == list(entry.bodies)
            self.acknowledge(queue, entry, offset)
        await self.store.durable()

    @rule(batch=BATCHES)
    def produce(self, batch: tuple[int, list[int], int]) -> None:
        queue, sizes, fill = batch
        entry = Entry(self.next_sequence[queue], tuple(bytes([fill]) * size for size in sizes))
        self.next_sequence[queue] = (entry.sequence + len(sizes)) % (1 << 32)
        self.waiting.append((queue, entry))

    @rule()
    def send(self) -> None:
        self.loop.run_until_complete(self.send_waiting())

    @precondition(lambda self: self.waiting)
    @rule(give_up=st.booleans())
    def meet_a_full_disk(self, give_up: bool) -> None:
        self.files.write_error = OSError(28, "No space left on device")
        with pytest.raises(StoreFull):
            self.loop.run_until_complete(self.send_waiting())
        self.files.write_error = None
        if give_up:
            # Nothing of it was kept, so these sequences may be used for something else.
            for queue, entry in reversed(self.waiting):
                self.next_sequence[queue] = entry.sequence
            self.waiting.clear()

    @rule(queue=st.integers(0, QUEUES - 1))
    def repeat_the_last_batch(self, queue: int) -> None:
        if queue in self.last:
            offset, entry = self.last[queue]
            batch = self.batch(queue, entry)
            # A repeated batch is never staged, so this needs no running loop.
            assert self.store.append(batch, retention=retention(queue)) == (offset, True)

    @rule()
    def close_and_open(self) -> None:
        self.loop.run_until_complete(self.store.aclose())
        self.files.forget()
        self.open()
        self.recovered()

    @rule()
    def kill_and_open(self) -> None:
        self.store._release()
        self.files.forget()
        self.open()
        self.recovered()

    @precondition(lambda self: self.flush == "interval")
    @rule()
    def sync_by_the_timer(self) -> None:
        async def sync() -> None:
            self.store._flusher._start_timed_sync()
            running = self.store._flusher._timed_sync
            assert running is not None
            await asyncio.wait([running])

        self.loop.run_until_complete(sync())

    @precondition(lambda self: self.flush == "always")
    @rule(
        batches=st.lists(BATCHES, max_size=6),
        seed=st.integers(0, 1 << 30),
        syncs=st.sampled_from([0, 0, 1, 2, 3, 4]),
    )
    def lose_power(self, batches: list[tuple[int, list[int], int]], seed: int, syncs: int) -> None:
        """After a number of syncs the disk is gone, most often in the middle of a group."""
        for batch in batches:
            self.produce(batch)
        self.files.syncs_left = syncs
        try:
            self.loop.run_until_complete(self.send_waiting())
        except StoreReadOnly:
            assert self.store.read_only is not None
        self.generation += 1
        self.directory = self.folder / str(self.generation)
        self.files.image(self.directory, random.Random(seed))
        with contextlib.suppress(StoreReadOnly):
            self.loop.run_until_complete(self.store.aclose())
        self.files.forget()
        self.open()
        assert self.store.damage == [] or self.damaged
        self.recovered()

    @precondition(lambda self: any(self.acked.values()))
    @rule(data=st.data())
    def flip_a_bit_of_an_acknowledged_batch(self, data: st.DataObject) -> None:
        queue = data.draw(st.sampled_from([q for q in self.acked if self.acked[q]]))
        known = self.store._queues.get(reference(queue))
        assert known is not None
        # The last batch stays whole, so that repeating it is still answered with its place.
        places = known.index.find(0, 1 << 30)[:-1]
        self.loop.run_until_complete(self.store.aclose())
        self.files.forget()
        if places:
            place = data.draw(st.sampled_from(places))
            self.flip(queue, place.position + data.draw(st.integers(0, place.length - 1)))
            self.damaged |= {(queue, place.base + n) for n in range(place.records)}
        self.open()
        self.recovered()

    def flip(self, queue: int, position: int) -> None:
        directory = self.directory / retention(queue)
        path = max(p for p in directory.iterdir() if int(p.name.partition(".")[0]) <= position)
        content = bytearray(path.read_bytes())
        content[SEGMENT_HEADER_BYTES + position - int(path.name.partition(".")[0])] ^= 4
        path.write_bytes(content)

    @invariant()
    def readers_see_what_was_acknowledged_and_nothing_else(self) -> None:
        if not hasattr(self, "store"):
            return
        for queue in range(QUEUES):
            expected = [pair for pair in self.acked[queue] if (queue, pair[0]) not in self.damaged]
            assert self.visible(queue) == expected


def test_the_store_keeps_its_promises_through_any_sequence_of_operations_and_crashes(
    power_cut_files: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    parts = {
        "new_files": staticmethod(power_cut_files),
        "new_folder": staticmethod(lambda: tmp_path_factory.mktemp("model")),
    }
    machine = type("Machine", (StoreModel,), parts)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=60,
            stateful_step_count=20,
            deadline=None,
            # Shrinking takes minutes: add Phase.shrink to study a failure.
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )

"""A start from the indexes knows what a start from the log alone knows, whatever became of them."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, decode_records, encode_batch
from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore

# (queue, producer, size of the body, ms that the clock moves) of each batch.
BATCHES = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(0, 3), st.sampled_from([0, 100, 3_000, 20_000]),
        st.integers(-50, 100),
    ),
    max_size=40,
)  # fmt: skip
MISHAPS = st.sampled_from(["none", "delete", "truncate", "flip", "swap", "reopen", "drop"])


class World:
    """One store, reopened at will, beside a list of all that was sent to it."""

    def __init__(self, directory: Path, clock: Any) -> None:
        self.directory = directory
        self.clock = clock
        self.sequences: dict[tuple[int, int], int] = {}
        self.sent: dict[QueueRef, list[tuple[int, int, bytes]]] = {}
        self.store = self.opened()

    def opened(self) -> MessageStore:
        store = MessageStore(
            StoreSettings(directory=self.directory, segment_bytes=64 << 10),
            clock=self.clock,
            index_block_bytes=20_000,
        )
        store.open()
        return store

    async def send(self, queue: int, producer: int, size: int, ms: int) -> None:
        self.clock.ms += ms
        sequence = self.sequences.get((queue, producer), 0)
        self.sequences[queue, producer] = sequence + 2
        held = self.sent.setdefault(QueueRef("t", queue), [])
        bodies = [b"%d" % len(held), b"x" * size]
        batch = encode_batch(
            QueueRef("t", queue),
            Columns([], [], [], bodies, []),
            born_first_ms=0,
            producer_id=producer,
            first_sequence=sequence,
        )
        appended = self.store.append(batch, retention="forever")
        await self.store.durable()
        held += [(appended.base_offset + n, self.clock.ms, body) for n, body in enumerate(bodies)]

    async def delete(self, share: float) -> None:
        segments = self.store.segments("forever")
        if segments:
            before = int(segments[-1].end * share)
            gone = [s for s in segments if s.sealed and s.end <= before]
            assert self.store.delete_segments("forever", before) == len(gone)
            for queue, held in self.sent.items():
                cut = max((s.next_offsets.get(queue, 0) for s in gone), default=0)
                self.sent[queue] = [entry for entry in held if entry[0] >= cut]

    def spoil(self, mishap: str, seed: int) -> None:
        chance = random.Random(seed)
        indexes = sorted(self.directory.glob("forever/*.index"))
        if not indexes:
            return
        victim = chance.choice(indexes)
        content = bytearray(victim.read_bytes())
        if mishap == "delete":
            victim.unlink()
        elif mishap == "truncate":
            victim.write_bytes(content[: chance.randrange(len(content) + 1)])
        elif mishap == "flip" and content:
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            victim.write_bytes(content)
        elif mishap == "swap":
            victim.write_bytes(chance.choice(indexes).read_bytes())

    def check(self) -> None:
        assert self.store.damage == []
        for queue, held in self.sent.items():
            first, end = self.store.range(queue)
            read = [
                (record.offset, record.stored_at_ms, record.body)
                for batch in self.store.read(queue, first, 1 << 30)
                for record in decode_records(batch)
            ]
            assert read == held
            for ms in {at + shift for _, at, _ in held for shift in (-1, 0, 1)}:
                later = [offset for offset, at, _ in held if at >= ms]
                assert self.store.offset_at(queue, ms) == (later[0] if later else end)

    def state(self) -> tuple[object, ...]:
        """All that appends and lookups depend on."""
        store = self.store
        return (
            {queue: store.range(queue) for queue, _ in store.queues()},
            dict(store._queues._sequences._producers),
            {name: (log.end, log.synced, log.tail) for name, log in store._logs.items()},
            [(s.name, s.base, s.end, s.first_ms, s.last_ms, s.next_offsets)
             for s in store.segments("forever")],
        )  # fmt: skip


@pytest.fixture
def new_world(tmp_path_factory: pytest.TempPathFactory, clock: Any) -> Callable[[], World]:
    return lambda: World(tmp_path_factory.mktemp("log") / "store", clock)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(st.tuples(BATCHES, MISHAPS, st.integers(0, 1 << 20)), min_size=1, max_size=4))
def test_a_start_from_indexes_equals_a_start_from_the_log(
    new_world: Callable[[], World], steps: list[tuple[list[Any], str, int]]
) -> None:
    async def live() -> None:
        world = new_world()
        for batches, mishap, seed in steps:
            for batch in batches:
                await world.send(*batch)
            if mishap == "drop":
                await world.delete(seed / (1 << 20))
            world.check()
            if seed % 2:
                await world.store.aclose()
            else:
                world.store._release()
            world.spoil(mishap, seed)
            world.store = world.opened()
            world.check()
            from_indexes = world.state()
            world.store._release()
            for index in world.directory.glob("forever/*.index"):
                index.unlink()
            world.store = world.opened()
            if mishap != "drop":
                assert world.state() == from_indexes
            world.check()
        await world.store.aclose()

    asyncio.run(live())

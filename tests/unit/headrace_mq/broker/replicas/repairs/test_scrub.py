"""A scrub reads all of every log at its pace, and what it finds is repaired."""

from pathlib import Path
from typing import Any

import pytest

from headrace_mq.broker.replicas.repairs.repairs import Repairs
from headrace_mq.broker.replicas.repairs.scrub import (
    SCRUB_BYTES_PER_S,
    SCRUB_PART_BYTES,
    SCRUB_REST_S,
    Scrub,
)
from headrace_mq.cluster.records.memory import MemoryRecord
from headrace_mq.message import QueueRef
from headrace_mq.store.replication.epochs import EpochFile
from headrace_mq.store.segment.segment import SEGMENT_HEADER_BYTES

LOG = "forever"


class Rest:
    """Rests without time; ends a scrub where it would begin another round."""

    def __init__(self, rounds: int = 1) -> None:
        self.seconds: list[float] = []
        self._rounds = rounds

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        if self.seconds.count(SCRUB_REST_S) > self._rounds:
            raise StopAsyncIteration


def rot(folder: Path, position: int) -> None:
    with (folder / LOG / "00000000000000000000.log").open("r+b") as file:
        file.seek(SEGMENT_HEADER_BYTES + position)
        byte = file.read(1)
        file.seek(SEGMENT_HEADER_BYTES + position)
        file.write(bytes([byte[0] ^ 1]))


async def filled(places: list[Any], record: Any) -> Any:
    a, b = places
    followers = await a.lead(record)
    for number in range(30):
        a.append(number)
        end = a.logs.ends()[LOG]
        await a.until(lambda end=end: a.logs.ends()[LOG] > end)
    b.member.on_record(await record.read())
    while b.logs.ends() != a.logs.ends():
        await b.step(followers)
    await b.step(followers)
    return followers


async def test_a_scrub_reads_every_byte_and_rests_for_each(
    places: list[Any], record: MemoryRecord
) -> None:
    a = places[0]
    await filled(places, record)
    rest = Rest()
    total = await Scrub(a.logs.repairs, rest=rest).read_all()
    assert total == sum(a.logs.ends().values())
    assert sum(rest.seconds) == pytest.approx(total / SCRUB_BYTES_PER_S)
    assert len(rest.seconds) >= total // SCRUB_PART_BYTES
    assert a.logs.repairs.figures.waiting == 0


async def test_a_replica_heals_what_only_a_scrub_finds(
    places: list[Any], record: MemoryRecord
) -> None:
    b = places[1]
    followers = await filled(places, record)
    position = b.logs.store._queues.get(QueueRef("orders", 0)).index.find(2, 1)[0].position
    rot(b.settings.directory, position + 700)
    with pytest.raises(StopAsyncIteration):
        await Scrub(b.logs.repairs, rest=Rest()).run()
    assert b.logs.repairs.figures.waiting == 1
    await b.step(followers)
    assert b.logs.repairs.figures[:2] == (1, 0)
    assert b.logs.store.mender.damage_in(LOG, 0, 1 << 20) == []


async def test_a_scrub_goes_on_where_a_file_or_the_store_is_gone(
    places: list[Any], record: MemoryRecord, tmp_path: Path
) -> None:
    a = places[0]
    await filled(places, record)
    (a.settings.directory / LOG / "00000000000000000000.log").unlink()
    total = await Scrub(a.logs.repairs, rest=Rest()).read_all()
    assert total == sum(a.logs.ends().values())
    assert a.logs.repairs.figures.waiting == 0
    closed = Repairs(EpochFile(a.replica._files, tmp_path))
    assert await Scrub(closed, rest=Rest()).read_all() == 0

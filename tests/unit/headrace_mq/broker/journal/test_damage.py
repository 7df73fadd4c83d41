"""A leader reads its journals before it serves, so that what a replica has of them is not left out."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headrace_mq.broker.journal import damage
from headrace_mq.broker.journal.damage import starts_of, until_sound
from headrace_mq.cluster.records.memory import MemoryRecord
from headrace_mq.errors import DataCorrupt
from tests.unit.headrace_mq.broker.replicas.conftest import places, record
from tests.unit.headrace_mq.broker.replicas.repairs.test_repairs import (
    QUEUE,
    entries,
    flip,
    offsets,
    pair,
)

__all__ = ["places", "record"]


@pytest.mark.parametrize("rotten", [0, 2, 5])
async def test_a_leader_waits_for_a_damaged_batch_that_its_replica_has(
    places: list[Any], record: MemoryRecord, rotten: int
) -> None:
    a, b = places
    followers = await pair(places, record)
    flip(a, entries(a)[rotten].position + 700)
    waits = asyncio.create_task(until_sound(a.logs.store, {QUEUE: 0}, lambda: True))
    await a.until(lambda: a.logs.repairs.figures.waiting == 1)
    assert not waits.done()
    for _ in range(2):
        await b.step(followers)
    await waits
    # What a journal does next: it cannot wait.
    assert offsets(a) == [0, 1, 2, 3, 4, 5]
    assert a.logs.store.damage == []


async def test_a_leader_does_not_read_what_its_journals_have_kept(
    places: list[Any], record: MemoryRecord
) -> None:
    a = places[0]
    await pair(places, record)
    flip(a, entries(a)[2].position + 700)
    await until_sound(a.logs.store, {QUEUE: 3}, lambda: True)
    assert a.logs.repairs.figures.waiting == 0


async def test_a_leader_that_leads_no_longer_waits_for_nothing(
    places: list[Any], record: MemoryRecord
) -> None:
    a = places[0]
    await pair(places, record)
    flip(a, entries(a)[2].position + 700)
    await until_sound(a.logs.store, {QUEUE: 0}, lambda: a.logs.repairs.figures.waiting == 0)
    assert a.logs.repairs.figures.waiting == 1


async def test_a_leader_waits_only_so_long(
    places: list[Any], record: MemoryRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damage, "JOURNAL_WAIT_MS_MAX", 1)
    a = places[0]
    await pair(places, record)
    flip(a, entries(a)[0].position + 700)
    await until_sound(a.logs.store, {QUEUE: 0}, lambda: True)
    assert a.logs.repairs.figures.waiting == 1


def test_a_journal_is_read_from_where_its_file_says_or_from_its_beginning() -> None:
    def unusable() -> None:
        raise DataCorrupt("damaged")

    kept = SimpleNamespace(read=lambda: SimpleNamespace(read_to=7))
    for file, start in (
        (kept, 7), (SimpleNamespace(read=lambda: None), 0), (SimpleNamespace(read=unusable), 0)
    ):  # fmt: skip
        assert starts_of({QUEUE: file}) == {QUEUE: start}  # type: ignore[dict-item]  # only what is used of it

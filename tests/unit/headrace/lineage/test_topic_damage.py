"""Damage of a topic is noted once, filled by one process at a time, and known until it is."""

from typing import Any

import pytest
from sqlalchemy import select
from structlog.testing import capture_logs

from headrace.lineage import topic_damage as module
from headrace.lineage.topic_damage import TopicDamage
from headrace.projections.tables.read_models import ReadModels
from headrace.stores.database.tables import topic_damages
from headrace.testing.history import FakeClock
from headrace.transports.base import DAMAGED, Incoming

TOPIC = "shop.events"
CLAIM_MS = 1_000


def marker(first: int, last: int, queue: int = 0) -> Incoming:
    headers = {"kind": "rejection", DAMAGED: str(first)}
    return Incoming((TOPIC, queue), last, "", "", headers, b"")


@pytest.fixture
def models(read_models: ReadModels) -> ReadModels:
    return read_models


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def process(models: ReadModels, clock: FakeClock) -> TopicDamage:
    return TopicDamage(TOPIC, models, clock, CLAIM_MS)


async def places(models: ReadModels) -> list[tuple[int, int, int, bool]]:
    c = topic_damages.c
    query = select(c.queue_id, c.first_offset, c.next_offset, c.filled)
    async with models.snapshot() as connection:
        return sorted(tuple(row) for row in await connection.execute(query))


async def test_what_several_readers_and_processes_meet_is_noted_once(
    models: ReadModels, clock: FakeClock
) -> None:
    one, other = process(models, clock), process(models, clock)
    assert await one.note("t1", [marker(3, 5), marker(0, 0, queue=1)])
    assert not await one.note("t1", [marker(3, 5)])
    assert not await other.note("t1", [marker(3, 5)])
    assert (one.unfilled, other.unfilled) == (4, 0)
    assert await places(models) == [(0, 3, 6, False), (1, 0, 1, False)]


async def test_one_takes_all_and_the_others_when_its_claim_has_ended(
    models: ReadModels, clock: FakeClock
) -> None:
    one, other = process(models, clock), process(models, clock)
    assert await one.take("t1") == 0
    await one.note("t1", [marker(3, 5)])
    assert await one.take("t1") == 3
    await other.note("t1", [marker(7, 7)])
    assert (await other.take("t1"), other.unfilled) == (0, 4)
    clock.advance(CLAIM_MS + 1)
    assert await other.take("t1") == 4
    assert await one.take("t1") == 0
    # What it took first is the other's now.
    await one.settle("t1")
    assert one.unfilled == 4
    await other.settle("t1")
    assert await places(models) == [(0, 3, 6, True), (0, 7, 8, True)]
    assert (await one.take("t1"), one.unfilled) == (0, 0)


async def test_what_comes_while_it_is_filled_is_filled_later(
    models: ReadModels, clock: FakeClock
) -> None:
    one = process(models, clock)
    await one.note("t1", [marker(3, 5)])
    await one.take("t1")
    await one.note("t1", [marker(9, 9)])
    await one.settle("t1")
    assert one.unfilled == 1
    assert await one.take("t1") == 1


async def test_a_claim_is_given_back_where_filling_fails(
    models: ReadModels, clock: FakeClock
) -> None:
    one, other = process(models, clock), process(models, clock)
    await one.note("t1", [marker(3, 5)])
    await one.take("t1")
    with pytest.raises(ConnectionError):
        async with one.claimed("t1"):
            raise ConnectionError
    assert await other.take("t1") == 3


async def test_a_claim_is_renewed_while_it_lasts(models: ReadModels, clock: FakeClock) -> None:
    one, other = TopicDamage(TOPIC, models, clock, 3), process(models, clock)
    await one.note("t1", [marker(3, 5)])
    await one.take("t1")
    c = topic_damages.c

    async def until() -> Any:
        async with models.snapshot() as connection:
            return (await connection.execute(select(c.taken_until))).scalar_one()

    before = await until()
    clock.advance(100)
    async with one.claimed("t1"):
        while await until() == before:
            pass
        assert await other.take("t1") == 0


async def test_a_topic_of_before_is_forgotten_and_so_is_what_is_too_much(
    models: ReadModels, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PLACES_MAX", 2)
    one = process(models, clock)
    await one.note("gone", [marker(0, 0)])
    for number in range(4):
        clock.advance(1)
        await one.note("t1", [marker(number, number)])
        if number < 3:
            assert await one.take("t1") == 1
            await one.settle("t1")
    # Never what is not filled, and of the rest the latest.
    assert await places(models) == [(0, 1, 2, True), (0, 2, 3, True), (0, 3, 4, False)]
    assert await one.take("t1") == 1
    await one.settle("t1")
    assert [place[1] for place in await places(models)] == [2, 3]


async def test_a_database_that_is_away_ends_no_claim_loudly(clock: FakeClock) -> None:
    models = ReadModels("sqlite://")
    one = process(models, clock)
    await models.aclose()

    async def away(_: object) -> None:
        raise ConnectionError("away")

    models.transact = away  # type: ignore[method-assign,assignment]  # a database that is away
    with capture_logs() as logs:
        await one._hold_until("t1", None)
    assert [each["event"] for each in logs] == ["a claim was not changed"]

"""Messages for later in a database, SQLite or PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from headrace.stores.open import open_schedule
from headrace.stores.schedule import DatabaseSchedule
from headrace.transports.base import Outgoing
from headrace.transports.kafka.schedule import REFUSED, Schedule

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def message(number: int) -> Outgoing:
    return Outgoing("t", f"k-{number}", bytes([number, 255]), "tag", {"a": "ü"})


@pytest.fixture(params=["sqlite_database", "migrated_postgres"])
def database(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(request.param)
    return url


@pytest.fixture
async def schedule(database: str) -> AsyncIterator[Schedule]:
    schedule = await open_schedule(database)
    assert isinstance(schedule, DatabaseSchedule)
    yield schedule
    await schedule.aclose()


async def taken(schedule: Schedule, now: datetime, limit: int = 10) -> list[Outgoing]:
    found: list[Outgoing] = []

    async def publish(messages: Sequence[Outgoing]) -> list[bool]:
        found.extend(messages)
        return [True] * len(messages)

    assert await schedule.publish_due(now, limit, publish) == len(found)
    return found


async def test_a_due_message_comes_once_and_in_order(schedule: Schedule, database: str) -> None:
    assert await schedule.next_due() is None
    for number, delay in enumerate((3, 1, 2, 9)):
        await schedule.add(message(number), NOW + timedelta(seconds=delay))
    assert await schedule.next_due() == NOW + timedelta(seconds=1)
    assert await taken(schedule, NOW) == []
    # Another process sees the same.
    other = await open_schedule(database)
    assert await taken(other, NOW + timedelta(seconds=3), limit=2) == [message(1), message(2)]
    await other.aclose()
    assert await taken(schedule, NOW + timedelta(seconds=3)) == [message(0)]
    assert await taken(schedule, NOW + timedelta(seconds=3)) == []


async def test_a_message_that_cannot_be_published_stays(schedule: Schedule) -> None:
    await schedule.add(message(0), NOW)

    async def publish(_messages: Sequence[Outgoing]) -> list[bool]:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await schedule.publish_due(NOW, 10, publish)
    assert await taken(schedule, NOW) == [message(0)]


async def test_a_refused_message_keeps_no_other_waiting(schedule: Schedule) -> None:
    for number in range(3):
        await schedule.add(message(number), NOW)

    async def publish(_messages: Sequence[Outgoing]) -> list[bool | None]:
        return [False, None, True]

    assert await schedule.publish_due(NOW, 10, publish) == 2
    assert await taken(schedule, NOW) == [message(1)]
    assert await taken(schedule, NOW + REFUSED) == [message(0)]


async def test_on_postgres_two_processes_take_different_messages(migrated_postgres: str) -> None:
    first, second = [await open_schedule(migrated_postgres) for _ in range(2)]
    for number in range(2):
        await first.add(message(number), NOW + timedelta(seconds=number))
    sent: list[Outgoing] = []
    begun, go = asyncio.Event(), asyncio.Event()

    async def publish(messages: Sequence[Outgoing]) -> list[bool]:
        begun.set()
        await go.wait()
        sent.extend(messages)
        return [True] * len(messages)

    working = asyncio.create_task(first.publish_due(NOW + timedelta(seconds=9), 1, publish))
    await begun.wait()
    # It holds the first message.
    assert await taken(second, NOW + timedelta(seconds=9)) == [message(1)]
    go.set()
    assert await working == 1
    assert sent == [message(0)]
    for each in (first, second):
        assert await taken(each, NOW + timedelta(days=9)) == []
        await each.aclose()


async def test_a_store_in_memory_has_a_schedule_in_memory() -> None:
    schedule = await open_schedule("memory://")
    await schedule.add(message(0), NOW)
    assert await taken(schedule, NOW) == [message(0)]

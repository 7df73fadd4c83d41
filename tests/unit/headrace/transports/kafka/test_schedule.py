"""What is due is published, in order, and what fails stays."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from headrace.testing.history import FakeClock
from headrace.transports.base import Outgoing
from headrace.transports.kafka.schedule import REFUSED, Dispatcher, MemorySchedule

MESSAGES = [Outgoing("t", "k", str(number).encode()) for number in range(4)]


async def test_due_messages_are_published_in_the_order_of_their_moments() -> None:
    clock, schedule, sent = FakeClock(), MemorySchedule(), []

    async def publish(messages: Sequence[Outgoing]) -> list[bool]:
        sent.extend(messages)
        return [True] * len(messages)

    for place, delay in enumerate((30, 10, 10, 50)):
        await schedule.add(MESSAGES[place], clock.now() + timedelta(seconds=delay))
    assert await schedule.publish_due(clock.now(), 10, publish) == 0
    clock.advance(30_000)
    assert await schedule.publish_due(clock.now(), 2, publish) == 2
    assert await schedule.publish_due(clock.now(), 2, publish) == 1
    assert sent == [MESSAGES[1], MESSAGES[2], MESSAGES[0]]
    assert await schedule.next_due() == clock.now() + timedelta(seconds=20)


async def test_a_message_that_cannot_be_published_stays() -> None:
    clock, schedule = FakeClock(), MemorySchedule()

    async def publish(_messages: Sequence[Outgoing]) -> list[bool]:
        raise TimeoutError

    await schedule.add(MESSAGES[0], clock.now())
    with pytest.raises(TimeoutError):
        await schedule.publish_due(clock.now(), 10, publish)
    assert await schedule.next_due() == clock.now()


async def test_a_refused_message_keeps_no_other_waiting() -> None:
    clock, schedule = FakeClock(), MemorySchedule()

    async def publish(messages: Sequence[Outgoing]) -> list[bool | None]:
        outcomes = {b"0": False, b"1": None}
        return [outcomes.get(each.body, True) for each in messages]

    for each in MESSAGES[:3]:
        await schedule.add(each, clock.now())
    assert await schedule.publish_due(clock.now(), 10, publish) == 2
    # The one for which the queue was away is due still, the refused one later.
    assert await schedule.next_due() == clock.now()
    assert await schedule.publish_due(clock.now(), 10, publish) == 0
    clock.advance(int(REFUSED.total_seconds() * 1_000))
    assert await schedule.publish_due(clock.now(), 10, publish) == 1


async def test_a_dispatcher_goes_on_after_an_outage() -> None:
    clock, failures = FakeClock(), [TimeoutError("away")]
    sent: asyncio.Queue[Outgoing] = asyncio.Queue()

    async def publish(messages: Sequence[Outgoing]) -> list[bool]:
        if failures:
            raise failures.pop()
        for each in messages:
            sent.put_nowait(each)
        return [True] * len(messages)

    dispatcher = Dispatcher(MemorySchedule(), publish, clock)
    dispatcher.start()
    await dispatcher.add(MESSAGES[0], timedelta(0))
    await dispatcher.add(MESSAGES[1], clock.now())
    async with asyncio.timeout(30):
        assert [await sent.get(), await sent.get()] == MESSAGES[:2]
    await dispatcher.aclose()


async def test_a_schedule_that_fails_is_an_outage() -> None:
    class Away(MemorySchedule):
        async def add(self, message: Outgoing, due: object) -> None:  # type: ignore[override]  # raises
            raise OSError("away")

    async def publish(_messages: Sequence[Outgoing]) -> list[bool]:
        return []

    dispatcher = Dispatcher(Away(), publish, FakeClock())
    with pytest.raises(TimeoutError, match="away"):
        await dispatcher.add(MESSAGES[0], timedelta(0))
    await dispatcher.aclose()

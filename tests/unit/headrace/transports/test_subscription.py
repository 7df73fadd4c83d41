"""Following: a subscription that breaks is closed and made anew, with pauses that grow."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace._runtime.backoff import Backoff
from headrace.transports.base import Incoming, OffsetLoader
from headrace.transports.subscription import Following

MESSAGE = Incoming(("topic", 0), 0, "a", "", {}, b"")


class Scripted:
    """A transport, its subscriptions and the pauses in one: each poll does what the script says."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.subscribed: list[tuple[str, list[str], OffsetLoader | None]] = []
        self.closed = 0
        self.pauses: list[int] = []
        self.polling = asyncio.Event()
        self.returned = asyncio.Event()

    async def subscribe(
        self, group: str, topics: Sequence[str], *, offsets: OffsetLoader | None = None
    ) -> "Scripted":
        self.subscribed.append((group, list(topics), offsets))
        return self

    async def poll(self) -> list[Incoming]:
        self.polling.set()
        step = self.script.pop(0) if self.script else asyncio.Event()
        if isinstance(step, asyncio.Event):
            await step.wait()
        elif isinstance(step, Exception):
            raise step
        self.returned.set()
        return [MESSAGE]

    async def aclose(self) -> None:
        self.closed += 1

    async def pause(self, attempt: int) -> None:
        self.pauses.append(attempt)

    def following(self, **options: Any) -> Following:
        backoff = Backoff(ms_min=1, ms_max=1)
        backoff.pause = self.pause  # type: ignore[method-assign]  # no test waits
        return Following(self, group="g", topic="topic", backoff=backoff, **options)  # type: ignore[arg-type]  # as much of a transport as it needs


class Stop(Exception):
    """Ends a test's following."""


async def test_a_subscription_that_breaks_is_closed_and_made_anew_after_growing_pauses() -> None:
    broken: list[Exception] = []
    lost = [ConnectionError("one"), ConnectionError("two")]
    scripted = Scripted(*lost, None, ConnectionError("three"), Stop())
    following = scripted.following(broken=broken.append)

    async def follow(subscription: Any) -> None:
        while True:
            assert await following.poll(subscription) == [MESSAGE]

    with capture_logs() as logs, pytest.raises(Stop):
        await following.run(follow, unless=(Stop,))
    assert scripted.subscribed == [("g", ["topic"], None)] * 4
    assert scripted.closed == 4
    # The poll that brought something begins the count anew.
    assert scripted.pauses == [1, 2, 1]
    assert [entry["attempt"] for entry in logs] == [1, 2, 1]
    assert list(map(str, broken)) == ["one", "two", "three"]


async def test_cancelling_closes_the_subscription() -> None:
    scripted = Scripted()
    following = scripted.following()

    async def follow(subscription: Any) -> None:
        await following.poll(subscription)

    task = asyncio.create_task(following.run(follow))
    await scripted.polling.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert scripted.closed == 1


async def test_idle_is_called_until_something_comes() -> None:
    arrival = asyncio.Event()
    scripted = Scripted(arrival)
    calls = []

    async def idle() -> bool:
        calls.append(len(calls))
        if len(calls) == 3:
            arrival.set()
        return False

    polled = await scripted.following().poll(scripted, idle=idle, every_ms=1)
    assert polled == [MESSAGE]
    assert len(calls) >= 3


async def test_idle_may_end_the_waiting() -> None:
    scripted = Scripted()

    async def idle() -> bool:
        return True

    assert await scripted.following().poll(scripted, idle=idle, every_ms=1) == []


async def test_what_came_while_idle_decided_to_end_the_waiting_is_not_lost() -> None:
    arrival = asyncio.Event()
    scripted = Scripted(arrival)

    async def idle() -> bool:
        arrival.set()
        await scripted.returned.wait()
        return True

    assert await scripted.following().poll(scripted, idle=idle, every_ms=1) == [MESSAGE]


async def test_a_group_that_keeps_its_own_offsets_hands_them_over() -> None:
    scripted = Scripted(Stop())

    async def offsets(queues: Any) -> dict[Any, int]:
        return {}

    following = scripted.following(offsets=offsets)
    with pytest.raises(Stop):
        await following.run(following.poll, unless=(Stop,))
    assert scripted.subscribed == [("g", ["topic"], offsets)]

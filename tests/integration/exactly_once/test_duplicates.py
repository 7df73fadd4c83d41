"""Everything twice, at every hop over a real broker: effects exactly once, by one sequential fold.

| Hop | What happens to it here |
|---|---|
| a command, from the caller or a process | sent twice with its id; each message delivered twice |
| a scheduled command | scheduled twice |
| events, and rejections | published twice; each message delivered twice, to every reader |
| a reply | the first one of each question is lost, so the caller sends the command again |

What is the same again, because something before it came twice, is carried once: else a chain of four
steps would be a hundred thousand messages.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from headrace import app as app_module
from headrace.transports.base import Incoming, Outgoing, Place, QueueId, Report

pytestmark = pytest.mark.timeout(400)


class TwiceSubscription:
    """Delivers once more what it has delivered, before anything else."""

    def __init__(self, inner: Any, counted: dict[str, int]) -> None:
        self._inner = inner
        self._counted = counted
        self._known: set[bytes] = set()
        self._again: list[Incoming] = []

    async def poll(self) -> list[Incoming]:
        again, self._again = self._again, []
        if again:
            self._counted["delivered"] += len(again)
            return again
        messages: list[Incoming] = await self._inner.poll()
        self._again = [each for each in messages if each.body not in self._known]
        self._known.update(each.body for each in messages)
        return messages

    def ack(self, message: Incoming) -> None:
        self._inner.ack(message)

    def seek(self, queue: QueueId, offset: int) -> None:
        self._again = [each for each in self._again if each.queue != queue]
        self._inner.seek(queue, offset)

    async def aclose(self) -> None:
        await self._inner.aclose()


class TwiceTransport:
    """Carries everything twice, and loses the first reply to each question."""

    def __init__(self, inner: Any, counted: dict[str, int]) -> None:
        self._inner = inner
        self._counted = counted
        self._answered: set[str] = set()
        self._known: set[bytes] = set()

    def _is_new(self, message: Outgoing) -> bool:
        known = message.body in self._known
        self._known.add(message.body)
        return not known

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def publish(self, message: Outgoing) -> Place:
        again = self._is_new(message)
        place: Place = await self._inner.publish(message)
        if again:
            await self._inner.publish(message)
            self._counted["published"] += 1
        return place

    def publish_soon(self, message: Outgoing, told: Report) -> bool:
        taken: bool = self._inner.publish_soon(message, told)
        if taken and self._is_new(message):
            self._counted["published soon"] += self._inner.publish_soon(message, lambda _: None)
        return taken

    async def schedule(self, message: Outgoing, due: datetime) -> None:
        await self._inner.schedule(message, due)
        await self._inner.schedule(message, due)
        self._counted["scheduled"] += 1

    async def subscribe(self, group: str, topics: Sequence[str], **offsets: Any) -> Any:
        subscription = await self._inner.subscribe(group, topics, **offsets)
        return TwiceSubscription(subscription, self._counted)

    async def reply(self, address: str, correlation: str, body: bytes) -> None:
        if correlation not in self._answered:
            self._answered.add(correlation)
            self._counted["replies lost"] += 1
            return
        await self._inner.reply(address, correlation, body)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Applications open a transport that carries everything twice; how often it did."""
    names = ("published", "published soon", "scheduled", "delivered", "replies lost")
    counts = dict.fromkeys(names, 0)
    open_transport: Callable[..., Any] = app_module.open_transport

    @asynccontextmanager
    async def open_twice(broker: str | None, **choices: Any) -> AsyncIterator[Any]:
        async with open_transport(broker, **choices) as inner:
            yield TwiceTransport(inner, counts)

    monkeypatch.setattr(app_module, "open_transport", open_twice)
    return counts


async def test_everything_twice_at_every_hop_has_every_effect_once(
    world: Any, settings: Any, live: Any, read_history: Any, counted: dict[str, int]
) -> None:
    async with live(world.app, settings) as running:
        await world.begin(running.bus)
        await world.go_on(running.bus)
    history = await read_history(world.app, settings)
    assert history.faults() == []
    assert history.happened == world.expected
    unused = [name for name, count in counted.items() if not count]
    assert unused == ([] if history.processes else ["scheduled"])


async def test_the_checker_finds_what_is_lost_and_what_is_there_twice(
    world: Any, settings: Any, live: Any, read_history: Any
) -> None:
    async with live(world.app, settings) as running:
        await world.begin(running.bus)
        await world.go_on(running.bus)
    history = await read_history(world.app, settings)
    assert history.faults() == []
    first, *others = history.streams
    longer = {one.aggregate_id for one in others if one.version == 3}
    lost = next(one for one in others if one.version == 2 and one.aggregate_id in longer)
    for changed in (
        [one for one in history.streams if one is not lost],
        [first, first, *others],
        [replace(first, version=7), *others],
    ):
        assert replace(history, streams=changed).faults()
    name, rows = next(iter(history.rows.items()))
    key = next(iter(rows))
    assert replace(history, rows={**history.rows, name: {**rows, key: None}}).faults()
    for name, instances in history.instances.items():
        key, (state, ended, seen) = next(iter(instances.items()))
        twice = {**instances, key: (state, ended, seen + 1)}
        assert replace(history, instances={name: twice}).faults()

"""The loop of event handlers: every event, in order per aggregate, and nothing wedges it."""

import asyncio
import random
import smtplib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from headrace.domain.message import EventContext
from headrace.handlers.event_handlers import EventHandlers
from headrace.handlers.letters import HandlerLetters
from headrace.handlers.runner import EventHandlerRunner
from headrace_mq.metrics.histogram import Histogram


class Shop:
    """Handlers that note what they are called for, and the runner that feeds them."""

    def __init__(self, parts: dict[str, Any], domain: Any) -> None:
        self.parts = parts
        self.domain = domain
        self.transport = parts["transport"]
        self.store = parts["store"]
        self.notes: list[str] = []
        # Aggregate and amount of events that fail, each so many times.
        self.errors: dict[str, list[Exception]] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.handlers = EventHandlers("mail")
        self.handlers.add(self.handler_of(domain.Added), priority=0)
        self.letters = HandlerLetters(self.handlers, parts["read_models"], self.store)

    def handler_of(self, event_type: Any) -> Any:
        async def added(event: event_type, context: EventContext) -> None:
            name = f"{context.aggregate_id}{event.amount}"
            if name in self.gates:
                await self.gates[name].wait()
            if self.errors.get(name):
                self.notes.append(f"not {name}")
                raise self.errors[name].pop(0)
            self.notes.append(name)

        return added

    def put(self, aggregate_id: str, *versions: int, published: bool = True) -> None:
        for version in versions:
            stream = self.domain.stream(aggregate_id, version)
            self.store.streams.append(stream)
            if published:
                self.transport.put(stream)

    @property
    def acked(self) -> int:
        return sum(len(each.acked) for each in self.transport.subscriptions)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(EventHandlerRunner(handlers=self.handlers, **self.parts).run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def run(self, messages: int) -> None:
        """Runs until so many more messages are acknowledged."""
        want = self.acked + messages
        async with self.running():
            await until(lambda: self.acked == want)


@pytest.fixture
def shop(
    domain: Any,
    transport: Any,
    sqlite_models: Any,
    store: Any,
    serializer: Any,
    settings: Any,
    clock: Any,
) -> Shop:
    parts = {
        "app_name": "shop",
        "read_models": sqlite_models,
        "store": store,
        "transport": transport,
        "serializer": serializer,
        "settings": settings,
        "clock": clock,
    }
    return Shop(parts, domain)


async def until(condition: Callable[[], Any]) -> None:
    """Lets the others run until the condition holds; the test's own timeout is the bound."""
    while not condition():
        await asyncio.sleep(0)


async def test_every_event_is_handled_once_in_order_across_runners(shop: Shop) -> None:
    shop.put("a", 1, 2)
    shop.put("b", 1)
    shop.transport.put(shop.domain.rejection("a", "c-9"))
    await shop.run(4)
    assert shop.transport.groups == ["shop.handlers.mail"]
    assert [each for each in shop.notes if each[0] == "a"] == ["a1", "a2"]
    assert sorted(shop.notes) == ["a1", "a2", "b1"]
    shop.put("a", 3)
    # Reads the topic from its beginning.
    await shop.run(5)
    assert shop.notes[3:] == ["a3"]


async def test_versions_that_did_not_come_are_handled_from_the_store_first(shop: Shop) -> None:
    shop.put("a", 1)
    shop.put("a", 2, 3, published=False)
    shop.put("a", 4)
    await shop.run(2)
    assert shop.notes == ["a1", "a2", "a3", "a4"]
    assert shop.store.asked == [("a", 1, 3)]


async def test_versions_missing_everywhere_park_the_aggregate(shop: Shop) -> None:
    shop.transport.put(shop.domain.stream("a", 3))
    await shop.run(1)
    (letter,) = await shop.letters.all()
    assert "versions 1 to 2 of Counter a did not come" in letter.error
    assert shop.notes == []


async def test_other_aggregates_go_on_while_one_waits(shop: Shop) -> None:
    shop.gates["a1"] = asyncio.Event()
    shop.put("a", 1, 2)
    shop.put("b", 1, 2)
    async with shop.running():
        await until(lambda: shop.acked == 2)
        assert shop.notes == ["b1", "b2"]
        shop.gates["a1"].set()
        await until(lambda: shop.acked == 4)
    assert shop.notes[2:] == ["a1", "a2"]


async def test_an_event_that_cannot_be_handled_parks_its_aggregate_and_nothing_else(
    shop: Shop, logs: Any
) -> None:
    shop.errors["a2"] = [ValueError("no")] * 4
    shop.put("a", 1, 2, 3)
    shop.put("b", 1)
    await shop.run(4)
    assert shop.notes.count("not a2") == 3
    assert sorted(set(shop.notes)) == ["a1", "b1", "not a2"]
    (letter,) = await shop.letters.all()
    assert (letter.aggregate_id, letter.version, letter.held) == ("a", 1, 2)
    assert "Added a/2/1: ValueError('no')" in letter.error
    errors = [each["event"] for each in logs if each["log_level"] == "error"]
    assert ["its aggregate waits" in each for each in errors] == [True]
    # Whoever goes on knows it, too.
    shop.put("a", 4)
    await shop.run(5)
    assert [each for each in shop.notes if each[0] == "a"] == ["a1"]
    # What is delivered again counts again.
    assert (await shop.letters.all())[0].held == 6


async def test_a_letter_is_retried_in_order_and_what_comes_later_flows_again(shop: Shop) -> None:
    shop.errors["a1"] = [ValueError("no")] * 4
    shop.put("a", 1, 2)
    async with shop.running():
        await until(lambda: shop.acked == 2)
        left = await shop.letters.retry("a")
        assert left is not None
        assert (left.version, left.retries) == (0, 1)
        shop.notes.clear()
        assert await shop.letters.retry("a") is None
        assert shop.notes == ["a1", "a2"]
        shop.put("a", 3)
        await until(lambda: shop.acked == 3)
    assert shop.notes == ["a1", "a2", "a3"]
    assert await shop.letters.all() == []


async def test_a_letter_that_ends_while_a_message_waits_for_its_turn_loses_nothing(
    shop: Shop,
) -> None:
    shop.errors["a1"] = [ValueError("no")] * 3
    shop.put("a", 1)
    await shop.run(1)
    hold = shop.parts["read_models"].transact
    shop.put("a", 2)

    async def released_first(work: Any) -> Any:
        # After the runner has read that the aggregate is parked, and before it holds.
        if getattr(work, "func", None).__name__ == "hold":
            shop.parts["read_models"].transact = hold
            assert await shop.letters.retry("a") is None
        return await hold(work)

    shop.parts["read_models"].transact = released_first
    shop.store.streams.pop()
    await shop.run(2)
    assert shop.notes[-2:] == ["a1", "a2"]
    assert await shop.letters.all() == []


async def test_a_message_that_does_not_decode_parks_its_aggregate(shop: Shop) -> None:
    shop.transport.put_raw(("shop.events", 0), "a", b'{"aggregate_id": "a"}')
    await shop.run(1)
    (letter,) = await shop.letters.all()
    assert (letter.aggregate_id, "does not decode" in letter.error) == ("a", True)


async def test_an_outage_of_what_a_handler_needs_is_waited_out(shop: Shop) -> None:
    shop.errors["a1"] = [ConnectionError("the mail server is away")] * 20
    shop.put("a", 1)
    await shop.run(1)
    assert shop.notes == ["not a1"] * 20 + ["a1"]


async def test_a_refusal_for_one_customer_is_a_failure_and_thousands_of_events_are_handled(
    shop: Shop, logs: Any
) -> None:
    refusal = smtplib.SMTPRecipientsRefused({"ann@example.org": (550, b"no such user")})
    shop.errors["ann1"] = [refusal] * 10
    shop.put("ann", 1, 2)
    for number in range(3_000):
        shop.transport.put(shop.domain.stream(f"b{number}", 1), queue=0)
    await shop.run(3_002)
    assert len([each for each in shop.notes if each.startswith("b")]) == 3_000
    (letter,) = await shop.letters.all()
    assert (letter.aggregate_id, letter.held) == ("ann", 2)
    assert "no such user" in letter.error
    assert "smtplib.SMTPRecipientsRefused" in letter.traceback
    assert "in added" in letter.traceback


async def test_an_outage_of_one_event_alone_is_waited_out_for_a_limited_time(
    shop: Shop, clock: Any
) -> None:
    shop.parts["settings"] = shop.parts["settings"].model_copy(update={"handler_outage_ms": 60_000})
    away = ConnectionError("the webhook of this customer is away")
    shop.errors["a1"] = [away] * 1_000_000
    shop.put("a", 1)
    async with shop.running():
        await until(lambda: shop.notes)
        for version in range(1, 60):
            clock.advance(1_000)
            shop.put("b", version)
            await until(lambda: shop.acked == version)  # noqa: B023 - awaited here
            tried = len(shop.notes)
            await until(lambda: len(shop.notes) > tried + 1)  # noqa: B023 - awaited here
        assert await shop.letters.all() == []
        clock.advance(1_000)
        shop.put("b", 60)
        await until(lambda: shop.acked == 61)
    (letter,) = await shop.letters.all()
    assert letter.aggregate_id == "a"


async def test_an_outage_of_all_events_parks_nothing_however_long_it_lasts(
    shop: Shop, clock: Any
) -> None:
    names = [f"a{number}" for number in range(50)]
    for name in names:
        # More than the hours below use up, however many calls one turn of the loop makes.
        shop.errors[f"{name}1"] = [ConnectionError("the mail server is away")] * 1_000
        shop.put(name, 1)
    async with shop.running():
        for _ in range(15):
            clock.advance(3_600_000)
            tried = len(shop.notes)
            await until(lambda: len(shop.notes) > tried + len(names))  # noqa: B023 - awaited here
        shop.errors.clear()
        await until(lambda: shop.acked == len(names))
    assert await shop.letters.all() == []
    assert len([each for each in shop.notes if not each.startswith("not ")]) == len(names)


async def test_an_outage_of_the_database_is_waited_out(shop: Shop, logs: Any) -> None:
    transact = shop.parts["read_models"].transact
    failures = [OperationalError("x", {}, ConnectionError("away")) for _ in range(5)]

    async def failing(work: Any) -> Any:
        if failures:
            raise failures.pop()
        return await transact(work)

    shop.parts["read_models"].transact = failing
    shop.put("a", 1)
    await shop.run(1)
    assert shop.notes == ["a1"]
    assert [each["what"] for each in logs] == ["read versions"] * 5


async def test_an_event_that_cannot_be_parked_waits_for_room(shop: Shop, logs: Any) -> None:
    shop.parts["settings"] = shop.parts["settings"].model_copy(update={"projection_letters_max": 1})
    shop.errors = {"a1": [ValueError("no")] * 3, "b1": [ValueError("no")] * 3}
    shop.put("a", 1)
    await shop.run(1)
    shop.put("b", 1)
    shop.put("c", 1)
    async with shop.running():
        await until(lambda: any("wait for room" in each["event"] for each in logs))
        await until(lambda: "c1" in shop.notes)
        assert await shop.letters.retry("a") is None
        await until(lambda: shop.acked == 4)
    (letter,) = await shop.letters.all()
    assert letter.aggregate_id == "b"


async def test_a_reader_subscribes_again_after_an_error(shop: Shop, logs: Any) -> None:
    shop.transport.broken = ["connection lost"] * 2
    shop.put("a", 1)
    await shop.run(1)
    assert shop.notes == ["a1"]
    assert [each["attempt"] for each in logs] == [1, 2]


@pytest.mark.parametrize("seed", range(5))
async def test_a_runner_killed_at_any_moment_handles_every_version_in_order(
    shop: Shop, seed: int
) -> None:
    moments = random.Random(seed)
    versions = range(1, 9)
    for version in versions:
        for aggregate_id in "abc":
            shop.put(aggregate_id, version, published=moments.random() < 0.8 or version == 8)
    shop.transport.poll_max = 4
    for _ in range(10):
        async with shop.running():
            for _ in range(moments.randrange(60)):
                await asyncio.sleep(0)
    async with shop.running():
        await until(lambda: all(f"{each}8" in shop.notes for each in "abc"))
    for aggregate_id in "abc":
        seen = [int(each[1:]) for each in shop.notes if each[0] == aggregate_id]
        firsts = sorted(set(seen), key=seen.index)
        assert firsts == list(versions)


async def test_each_call_of_a_handler_is_measured_by_the_handlers_name(shop: Shop) -> None:
    shop.errors["a1"] = [ValueError("no")]
    runner = EventHandlerRunner(handlers=shop.handlers, **shop.parts)
    runner.reader.measure(Histogram)
    shop.put("a", 1, 2)
    task = asyncio.create_task(runner.run())
    while shop.acked < 2:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    ((name, durations),) = runner.reader.handlers.items()
    assert name.endswith("added")
    assert durations.read().total == 3

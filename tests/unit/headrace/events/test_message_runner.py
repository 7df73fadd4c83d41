"""Application messages reach their handlers, at least once and in the order of each aggregate."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from headrace.domain.message import MessageContext
from headrace.errors import DefinitionError, SubjectKeysAway
from headrace.events.message_runner import MessageRunner, message_type_of
from headrace.settings import Settings
from headrace.transports.base import Outgoing
from headrace.transports.local import LocalTransport


class Handling:
    """Two handlers that note what they get and fail on demand."""

    def __init__(
        self, told_type: type, serializer, transport: LocalTransport | None = None
    ) -> None:
        self.transport = transport or LocalTransport()
        self.serializer = serializer
        self.told_type = told_type
        self.calls: list[str] = []
        self.failures: dict[str, int] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.news = asyncio.Event()
        self.runner = MessageRunner(
            name="app",
            handlers={told_type: [self.first, self.second]},
            transport=self.transport,
            serializer=serializer,
            settings=Settings(retry_ms_min=1, retry_ms_max=1, error_retries_max=3),
        )

    async def first(self, message, context) -> None:
        if message.text in self.gates:
            await self.gates[message.text].wait()
        self.note(f"first {message.text}")

    async def second(self, message, context) -> None:
        if self.failures.get(message.text, 0):
            self.failures[message.text] -= 1
            self.note(f"failed {message.text}")
            raise ValueError("not now")
        self.note(f"second {message.text}")

    def note(self, call: str) -> None:
        self.calls.append(call)
        self.news.set()

    async def until(self, call: str) -> None:
        while call not in self.calls:
            self.news.clear()
            await self.news.wait()

    async def publish(self, text: str, key: str = "a") -> None:
        context = MessageContext(
            message_id=f"{key}/{text}/1",
            aggregate_id=key,
            command_id=text,
            correlation_id=text,
            recorded_at=datetime(2026, 1, 31, tzinfo=UTC),
        )
        body = self.serializer.encode_message(self.told_type(text=text), context)
        await self.transport.publish(Outgoing(topic="app.messages", key=key, tag="Told", body=body))

    async def dead(self) -> list:
        return self.transport.queue(("app.messages.dead", 0)).messages


@pytest.fixture
async def handling(serializer, told, stream) -> AsyncIterator[Handling]:
    """Handlers at work."""
    handling = Handling(type(told(stream("a", 1), "x").messages[0]), serializer)
    await handling.transport.ensure_topic("app.messages", queues=2, forever=False)
    running = asyncio.create_task(handling.runner.run())
    yield handling
    running.cancel()
    await asyncio.wait({running})
    await handling.transport.aclose()


async def test_every_handler_of_a_message_is_called_in_order_of_registration(handling):
    await handling.publish("one")
    await handling.publish("two")
    await handling.until("second two")
    assert handling.calls == ["first one", "second one", "first two", "second two"]
    assert await handling.transport.committed("app.messages", "app.messages") != {}


async def test_only_the_handler_that_failed_is_called_again(handling):
    handling.failures = {"one": 3}
    await handling.publish("one")
    await handling.until("second one")
    assert handling.calls == ["first one", *["failed one"] * 3, "second one"]


async def test_a_message_that_always_fails_becomes_a_dead_letter_and_the_next_one_goes_on(handling):
    handling.failures = {"one": 100}
    await handling.publish("one")
    await handling.publish("two")
    await handling.until("second two")
    (letter,) = await handling.dead()
    assert (letter.key, letter.headers["error"], letter.headers["why"]) == (
        "a",
        "ValueError",
        "not now",
    )
    assert handling.serializer.decode_message(letter.body)[0].text == "one"


async def test_a_message_that_does_not_decode_becomes_a_dead_letter(handling):
    await handling.transport.publish(Outgoing(topic="app.messages", key="a", body=b"?"))
    await handling.publish("two")
    await handling.until("second two")
    (letter,) = await handling.dead()
    assert letter.headers["error"] == "SerializationError"


async def test_a_message_whose_keys_are_away_waits_and_is_no_dead_letter(handling, monkeypatch):
    decode, away = handling.serializer.decode_message, [SubjectKeysAway("away")] * 20

    def decode_later(body):
        if away:
            raise away.pop()
        return decode(body)

    monkeypatch.setattr(handling.serializer, "decode_message", decode_later)
    await handling.publish("one")
    await handling.until("second one")
    assert away == []
    assert await handling.dead() == []


async def test_other_aggregates_go_on_while_one_waits(handling):
    handling.gates["slow"] = asyncio.Event()
    await handling.publish("slow", key="a")
    await handling.publish("behind", key="a")
    await handling.publish("other", key="b")
    await handling.until("second other")
    assert "first behind" not in handling.calls
    handling.gates["slow"].set()
    await handling.until("second behind")


async def test_unhandled_messages_are_delivered_to_the_next_runner(handling, serializer):
    handling.gates["one"] = asyncio.Event()
    await handling.publish("one")
    for _ in range(20):
        await asyncio.sleep(0)
    other = Handling(handling.told_type, serializer, handling.transport)
    for member in list(handling.transport._groups["app.messages"].members):
        await member.aclose()
    running = asyncio.create_task(other.runner.run())
    await other.until("second one")
    running.cancel()
    await asyncio.wait({running})


def test_a_handler_of_another_form_is_refused():
    async def alone(message) -> None:
        pass

    def blocking(message, context) -> None:
        pass

    async def untyped(message, context) -> None:
        pass

    for handler in (alone, blocking, untyped):
        with pytest.raises(DefinitionError, match="write it as `async def f"):
            message_type_of(handler)

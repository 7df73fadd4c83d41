"""Who needs keys of personal fields: how long senders wait for them, and what is no fault of others."""

import asyncio
import threading
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import httpx
import pytest
from pydantic import BaseModel
from structlog.testing import capture_logs

from headrace import (
    Aggregate,
    AggregateId,
    App,
    Command,
    CommandContext,
    DomainEvent,
    EventContext,
    Personal,
    Projection,
    Settings,
    applies,
)
from headrace.bus import HANDLED
from headrace.errors import CommandTimeout, SubjectKeysError
from headrace.events.sealed_transport import SealedTransport
from headrace.gateway.gateway import Gateway
from headrace.subjects.keys import MemoryKeys
from headrace.transports.base import Outgoing

Name = Annotated[str, Personal(subject="who")]


class Greet(Command):
    greeting_id: AggregateId
    who: str
    name: Name


class Greeted(DomainEvent):
    who: str
    name: Name


class Greeting(Aggregate):
    def initial_state(self) -> None: ...

    @applies
    def _greeted(self, event: Greeted) -> None: ...


class Row(BaseModel):
    greeting_id: str
    name: str


class Slow(MemoryKeys):
    """A database that answers when the test is over."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def find_many(self, subjects: Collection[str]) -> Mapping[str, bytes | None]:
        return {}

    def make_many(self, subjects: Collection[str]) -> Mapping[str, bytes | None]:
        self.go_on.wait()
        return {each: self.make(each) for each in subjects}


@pytest.fixture
def app() -> App:
    made = App("greetings")
    made.add(Greeting)

    @made.handles
    async def greet(command: Greet, context: CommandContext) -> None:
        greeting = Greeting(command.greeting_id)
        greeting.record(Greeted(who=command.who, name=command.name))
        context.add(greeting)

    return made


def client_of(gateway: Gateway) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(gateway), base_url="http://localhost")


@pytest.mark.parametrize("how", ["execute", "send", "post", "hand over"])
async def test_keys_that_do_not_come_in_time_are_a_timeout_of_the_sender(
    app: App, how: str
) -> None:
    keys = Slow()
    app.keep_keys(keys)
    command = Greet(greeting_id="g", who="c-1", name="Ann")
    async with app.run_local(Settings(result_timeout_ms=1)) as running:
        try:
            if how in ("execute", "send"):
                with pytest.raises(CommandTimeout):
                    await getattr(running.bus, how)(command)
            else:
                async with client_of(Gateway(app, running)) as client:
                    answer = await client.post(
                        "/commands/Greet?wait_ms=1",
                        json=command.model_dump(),
                        headers={"Prefer": "respond-async"} if how == "hand over" else {},
                    )
                assert answer.status_code == 504
        finally:
            keys.go_on.set()
        assert await running.store.read_stream("g") == []


@pytest.mark.parametrize("who", ["x" * 256, "x" * 10_000])
async def test_a_person_that_no_table_holds_is_422_and_no_fault_of_others(
    app: App, tmp_path: Path, who: str
) -> None:
    url = f"sqlite:///{tmp_path / 'all.db'}"
    async with (
        app.run_local(Settings(event_store=url, read_models=url)) as running,
        client_of(Gateway(app, running)) as client,
    ):
        names = [*(f"c-{number}" for number in range(5)), who, *(f"d-{n}" for n in range(5))]
        answers = await asyncio.gather(
            *(
                client.post(
                    "/commands/Greet",
                    json={"greeting_id": f"g-{number}", "who": each, "name": "Ann"},
                )
                for number, each in enumerate(names)
            )
        )
    assert [each.status_code for each in answers] == [200] * 5 + [422] + [200] * 5
    assert "has at most 255 characters" in answers[5].json()["detail"]


@pytest.mark.parametrize(
    "subject",
    [b"\\ud800", b"x" * 256, b"a\\u0000b", b"\\q"],
    ids=["surrogate", "long", "NUL", "escape"],
)
async def test_readers_pass_over_messages_whose_persons_are_none(
    app: App, tmp_path: Path, subject: bytes
) -> None:
    url = f"sqlite:///{tmp_path / 'all.db'}"
    sealed = b'{"$personal":["%b","[forgotten]","AAAA"]}' % subject
    names = Projection("names", row=Row, key="greeting_id")

    @names.fold
    def greeted(row: Row | None, event: Greeted, context: EventContext) -> Row:
        return Row(greeting_id=context.aggregate_id, name=event.name)

    app.add(names)
    async with app.run_local(
        Settings(event_store=url, read_models=url, error_retries_max=1, retry_ms_max=1, retry_ms_min=1)
    ) as running:  # fmt: skip
        assert running.lineage is not None
        transport = running.lineage.transport
        for topic, key, body in (
            ("greetings.commands", "bad-1", b'{"name":"Greet","version":1,"command_id":"b","correlation_id":"b",'
             b'"data":{"greeting_id":"bad-1","who":"x","name":%b}}' % sealed),
            ("greetings.events", "bad-2", b'{"aggregate_type":"Greeting","aggregate_id":"bad-2","version":1,'
             b'"command_id":"b","correlation_id":"b","recorded_at":"2026-01-31T12:00:00Z","events":['
             b'{"name":"Greeted","version":1,"data":{"who":"x","name":%b}}]}' % sealed),
        ):  # fmt: skip
            await transport.publish(Outgoing(topic, key, body, "", {}))
        good = Greet(greeting_id="good", who="c-1", name="Ann")
        await running.bus.execute(good, wait_for=HANDLED, timeout_ms=5_000)
        row = await running.read(names).get("good")
        assert (row and row.name) == "Ann"
        # It is written while others go on.
        while not (letters := await running.letters.read()):
            pass
        assert [each.aggregate_id for each in letters] == ["bad-1"]


class Damaged(MemoryKeys):
    """A table in which the row of one person is damaged once it is written."""

    def find_many(self, subjects: Collection[str]) -> Mapping[str, bytes | None]:
        if "bad" in subjects:
            raise SubjectKeysError("the key of 'bad' cannot be unwrapped")
        return {each: self.find(each) for each in subjects if self.find(each)}

    def make_many(self, subjects: Collection[str]) -> Mapping[str, bytes | None]:
        return {each: self.make(each) for each in subjects}


async def test_a_key_that_cannot_be_unwrapped_parks_its_own_commands_alone(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if each key had been read long ago.
    monkeypatch.setattr("headrace.subjects.keys.KEPT_S", 0.0)
    app.keep_keys(Damaged())
    async with app.run_local(Settings(command_queues=1, retry_ms_min=1, retry_ms_max=1)) as running:
        found = await asyncio.gather(
            *(
                running.bus.execute(Greet(greeting_id=f"g-{who}", who=who, name="Ann"))
                for who in ("c-1", "bad", "c-2")
            )
        )
    assert [each.status for each in found] == ["executed", "failed", "executed"]
    assert "the key of 'bad' cannot be unwrapped" in str(found[1])


async def test_a_command_without_personal_fields_overtakes_none_of_its_aggregate(app: App) -> None:
    keys, order = Slow(), []
    app.keep_keys(keys)

    class Note(Command):
        greeting_id: AggregateId
        text: str

    @app.handles
    async def note(command: Note, context: CommandContext) -> None:
        order.append(command.text)
        context.set_result([*order])

    class GreetFirst(Greet):
        pass

    @app.handles
    async def greet_first(command: GreetFirst, context: CommandContext) -> None:
        order.append(command.name)

    async with app.run_local() as running:
        sent = [
            asyncio.create_task(running.bus.execute(each))
            for each in (
                GreetFirst(greeting_id="g", who="c-1", name="first"),
                Note(greeting_id="g", text="second"),
                GreetFirst(greeting_id="g", who="c-2", name="third"),
                Note(greeting_id="g", text="fourth"),
            )
        ]
        other = await running.bus.execute(Note(greeting_id="h", text="other"))
        keys.go_on.set()
        await asyncio.gather(*sent)
    assert other.value == ["other"]
    assert order == ["other", "first", "second", "third", "fourth"]


class Unreadable(Damaged):
    """A table in which the key of one person can be unwrapped, or not for a while."""

    is_bad = False

    def find_many(self, subjects: Collection[str]) -> Mapping[str, bytes | None]:
        if self.is_bad:
            return super().find_many(subjects)
        return {each: self.find(each) for each in subjects if self.find(each)}


def foreign_in(logs: Sequence[MutableMapping[str, Any]]) -> list[MutableMapping[str, Any]]:
    return [each for each in logs if each["event"] == "a foreign event message is passed over"]


async def test_an_event_whose_seal_is_doubted_and_whose_key_cannot_be_read_is_parked_until_it_can(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passed over as foreign, it would be missing from the rows for good."""
    monkeypatch.setattr("headrace.subjects.keys.KEPT_S", 0.0)
    keys = Unreadable()
    app.keep_keys(keys)
    names = Projection("names", row=Row, key="greeting_id")

    @names.fold
    def greeted(row: Row | None, event: Greeted, context: EventContext) -> Row:
        return Row(greeting_id=context.aggregate_id, name=event.name)

    app.add(names)
    url = f"sqlite:///{tmp_path / 'all.db'}"
    settings = Settings(
        event_store=url, read_models=url, error_retries_max=1, retry_ms_max=1, retry_ms_min=1
    )
    with capture_logs() as logs:
        async with app.run_local(settings) as running:
            assert running.lineage is not None
            transport: Any = running.lineage.transport
            while not isinstance(transport, SealedTransport):
                transport = transport._transport
            await running.bus.execute(
                Greet(greeting_id="g", who="bad", name="Ann"), wait_for=HANDLED
            )
            (stored,) = await running.store.read_stream("g")
            body = app.serializer_at(url).encode_stream(stored)
            keys.is_bad = True
            for key, doubted in (("g", body), ("h", body.replace(b'"g"', b'"h"'))):
                await transport._transport.publish(
                    Outgoing("greetings.events", key, doubted, "", {"kind": "events"})
                )
            async with asyncio.timeout(60):
                while not (entries := await running.parked.read()):
                    await asyncio.sleep(0)
                # Of the other one the store knows nothing.
                while not foreign_in(logs):
                    await asyncio.sleep(0)
            assert [(each.processor, each.aggregate_id) for each in entries] == [
                ("projection:names", "g")
            ]
            assert "retry what is parked" in entries[0].sentence
            (unchecked,) = (each for each in logs if "cannot be checked" in each["event"])
            assert "the key of 'bad' cannot be unwrapped" in unchecked["why"]
            keys.is_bad = False
            # From the event store.
            assert await running.parked.retry(entries[0]) is None
            row = await running.read(names).get("g")
            assert (row and row.name) == "Ann"
    assert [each["key"] for each in foreign_in(logs)] == ["h"]

"""Commands in the console: in flight, one result, and the newest, as the event store and the broker have them."""

import asyncio
from typing import Annotated, Any

import pytest

from headrace import Aggregate, AggregateId, App, Command, CommandContext, DomainEvent, applies
from headrace.console.verbs.application import ApplicationVerbs
from headrace.console.verbs.journey import commands as journey_commands
from headrace.console.verbs.verb import values_of
from headrace.settings import Settings
from headrace.stores.database.schema import upgrade
from headrace.stores.letters import DatabaseCommandLetters
from headrace.stores.open import open_event_store
from headrace.subjects.personal import Personal
from headrace_mq import Message, Producer
from headrace_mq.errors import NotPermitted


class Greet(Command):
    guest: AggregateId
    email: str


class Greeted(DomainEvent):
    guest: str
    email: Annotated[str, Personal(subject="guest")]


class Guest(Aggregate):
    def initial_state(self) -> None:
        self.times = 0

    @applies
    def _greeted(self, event: Greeted) -> None:
        self.times += 1


app = App("hotel")
app.add(Guest)


@app.handles
async def greet(command: Greet, context: CommandContext) -> None:
    if command.email == "":
        raise KeyError("no door")
    guest = await context.get_or_add(Guest, command.guest, lambda: Guest(command.guest))
    guest.record(Greeted(guest=command.guest, email=command.email))


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A hotel that greeted three guests, and parked a command."""
    folder = tmp_path_factory.mktemp("hotel")
    urls = {name: f"sqlite:///{folder}/{name}.db" for name in ("event_store", "read_models")}

    async def fill() -> None:
        for url in urls.values():
            await upgrade(url)
        settings = Settings(error_retries_max=0, **urls)
        async with app.run_local(settings) as hotel:
            for number in range(3):
                one = Greet(guest=f"g-{number}", email="a@example.org")
                await hotel.bus.execute(one, command_id=f"c-{number}")
            await hotel.bus.execute(Greet(guest="g-9", email=""), command_id="c-9")

    asyncio.run(fill())
    return urls


@pytest.fixture
def verbs(urls) -> ApplicationVerbs:
    return ApplicationVerbs(app, **urls)


async def ask(verbs: ApplicationVerbs, admin: Any, word: str, **fields: Any) -> Any:
    verb = verbs.verbs[f"command {word}"]
    return await verb.run(admin, values_of(verb, fields))


async def test_a_result_is_shown_with_masked_events(verbs, admin, urls) -> None:
    found = await ask(verbs, admin, "show", id="c-1")
    store = await open_event_store(urls["event_store"], app.serializer_at(urls["event_store"]))
    stream = await store.find_command("g-1", "c-1")
    await store.aclose()
    assert stream is not None
    result = found["result"]
    assert (result["status"], result["aggregate_id"], result["version"]) == ("executed", "g-1", 1)
    assert result["recorded_at"] == stream.recorded_at.isoformat()
    assert found["events"] == [
        {"name": "Greeted", "fields": {"guest": "g-1", "email": "[personal]"}}
    ]


async def test_a_parked_command_says_why_and_an_unknown_one_is_unknown(verbs, admin) -> None:
    parked = (await ask(verbs, admin, "show", id="c-9"))["result"]
    assert (parked["status"], parked["error"]) == ("parked", "KeyError")
    assert (await ask(verbs, admin, "show", id="c-77"))["result"]["status"] == "unknown"


async def test_the_newest_results_and_their_counts_are_those_of_the_store(verbs, admin) -> None:
    first = await ask(verbs, admin, "results", rows="2")
    assert [one["command_id"] for one in first["results"]] == ["c-2", "c-1"]
    assert first["outcomes"] == [{"status": "executed", "error": "", "commands": 3}]
    assert first["parked"] == [{"error": "KeyError", "commands": 1}]
    further = await ask(verbs, admin, "results", before=str(first["next"]))
    assert ([one["command_id"] for one in further["results"]], further["next"]) == (["c-0"], None)


async def test_a_user_who_may_not_consume_events_sees_neither_fields_nor_sentences(
    verbs, admin, monkeypatch
) -> None:
    async def need(*_: Any) -> str:
        return "needs consume on topic:hotel.events"

    monkeypatch.setattr(journey_commands, "content_need", need)
    found = await ask(verbs, admin, "show", id="c-1")
    assert found["events"] == [{"name": "Greeted", "fields": None}]
    assert "no door" not in str(await ask(verbs, admin, "show", id="c-9"))
    assert (await ask(verbs, admin, "results"))["hidden"] == "needs consume on topic:hotel.events"


async def test_a_user_who_may_not_read_the_cluster_sees_no_command(verbs) -> None:
    class Refusing:
        """A connection of such a user."""

        async def status(self) -> None:
            raise NotPermitted("user 'ann' may not read cluster")

    for word, fields in (("list", {}), ("show", {"id": "c-1"}), ("results", {})):
        with pytest.raises(NotPermitted):
            await ask(verbs, Refusing(), word, **fields)


async def test_pages_of_commands_show_figures_of_the_broker_and_the_store(
    verbs, admin, console
) -> None:
    await admin.create_topic("hotel.commands", 2)
    async with Producer(admin.address) as producer:
        body = b'{"name":"Greet","command_id":"c-<5>","correlation_id":"c-5"}'
        await producer.send_many([Message(topic="hotel.commands", key="g-5", tag="Greet", body=body)] * 3)  # fmt: skip
    browser = await console(admin.address, verbs.verbs)
    page = await browser.page("/commands")
    assert page.count("c-&lt;5&gt;</code>") == 3
    assert "No command service runs" in page
    assert "3 in all" in page
    assert "Greeted" in await browser.page("/command", id="c-1")
    assert "/parked?processor=commands" in await browser.page("/command", id="c-9")
    results = await browser.page("/results")
    assert results.count("/command?id=c-") == 3
    assert "命令" in (await browser.client.get("/results", headers={"Accept-Language": "zh"})).text


async def test_an_unknown_command_is_looked_for_without_reading_what_is_parked(
    verbs, admin, monkeypatch
) -> None:
    async def read(*_: Any, **__: Any) -> Any:
        raise AssertionError("all letters were read")

    monkeypatch.setattr(DatabaseCommandLetters, "read", read)
    assert (await ask(verbs, admin, "show", id="c-77"))["result"]["status"] == "unknown"
    parked = (await ask(verbs, admin, "show", id="c-9", aggregate="g-9"))["result"]
    assert (parked["status"], parked["aggregate_id"]) == ("parked", "g-9")
    other = (await ask(verbs, admin, "show", id="c-9", aggregate="g-1"))["result"]
    assert other["status"] == "unknown"

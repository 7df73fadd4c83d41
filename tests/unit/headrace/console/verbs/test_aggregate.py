"""Aggregates in the console: what it shows is what the event store has."""

import asyncio
from typing import Annotated, Any

import pytest

from headrace import Aggregate, AggregateId, App, Command, CommandContext, DomainEvent, applies
from headrace.console.problems import Mistake
from headrace.console.verbs.application import ApplicationVerbs
from headrace.console.verbs.verb import values_of
from headrace.errors import AggregateNotFound
from headrace.settings import Settings
from headrace.stores.database.schema import upgrade
from headrace.subjects.personal import Personal
from headrace_mq.errors import NotPermitted
from headrace_mq.protocol.access import Explanation


class Register(Command):
    customer: AggregateId
    email: str


class Registered(DomainEvent):
    customer: str
    email: Annotated[str, Personal(subject="customer")]
    visits: int


class Customer(Aggregate):
    def initial_state(self) -> None:
        self.emails: list[str] = []

    @applies
    def _registered(self, event: Registered) -> None:
        self.emails.append(event.email)


app = App("customers")
app.add(Customer)


@app.handles
async def register(command: Register, context: CommandContext) -> None:
    customer = await context.get_or_add(
        Customer, command.customer, lambda: Customer(command.customer)
    )
    customer.record(
        Registered(customer=command.customer, email=command.email, visits=customer.version)
    )


class Asked:
    """A connection of a user who may read the cluster."""

    async def status(self) -> None:
        """Lets it through."""

    async def may(self, _action: str, _resource: str) -> Explanation:
        return Explanation(allowed=True, reason="")


class Refusing:
    """A connection of a user who may not."""

    async def status(self) -> None:
        raise NotPermitted("user 'ann' may not read cluster")


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Ann has three versions, bob one; carl was forgotten."""
    folder = tmp_path_factory.mktemp("aggregates")
    urls = {name: f"sqlite:///{folder}/{name}.db" for name in ("event_store", "read_models")}

    async def fill() -> None:
        for url in urls.values():
            await upgrade(url)
        settings = Settings(**urls)
        async with app.run_local(settings) as running:
            for number, name in enumerate(["ann", "ann", "ann", "bob", "carl"]):
                await running.bus.execute(
                    Register(customer=name, email=f"{name}@example.org"),
                    command_id=f"c-{number}",
                    items={"by": "clerk"},
                )
        app.serializer_at(urls["event_store"]).subject_keys.forget("carl")

    asyncio.run(fill())
    return urls


@pytest.fixture
def verbs(urls: dict[str, str]) -> ApplicationVerbs:
    return ApplicationVerbs(app, **urls)


async def ask(verbs: ApplicationVerbs, name: str, admin: Any = None, **fields: Any) -> Any:
    verb = verbs.verbs[name]
    return await verb.run(admin or Asked(), values_of(verb, fields))


async def test_aggregates_are_listed_a_page_at_a_time(verbs) -> None:
    first = await ask(verbs, "aggregate list", rows="2")
    assert [(one["id"], one["version"]) for one in first["aggregates"]] == [("ann", 3), ("bob", 1)]
    assert (first["types"], first["next"]) == (["Customer"], "bob")
    second = await ask(verbs, "aggregate list", rows="2", after="bob")
    assert ([one["id"] for one in second["aggregates"]], second["next"]) == (["carl"], None)
    assert (await ask(verbs, "aggregate list", type="Order"))["aggregates"] == []


async def test_a_stream_shows_commands_and_masks_personal_values(verbs) -> None:
    found = await ask(verbs, "stream show", id="ann", rows="2")
    assert [one["command_id"] for one in found["streams"]] == ["c-0", "c-1"]
    assert found["streams"][0]["items"] == {"by": "clerk"}
    assert found["streams"][1]["events"] == [
        {"name": "Registered", "fields": {"customer": "ann", "email": "[personal]", "visits": 1}}
    ]
    further = await ask(verbs, "stream show", id="ann", position=str(found["next"]))
    assert [one["version"] for one in further["streams"]] == [3]


async def test_a_forgotten_value_is_shown_as_forgotten(verbs) -> None:
    found = await ask(verbs, "stream show", id="carl")
    assert found["streams"][0]["events"][0]["fields"]["email"] == "[forgotten]"
    assert (await ask(verbs, "aggregate show", id="carl"))["state"] == {"emails": ["[forgotten]"]}


async def test_a_state_is_shown_at_a_version_or_at_the_last(verbs) -> None:
    found = await ask(verbs, "aggregate show", id="ann", version="2")
    assert (found["version"], found["state"]) == (2, {"emails": ["[personal]"] * 2})
    assert (await ask(verbs, "aggregate show", id="ann"))["version"] == 3
    with pytest.raises(Mistake, match="ann has the versions 1 to 3, not 4"):
        await ask(verbs, "aggregate show", id="ann", version="4")


async def test_two_versions_are_compared_in_words(verbs) -> None:
    found = await ask(verbs, "aggregate compare", id="ann", **{"from": "3", "to": "2"})
    assert [one["sentence"] for one in found["changes"]] == ['emails.2 is new: "[personal]"']
    assert ([one["command_id"] for one in found["streams"]], found["more"]) == (["c-2"], 0)
    same = await ask(verbs, "aggregate compare", id="ann", **{"from": "2", "to": "2"})
    assert (same["changes"], same["streams"]) == ([], [])


async def test_an_aggregate_that_is_not_there_is_a_sentence(verbs) -> None:
    with pytest.raises(AggregateNotFound, match="there is no aggregate 'eve'"):
        await ask(verbs, "aggregate show", id="eve")


@pytest.mark.parametrize(("verb", "fields"), [("aggregate list", {}), ("stream show", {"id": "ann"}), ("aggregate show", {"id": "ann"})])  # fmt: skip
async def test_a_user_who_may_not_read_the_cluster_sees_no_aggregate(verbs, verb, fields) -> None:
    with pytest.raises(NotPermitted):
        await ask(verbs, verb, Refusing(), **fields)

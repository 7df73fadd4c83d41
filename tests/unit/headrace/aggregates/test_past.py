"""States of the past are what the aggregate's own class makes of its events."""

from datetime import UTC, datetime
from typing import Annotated

import pytest
from pydantic import BaseModel

from headrace.aggregates.past import Past, plain_state
from headrace.domain.aggregate import Aggregate, applies
from headrace.domain.decider import Decider
from headrace.domain.message import DomainEvent
from headrace.domain.stream import EventStream
from headrace.errors import AggregateNotFound, DefinitionError
from headrace.stores.memory.store import MemoryEventStore
from headrace.subjects.personal import Personal


class Added(DomainEvent):
    number: int


class Named(DomainEvent):
    person: str
    name: Annotated[str, Personal(subject="person")]


class Broken(DomainEvent):
    pass


class Numbers(Aggregate):
    def initial_state(self) -> None:
        self.total = 0
        self.seen: set[int] = set()
        self.owner = ""

    @applies
    def _added(self, event: Added) -> None:
        self.total += event.number
        self.seen.add(event.number)

    @applies
    def _named(self, event: Named) -> None:
        self.owner = event.name.upper()

    @applies
    def _broken(self, event: Broken) -> None:
        raise KeyError("secret")


class Sum(BaseModel):
    total: int = 0


sums = Decider("Sums", state=Sum)


@sums.evolve
def added(state: Sum, event: Added) -> Sum:
    return Sum(total=state.total + event.number)


TYPES = {"Numbers": Numbers, "Sums": sums.aggregate_type}


async def stored(*events: DomainEvent, kind: str = "Numbers") -> MemoryEventStore:
    store = MemoryEventStore()
    for version, event in enumerate(events, start=1):
        await store.append(
            [
                EventStream(
                    aggregate_type=kind, aggregate_id="n", version=version, command_id=f"c{version}",
                    correlation_id=f"c{version}", recorded_at=datetime(2026, 1, version % 28 + 1, tzinfo=UTC),
                    events=(event,),
                )
            ]
        )  # fmt: skip
    return store


async def test_a_state_is_replayed_up_to_each_version_in_one_pass() -> None:
    store = await stored(Added(number=3), Added(number=1), Added(number=5))
    first, last = await Past(store, TYPES).at("n", [3, 1])
    assert (first.version, first.state) == (1, {"total": 3, "seen": [3], "owner": ""})
    assert (last.version, last.state["total"], last.state["seen"]) == (3, 9, [1, 3, 5])
    assert (last.command_id, last.aggregate_type) == ("c3", "Numbers")


async def test_many_versions_are_read_in_portions() -> None:
    store = await stored(*[Added(number=1)] * 1_201)
    (found,) = await Past(store, TYPES).at("n", [1_201])
    assert found.state["total"] == 1_201


async def test_personal_values_are_masked_before_they_reach_the_state() -> None:
    store = await stored(Named(person="p", name="ann"))
    (masked,) = await Past(store, TYPES).at("n", [1])
    (whole,) = await Past(store, TYPES, personal=True).at("n", [1])
    assert (masked.state["owner"], whole.state["owner"]) == ("[PERSONAL]", "ANN")


async def test_the_state_of_a_decider_is_its_value() -> None:
    store = await stored(Added(number=3), kind="Sums")
    (found,) = await Past(store, TYPES).at("n", [1])
    assert found.state == {"total": 3}


@pytest.mark.parametrize(("asked", "sentence"), [("n", "n has no version 2; it has the versions 1 to 1"), ("x", "x has no version 2; it has none")])  # fmt: skip
async def test_a_version_that_is_not_there_is_a_sentence(asked: str, sentence: str) -> None:
    store = await stored(Added(number=3))
    with pytest.raises(AggregateNotFound, match=sentence):
        await Past(store, TYPES).at(asked, [2])


async def test_a_class_that_is_missing_or_fails_is_a_sentence_without_values() -> None:
    with pytest.raises(DefinitionError, match="no aggregate class 'Gone'; it has Numbers, Sums"):
        await Past(await stored(Added(number=1), kind="Gone"), TYPES).at("n", [1])
    with pytest.raises(DefinitionError, match="cannot replay version 1 of n: KeyError") as raised:
        await Past(await stored(Broken()), TYPES).at("n", [1])
    assert "secret" not in str(raised.value)


def test_a_state_that_leads_to_itself_ends_somewhere() -> None:
    numbers = Numbers("n")
    around: list[object] = []
    around.append(around)
    numbers.seen = around  # type: ignore[assignment]  # what a class may do
    assert plain_state(numbers)["total"] == 0

"""Aggregates as two functions."""

from collections.abc import Iterable

import pytest

from headrace.domain.decider import Decider
from headrace.domain.message import AggregateId, Command, DomainEvent
from headrace.domain.state import StateForm
from headrace.domain.value import ValueObject
from headrace.errors import DefinitionError


class Add(Command):
    sum_id: AggregateId
    numbers: list[int]


class Added(DomainEvent):
    number: int


class AddedTwice(Added):
    pass


class Total(ValueObject):
    total: int = 0


def sums() -> Decider[Total]:
    decider = Decider("Sum", state=Total, state_version=4)

    @decider.decide
    def add(command: Add, state: Total) -> Iterable[DomainEvent]:
        for number in command.numbers:
            yield Added(number=number + state.total)

    @decider.evolve
    def added(state: Total, event: Added) -> Total:
        return Total(total=state.total + event.number)

    return decider


def test_what_is_decided_is_evolved_event_by_event():
    decider = sums()
    aggregate = decider.aggregate_type("s-1")
    decider.record(Add(sum_id="s-1", numbers=[1, 2]), aggregate)
    # Both were decided on the state before the command.
    assert aggregate.recorded == (Added(number=1), Added(number=2))
    assert aggregate.state == Total(total=3)


def test_each_aggregate_starts_from_a_state_of_its_own():
    decider = Decider("Bag", state=dict)
    one, other = decider.aggregate_type("a"), decider.aggregate_type("b")
    assert one.state == {}
    assert one.state is not other.state


def test_the_class_of_a_decider_is_an_aggregate_like_any_other():
    decider = sums()
    aggregate_type = decider.aggregate_type
    assert (aggregate_type.aggregate_name, aggregate_type.state_version) == ("Sum", 4)
    assert aggregate_type.event_types() == {Added}
    assert decider.command_types == {Add}
    aggregate = aggregate_type("s-1")
    aggregate.replay(1, [Added(number=5), AddedTwice(number=1)])
    assert (aggregate.version, aggregate.state) == (1, Total(total=6))
    written = StateForm(aggregate_type).capture(aggregate)
    assert written == '{"state":{"total":6}}'


def test_an_event_without_an_evolve_function_is_refused():
    class Other(DomainEvent):
        pass

    with pytest.raises(DefinitionError, match="Sum has no evolve function for Other"):
        sums().aggregate_type("s").replay(1, [Other()])


def test_functions_of_another_form_are_refused():
    decider = sums()

    async def slow(command: Add, state: Total) -> list[DomainEvent]:
        return []

    def one(command: Add) -> list[DomainEvent]:
        return []

    def swapped(event: Added, state: Total) -> Total:
        return state

    def again(command: Add, state: Total) -> list[DomainEvent]:
        return []

    with pytest.raises(DefinitionError, match="only compute"):
        decider.decide(slow)
    with pytest.raises(DefinitionError, match="the first annotated with a Command"):
        decider.decide(one)
    with pytest.raises(DefinitionError, match="the second annotated with a DomainEvent"):
        decider.evolve(swapped)
    with pytest.raises(DefinitionError, match="Sum has two functions for Add"):
        decider.decide(again)

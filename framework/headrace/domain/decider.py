"""
Aggregates as two functions: decide(command, state) -> events and evolve(state, event) -> state.

Used by applications, which register functions. Each decider makes an `Aggregate` class: from there
on both forms are the same, with the same guarantees. Pure.
"""

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, get_type_hints

from headrace.domain.aggregate import Aggregate
from headrace.domain.message import Command, DomainEvent
from headrace.errors import DefinitionError

__all__ = ["Decider", "DeciderAggregate"]

S = TypeVar("S")
Decide = TypeVar("Decide", bound=Callable[..., Iterable[DomainEvent]])
Evolve = TypeVar("Evolve", bound=Callable[..., Any])

_ARGUMENTS = 2


class DeciderAggregate(Aggregate):
    """An aggregate whose whole state is one value; each decider has a subclass of its own.

    Attributes:
        state: what `evolve` returned last.
    """

    state: Any


class Decider(Generic[S]):
    """A thing with an id whose rules are functions.

        accounts = Decider("Account", state=AccountState)

        @accounts.decide
        def deposit(command: Deposit, state: AccountState) -> Iterable[DomainEvent]:
            yield Deposited(amount=command.amount)

        @accounts.evolve
        def deposited(state: AccountState, event: Deposited) -> AccountState:
            return state.model_copy(update={"balance": state.balance + event.amount})

    Args:
        name: stable; stored with every event.
        state: the class of the state; called without arguments for an aggregate without events.
        state_version: raise it when an `evolve` function changes what it does, so that old
            snapshots are dropped.
        snapshot_events: how many events lie between two snapshots; None: the setting of that name;
            0: no snapshots.
    """

    def __init__(
        self,
        name: str,
        *,
        state: type[S],
        state_version: int = 1,
        snapshot_events: int | None = None,
    ) -> None:
        self.name = name
        self._decide: dict[type[Command], Callable[[Any, S], Iterable[DomainEvent]]] = {}
        self._evolve: dict[type[DomainEvent], Callable[[S, Any], S]] = {}
        self.aggregate_type: type[DeciderAggregate] = _aggregate_type(
            self, state, self._evolve, state_version=state_version, snapshot_events=snapshot_events
        )

    def decide(self, function: Decide) -> Decide:
        """Registers the decision on a command: it returns events, or raises a DomainError.

        The function gets (command, state), with the state before the command. It must change nothing.
        """
        _register(self._decide, function, place=0, kind=Command, owner=self.name)
        return function

    def evolve(self, function: Evolve) -> Evolve:
        """Registers the change by an event: the function gets (state, event) and returns a new state."""
        _register(self._evolve, function, place=1, kind=DomainEvent, owner=self.name)
        return function

    @property
    def command_types(self) -> frozenset[type[Command]]:
        """The command types that it decides on."""
        return frozenset(self._decide)

    def record(self, command: Command, aggregate: DeciderAggregate) -> None:
        """Decides on a command and records the events; raises what the function raises."""
        # All of them before the first is applied: they are decided on one state.
        for event in list(self._decide[type(command)](command, aggregate.state)):
            aggregate.record(event)


def _aggregate_type(
    decider: Decider[S],
    state: type[S],
    evolve: dict[type[DomainEvent], Callable[[S, Any], S]],
    **policy: Any,
) -> type[DeciderAggregate]:
    class Decided(DeciderAggregate, name=decider.name, **policy):
        def initial_state(self) -> None:
            self.state = state()

        @classmethod
        def event_types(cls) -> frozenset[type[DomainEvent]]:
            return frozenset(evolve)

        def _apply(self, event: DomainEvent) -> None:
            for event_type in type(event).__mro__:
                function = evolve.get(event_type)
                if function is not None:
                    self.state = function(self.state, event)
                    return
            raise DefinitionError(
                f"{decider.name} has no evolve function for {type(event).__name__};"
                " add one, even if it changes nothing"
            )

    Decided.__name__ = Decided.__qualname__ = decider.name
    # What a snapshot is written by.
    Decided.__annotations__ = {"state": state}
    return Decided


def _register(table: dict[Any, Any], function: Any, *, place: int, kind: type, owner: str) -> None:
    name = getattr(function, "__qualname__", repr(function))
    arguments = list(inspect.signature(function).parameters)
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise DefinitionError(f"{owner}: {name} is async; a decider's functions only compute")
    hint = get_type_hints(function).get(arguments[place]) if len(arguments) == _ARGUMENTS else None
    if not (isinstance(hint, type) and issubclass(hint, kind)):
        raise DefinitionError(
            f"{owner}: {name} takes two arguments, the {('first', 'second')[place]} annotated with"
            f" a {kind.__name__} class, and no resources: it only computes"
        )
    if table.setdefault(hint, function) is not function:
        raise DefinitionError(f"{owner} has two functions for {hint.__name__}; remove one")

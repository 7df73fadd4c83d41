"""
Given events, when something is decided, then events: tests of aggregates in one sentence.

    scenario(Account)
        .given(AccountOpened(owner="Ann", overdraft_limit=0), Deposited(...))
        .when(lambda account: account.withdraw("t-1", 500))
        .then_raises(InsufficientFunds)

Sits between: a user's tests and their aggregates. No store, no queue, no event loop.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from headrace._domain.aggregate import Aggregate
from headrace._domain.message import DomainEvent
from headrace.errors import DomainError

__all__ = ["Outcome", "Scenario", "scenario"]

A = TypeVar("A", bound=Aggregate)
E = TypeVar("E", bound=DomainError)


def scenario(aggregate_type: type[A], aggregate_id: str = "a-1") -> "Scenario[A]":
    """Begins a scenario with an aggregate that has no events yet."""
    return Scenario(aggregate_type(aggregate_id))


class Scenario(Generic[A]):
    """An aggregate and what happened to it before; made by `scenario`."""

    def __init__(self, aggregate: A) -> None:
        self._aggregate = aggregate

    def given(self, *events: DomainEvent) -> "Scenario[A]":
        """Lets events have happened, each by a command of its own."""
        for event in events:
            self._aggregate.replay(self._aggregate.version + 1, [event])
        return self

    def when(self, decide: Callable[[A], Any]) -> "Outcome[A]":
        """Lets the aggregate decide.

        Args:
            decide: calls a method of the aggregate; one that returns another aggregate, as a
                creating method does, is judged by that one.
        """
        try:
            returned = decide(self._aggregate)
        except DomainError as error:
            return Outcome(self._aggregate, error)
        decided = returned if isinstance(returned, type(self._aggregate)) else self._aggregate
        return Outcome(decided, None)


class Outcome(Generic[A]):
    """What was decided; made by `Scenario.when`."""

    def __init__(self, aggregate: A, error: DomainError | None) -> None:
        self._aggregate = aggregate
        self._error = error

    def then(self, *events: DomainEvent) -> A:
        """Claims that exactly these events were decided, in order; returns the aggregate.

        Raises:
            AssertionError: something else was.
        """
        if self._error is not None:
            raise AssertionError(f"expected {_listed(events)}, but got {self._error!r}") from (
                self._error
            )
        decided = self._aggregate.recorded
        if decided != events:
            raise AssertionError(f"expected {_listed(events)}, but got {_listed(decided)}")
        return self._aggregate

    def then_nothing(self) -> A:
        """Claims that nothing was decided; returns the aggregate.

        Raises:
            AssertionError: something was.
        """
        return self.then()

    def then_raises(self, error_type: type[E]) -> E:
        """Claims that a rule said no, and that nothing was decided; returns the error.

        Raises:
            AssertionError: no rule did, or another one, or an event was recorded before.
        """
        if not isinstance(self._error, error_type):
            got = _listed(self._aggregate.recorded) if self._error is None else repr(self._error)
            raise AssertionError(  # noqa: TRY004 - a test's claim, not an argument's type
                f"expected {error_type.__name__}, but got {got}"
            ) from self._error
        if self._aggregate.recorded:
            raise AssertionError(
                f"{error_type.__name__} came after {_listed(self._aggregate.recorded)};"
                " check every rule before the first record"
            )
        return self._error


def _listed(events: tuple[DomainEvent, ...]) -> str:
    return ", ".join(map(repr, events)) or "no event"

"""
Tests of aggregates in one sentence: given events, when a command comes, then events.

    scenario(Account)
        .given(AccountOpened(owner="Ann", overdraft_limit=0), Deposited(...))
        .when(lambda account: account.withdraw("t-1", 500))
        .then_raises(InsufficientFunds)

With `app`, `when` takes a command and passes it to the application's middleware and handler. A decider
needs no application:

    scenario(Account, app=app).given(...).when(Withdraw(account_id="a-1", amount=5)).then(...)

It needs no store, no queue and no event loop.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar, cast

from headrace.access.principal import Principal
from headrace.commands.command_handlers import (
    CommandContext,
    CommandHandler,
    HandlerRun,
    HandlerTable,
)
from headrace.commands.functional import handler_of
from headrace.domain.aggregate import Aggregate
from headrace.domain.decider import Decider
from headrace.domain.message import Command, DomainEvent
from headrace.errors import AggregateExists, DomainError
from headrace.serialization import CommandEnvelope, decode_result

__all__ = ["HasHandlers", "Outcome", "Scenario", "scenario"]

A = TypeVar("A", bound=Aggregate)
E = TypeVar("E", bound=DomainError)


class HasHandlers(Protocol):
    """An object that has handlers of commands, such as an `App`."""

    @property
    def handlers(self) -> HandlerTable:
        """The handler of each command type."""
        ...


def scenario(
    aggregate_type: type[A] | Decider[Any],
    aggregate_id: str = "a-1",
    *,
    app: HasHandlers | None = None,
) -> "Scenario[A]":
    """Begins a scenario with an aggregate that has no events yet.

    Args:
        aggregate_type: the class, or a decider.
        aggregate_id: the aggregate's id.
        app: handles the commands that you pass to `when`.
    """
    if isinstance(aggregate_type, Decider):
        handler = handler_of(aggregate_type) if app is None else None
        return Scenario(cast("A", aggregate_type.aggregate_type(aggregate_id)), app, handler)
    return Scenario(aggregate_type(aggregate_id), app, None)


class Scenario(Generic[A]):
    """An aggregate and its events so far; made by `scenario`."""

    def __init__(
        self, aggregate: A, app: HasHandlers | None, handler: CommandHandler | None
    ) -> None:
        self._aggregate = aggregate
        self._app = app
        self._handler = handler
        self._items: dict[str, str] = {}
        self._principal: Principal | None = None

    def given(self, *events: DomainEvent) -> "Scenario[A]":
        """Adds earlier events, each from its own command."""
        for event in events:
            self._aggregate.replay(self._aggregate.version + 1, [event])
        return self

    def given_items(self, **items: str) -> "Scenario[A]":
        """Adds items to the command, which middleware may read."""
        self._items |= items
        return self

    def given_principal(self, name: str, *roles: str) -> "Scenario[A]":
        """Says who sends the command, which middleware and handlers may look at."""
        self._principal = Principal(name, frozenset(roles))
        return self

    def when(self, decide: Callable[[A], Any] | Command) -> "Outcome[A]":
        """Lets the aggregate decide.

        Args:
            decide: a command; or a function that calls a method of the aggregate. If the function
                returns another aggregate, as a creating method does, the outcome is that one's.
        """
        if isinstance(decide, Command):
            return self._handle(decide)
        try:
            returned = decide(self._aggregate)
        except DomainError as error:
            return Outcome(self._aggregate, error)
        decided = returned if isinstance(returned, type(self._aggregate)) else self._aggregate
        return Outcome(decided, None)

    def _handle(self, command: Command) -> "Outcome[A]":
        handler = self._handler
        if self._app is not None:
            handler = self._app.handlers.by_type.get(type(command))
        if handler is None:
            raise AssertionError(
                f"no handler for {type(command).__name__}; begin with scenario(…, app=app) where"
                " app has its handler"
            )
        envelope = CommandEnvelope(
            command=command,
            command_id="c-1",
            correlation_id="c-1",
            items=self._items,
            principal=self._principal,
        )
        run = HandlerRun()
        error: DomainError | None = None
        given = _Given(self._aggregate)
        work = handler(command, CommandContext(envelope, given, run))
        try:
            try:
                cast("Coroutine[Any, Any, None]", work).send(None)
            except StopIteration:
                run.finish(given.accepted)
            else:
                cast("Coroutine[Any, Any, None]", work).close()
                raise AssertionError(
                    f"the handler of {type(command).__name__} waits for something; a scenario has"
                    " no event loop: test it with app.run_local()"
                )
        except DomainError as raised:
            error = raised
        # AggregateExists: the handler added another object for this aggregate, which itself is unchanged.
        changed = None if isinstance(error, AggregateExists) else run.aggregate
        return Outcome(cast("A", changed or self._aggregate), error, run.result)


class _Given:
    """The aggregate of a scenario, in the place of one that was loaded."""

    def __init__(self, aggregate: Aggregate) -> None:
        self.accepted = aggregate if aggregate.version else None

    async def load(self, aggregate_type: type[Aggregate]) -> Aggregate | None:  # noqa: ARG002 - the port's
        return None


class Outcome(Generic[A]):
    """What was decided; made by `Scenario.when`."""

    def __init__(self, aggregate: A, error: DomainError | None, result: str | None = None) -> None:
        self._aggregate = aggregate
        self._error = error
        self._result = result

    @property
    def result(self) -> Any:
        """The value of `set_result`, as the caller gets it."""
        return decode_result(self._result)

    def then(self, *events: DomainEvent) -> A:
        """Asserts that exactly these events were recorded, in order; returns the aggregate.

        Raises:
            AssertionError: other events were.
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
        """Asserts that no event was recorded; returns the aggregate.

        Raises:
            AssertionError: one was.
        """
        return self.then()

    def then_raises(self, error_type: type[E]) -> E:
        """Asserts that a rule said no and that no event was recorded; returns the error.

        Raises:
            AssertionError: no rule said no, or another rule did, or an event was recorded before.
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

"""Scenarios say what is so, and fail with a sentence when it is not."""

import asyncio

import pytest

from headrace.access.principal import Principal
from headrace.app import App
from headrace.commands.command_handlers import CommandContext
from headrace.commands.middleware import Next
from headrace.domain.aggregate import Aggregate, applies
from headrace.domain.decider import Decider
from headrace.domain.message import AggregateId, Command, DomainEvent
from headrace.domain.value import ValueObject
from headrace.errors import DomainError
from headrace.testing.scenario import scenario


class Opened(DomainEvent):
    owner: str


class Withdrawn(DomainEvent):
    amount: int


class Refused(DomainError):
    pass


class Account(Aggregate):
    def initial_state(self) -> None:
        self.owner = ""
        self.taken = 0

    @classmethod
    def open(cls, account_id: str, owner: str) -> "Account":
        account = cls(account_id)
        account.record(Opened(owner=owner))
        return account

    def withdraw(self, amount: int) -> int:
        if self.taken + amount > 10:
            raise Refused(f"{amount} is too much")
        if amount:
            self.record(Withdrawn(amount=amount))
        return amount

    def withdraw_then_refuse(self) -> None:
        self.record(Withdrawn(amount=1))
        raise Refused("too late")

    @applies
    def _opened(self, event: Opened) -> None:
        self.owner = event.owner

    @applies
    def _withdrawn(self, event: Withdrawn) -> None:
        self.taken += event.amount


def test_then_compares_the_events_that_were_decided_on_top_of_the_given_ones():
    account = (
        scenario(Account)
        .given(Opened(owner="Ann"), Withdrawn(amount=6))
        .when(lambda account: account.withdraw(4))
        .then(Withdrawn(amount=4))
    )
    assert (account.taken, account.version) == (10, 2)


def test_an_aggregate_that_was_created_is_judged_itself():
    account = scenario(Account).when(lambda _: Account.open("a-9", "Ann")).then(Opened(owner="Ann"))
    assert account.id == "a-9"


def test_then_nothing_holds_when_nothing_was_decided():
    scenario(Account, "a-2").when(lambda account: account.withdraw(0)).then_nothing()


def test_then_raises_returns_the_error():
    error = (
        scenario(Account)
        .given(Withdrawn(amount=8))
        .when(lambda account: account.withdraw(3))
        .then_raises(Refused)
    )
    assert str(error) == "3 is too much"


def test_unexpected_events_are_shown_next_to_the_expected_ones():
    outcome = scenario(Account).when(lambda account: account.withdraw(4))
    with pytest.raises(AssertionError, match=r"Withdrawn\(amount=5\), but got Withdrawn\(amount=4"):
        outcome.then(Withdrawn(amount=5))
    with pytest.raises(AssertionError, match=r"no event, but got Withdrawn\(amount=4\)"):
        outcome.then_nothing()
    with pytest.raises(AssertionError, match=r"Refused, but got Withdrawn\(amount=4\)"):
        outcome.then_raises(Refused)


def test_an_error_where_events_were_expected_is_the_cause():
    outcome = scenario(Account).when(lambda account: account.withdraw(99))
    with pytest.raises(AssertionError, match="99 is too much") as caught:
        outcome.then(Withdrawn(amount=99))
    assert isinstance(caught.value.__cause__, Refused)


def test_another_error_than_expected_is_shown():
    class Other(DomainError):
        pass

    outcome = scenario(Account).when(lambda account: account.withdraw(99))
    with pytest.raises(AssertionError, match="Other, but got Refused"):
        outcome.then_raises(Other)


def test_a_rule_that_speaks_after_an_event_was_recorded_fails_the_scenario():
    outcome = scenario(Account).when(lambda account: account.withdraw_then_refuse())
    with pytest.raises(AssertionError, match="check every rule before the first record"):
        outcome.then_raises(Refused)


def test_an_error_that_is_no_domain_error_is_not_caught():
    with pytest.raises(ZeroDivisionError):
        scenario(Account).when(lambda account: 1 // account.taken)


class Open(Command):
    account_id: AggregateId
    owner: str


class Withdraw(Command):
    account_id: AggregateId
    amount: int


class Wait(Command):
    account_id: AggregateId


def bank() -> App:
    app = App("bank")
    app.add(Account)

    @app.handles
    async def open_account(command: Open, context: CommandContext) -> None:
        context.add(Account.open(command.account_id, command.owner))

    @app.handles
    async def withdraw(command: Withdraw, context: CommandContext) -> None:
        account = await context.get(Account, command.account_id)
        context.set_result({"taken": account.withdraw(command.amount)})

    @app.handles
    async def wait(command: Wait, context: CommandContext) -> None:
        await asyncio.sleep(0)

    @app.middleware
    async def not_for_strangers(context: CommandContext, call_next: Next) -> None:
        if "stranger" in context.items:
            raise Refused("no strangers")
        await call_next()

    return app


def test_a_command_goes_through_its_handler():
    scenario(Account, app=bank()).when(Open(account_id="a-1", owner="Ann")).then(
        Opened(owner="Ann")
    )
    outcome = (
        scenario(Account, app=bank())
        .given(Opened(owner="Ann"))
        .when(Withdraw(account_id="a-1", amount=4))
    )
    outcome.then(Withdrawn(amount=4))
    assert outcome.result == {"taken": 4}


def test_a_command_to_an_aggregate_without_events_is_refused_as_it_would_be():
    error = (
        scenario(Account, app=bank())
        .when(Withdraw(account_id="a-1", amount=4))
        .then_raises(DomainError)
    )
    assert "there is no Account 'a-1'" in str(error)
    opened = scenario(Account, app=bank()).given(Opened(owner="Ann"))
    opened.when(Open(account_id="a-1", owner="Bob")).then_raises(DomainError)


def test_a_command_meets_the_middleware():
    scenario(Account, app=bank()).given_items(stranger="yes").when(
        Open(account_id="a-1", owner="Ann")
    ).then_raises(Refused)


def test_a_command_without_a_handler_or_with_a_wait_is_a_mistake_of_the_test():
    with pytest.raises(AssertionError, match="no handler for Open"):
        scenario(Account).when(Open(account_id="a-1", owner="Ann"))
    with pytest.raises(AssertionError, match="waits for something"):
        scenario(Account, app=bank()).when(Wait(account_id="a-1"))


class Taken(ValueObject):
    taken: int = 0


def test_a_decider_needs_no_application():
    accounts = Decider("Account", state=Taken)

    @accounts.decide
    def withdraw(command: Withdraw, state: Taken) -> list[DomainEvent]:
        if state.taken + command.amount > 10:
            raise Refused("too much")
        return [Withdrawn(amount=command.amount)]

    @accounts.evolve
    def withdrawn(state: Taken, event: Withdrawn) -> Taken:
        return Taken(taken=state.taken + event.amount)

    given = scenario(accounts).given(Withdrawn(amount=6))
    given.when(Withdraw(account_id="a-1", amount=4)).then(Withdrawn(amount=4))
    scenario(accounts).when(Withdraw(account_id="a-1", amount=11)).then_raises(Refused)


def test_a_handler_of_a_scenario_sees_the_principal_that_was_given() -> None:
    class Look(Command):
        account_id: AggregateId

    app = App("bank")
    seen = []

    @app.handles
    async def look(command: Look, context: CommandContext) -> None:
        seen.append(context.principal)

    begun = scenario(Account, app=app)
    begun.when(Look(account_id="a-1")).then_nothing()
    begun.given_principal("ann", "clerk").when(Look(account_id="a-1")).then_nothing()
    assert seen == [None, Principal("ann", frozenset({"clerk"}))]

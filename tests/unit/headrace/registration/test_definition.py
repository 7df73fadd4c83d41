"""What an application consists of, and who reads which event."""

from headrace import DomainEvent
from samples.bank import app
from samples.bank.accounts import Deposited, OpenAccount


class Unread(DomainEvent):
    pass


def test_a_definition_names_handlers_aggregates_and_readers() -> None:
    definition = app.definition
    assert definition.commands[OpenAccount] == "open_account"
    assert definition.events[Deposited] == ["Account"]
    assert "projection balances" in definition.readers_of(Deposited)
    assert definition.readers_of(Unread) == []

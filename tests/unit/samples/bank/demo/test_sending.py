"""Sending: file order, ids from rows, a bounded number under way, and retries that are safe."""

import asyncio
from typing import Any

import pytest

from headrace import CommandResult
from headrace.errors import CommandTimeout
from samples.bank.accounts import CloseAccount, Deposit, OpenAccount, Withdraw
from samples.bank.demo import sending
from samples.bank.demo.data_set import AccountTerms, DataSet, Transaction, TransferOrder
from samples.bank.transfers import RequestTransfer


def row(number: int, account_id: str, amount: int) -> Transaction:
    return Transaction(
        transaction_id=f"t-{number}", account_id=account_id, amount=amount, balance_after=0
    )


DATA = DataSet(
    name="d",
    accounts={
        "a": AccountTerms(account_id="a", owner="Ada", overdraft_limit=None, closes=True),
        "b": AccountTerms(account_id="b", owner="Bao", overdraft_limit=500),
    },
    transactions=[row(1, "a", 100), row(2, "b", 50), row(3, "a", -30)],
    transfers=[TransferOrder(transfer_id="m-1", source="a", target="b", amount=7)],
)


class ScriptedBus:
    """Answers commands when told to, and keeps what it was asked."""

    def __init__(self, *, timeouts: int = 0, refuse: frozenset[str] = frozenset()) -> None:
        self.asked: list[str] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.full = asyncio.Event()
        self._timeouts = timeouts
        self._refuse = refuse

    async def execute(self, command: Any, *, command_id: str) -> CommandResult:
        self.asked.append(command_id)
        if len(self.asked) == sending.IN_FLIGHT_MAX:
            self.full.set()
        if self._timeouts:
            self._timeouts -= 1
            raise CommandTimeout("no result in time")
        await self.may_answer.wait()
        refused = command_id in self._refuse
        return CommandResult(
            status="rejected" if refused else "executed",
            aggregate_id="a",
            command_id=command_id,
            sentence="no" if refused else "",
        )


def test_an_account_is_opened_before_its_first_row() -> None:
    assert list(sending.transactions(DATA)) == [
        ("open-a", OpenAccount(account_id="a", owner="Ada", overdraft_limit=None)),
        ("tx-t-1", Deposit(account_id="a", transaction_id="t-1", amount=100)),
        ("open-b", OpenAccount(account_id="b", owner="Bao", overdraft_limit=500)),
        ("tx-t-2", Deposit(account_id="b", transaction_id="t-2", amount=50)),
        ("tx-t-3", Withdraw(account_id="a", transaction_id="t-3", amount=30)),
    ]


def test_closings_and_transfers_have_ids_of_their_own() -> None:
    assert list(sending.closings(DATA)) == [("close-a", CloseAccount(account_id="a"))]
    assert list(sending.transfers(DATA)) == [
        (
            "transfer-m-1",
            RequestTransfer(transfer_id="m-1", source="a", target="b", amount=7),
        )
    ]


async def test_commands_are_executed_in_file_order_and_each_answer_is_counted() -> None:
    bus = ScriptedBus()
    answers: list[None] = []
    commands = list(sending.transactions(DATA))
    refusals = await sending.send(bus, commands, answered=lambda: answers.append(None))
    assert refusals == []
    assert bus.asked == [command_id for command_id, _ in commands]
    assert len(answers) == len(commands)


async def test_what_was_refused_is_told() -> None:
    bus = ScriptedBus(refuse=frozenset({"tx-t-2"}))
    refusals = await sending.send(bus, sending.transactions(DATA), answered=lambda: None)
    assert refusals == ["command tx-t-2 was rejected: no"]


async def test_a_command_without_an_answer_is_sent_again_under_the_same_id() -> None:
    bus = ScriptedBus(timeouts=sending.ATTEMPTS_MAX - 1)
    assert await sending.send(bus, sending.closings(DATA), answered=lambda: None) == []
    assert bus.asked == ["close-a"] * sending.ATTEMPTS_MAX


async def test_a_command_that_never_gets_an_answer_ends_the_import() -> None:
    bus = ScriptedBus(timeouts=sending.ATTEMPTS_MAX)
    with pytest.raises(ExceptionGroup) as caught:
        await sending.send(bus, sending.closings(DATA), answered=lambda: None)
    assert isinstance(caught.value.exceptions[0], CommandTimeout)


async def test_no_more_than_the_limit_is_under_way() -> None:
    bus = ScriptedBus()
    bus.may_answer.clear()
    many = [(f"c-{n}", CloseAccount(account_id="a")) for n in range(sending.IN_FLIGHT_MAX + 10)]
    task = asyncio.create_task(sending.send(bus, many, answered=lambda: None))
    await bus.full.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(bus.asked) == sending.IN_FLIGHT_MAX
    bus.may_answer.set()
    await task
    assert len(bus.asked) == len(many)

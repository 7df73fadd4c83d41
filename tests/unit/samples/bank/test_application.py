"""The whole bank in one process: commands in, rows out, transfers through both sides."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from headrace.app import RunningApp
from samples.bank import app
from samples.bank.accounts import CloseAccount, Deposit, OpenAccount, Withdraw
from samples.bank.demo.run import Journal
from samples.bank.read_models import Balance, StatementLine, balances, statement
from samples.bank.transfers import RequestTransfer


@pytest.fixture
async def bank() -> AsyncIterator[RunningApp]:
    async with app.run_local() as running:
        for account_id in ("ada", "bao", "carla"):
            await running.bus.execute(OpenAccount(account_id=account_id, owner=account_id.title()))
        paid_in = Deposit(account_id="ada", transaction_id="t-1", amount=500)
        await running.bus.execute(paid_in, command_id="tx-1")
        await running.bus.execute(CloseAccount(account_id="carla"))
        yield running


async def transfer(bank: RunningApp, source: str, target: str, amount: int) -> str:
    """Requests a transfer and returns how it ended."""
    await bank.bus.execute(
        RequestTransfer(transfer_id="m-1", source=source, target=target, amount=amount)
    )
    journal = Journal(bank.store)
    while "m-1" not in journal.transfers:
        await asyncio.sleep(0)
        await journal.advance()
    for projection in (balances, statement):
        for account_id in ("ada", "bao"):
            await bank.read_models.wait_for_version(
                projection, account_id, journal.versions[account_id], timeout_ms=100_000
            )
    return journal.transfers["m-1"]


async def money(bank: RunningApp) -> dict[str, int]:
    return {row.account_id: row.balance async for row in bank.read(balances).rows()}


async def test_a_command_answers_with_the_balance_and_its_duplicate_with_the_same(
    bank: RunningApp,
) -> None:
    taken = Withdraw(account_id="ada", transaction_id="t-2", amount=200)
    first = await bank.bus.execute(taken, command_id="tx-2")
    again = await bank.bus.execute(taken, command_id="tx-2")
    assert (first.status, first.value) == ("executed", {"balance": 300})
    assert (again.status, again.value, again.version) == ("executed", {"balance": 300}, 3)


async def test_a_rule_that_says_no_answers_with_its_name_and_a_sentence(bank: RunningApp) -> None:
    refused = await bank.bus.execute(Withdraw(account_id="bao", transaction_id="t-2", amount=1))
    assert (refused.status, refused.error) == ("rejected", "InsufficientFunds")
    assert "1 is too much" in refused.sentence


async def test_a_transfer_goes_through_both_accounts(bank: RunningApp) -> None:
    assert await transfer(bank, "ada", "bao", 120) == "completed"
    assert await money(bank) == {"ada": 380, "bao": 120, "carla": 0}
    assert await bank.read(balances).get("bao") == Balance(
        account_id="bao", owner="Bao", balance=120, transactions=1
    )
    lines = await bank.read(statement).where(account_id="bao")
    assert lines == [
        StatementLine(line_id="m-1/MoneyReceived", account_id="bao", amount=120, balance=120)
    ]


@pytest.mark.parametrize("target", ["carla", "nobody"])
async def test_money_that_the_target_refuses_comes_back(bank: RunningApp, target: str) -> None:
    assert await transfer(bank, "ada", target, 120) == "cancelled"
    assert (await money(bank))["ada"] == 500
    lines = await bank.read(statement).where(account_id="ada")
    assert [line.amount for line in lines] == [120, -120, 500]


@pytest.mark.parametrize("source", ["bao", "carla", "nobody"])
async def test_a_source_that_cannot_pay_cancels_the_transfer(bank: RunningApp, source: str) -> None:
    assert await transfer(bank, source, "ada", 1) == "cancelled"
    assert (await money(bank))["ada"] == 500

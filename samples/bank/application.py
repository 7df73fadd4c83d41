"""Everything of the bank bound to one application; run it with `headrace run samples.bank:app`."""

from headrace import App, CommandContext
from samples.bank.accounts import (
    Account,
    CloseAccount,
    Deposit,
    OpenAccount,
    ReceiveMoney,
    ReturnMoney,
    SendMoney,
    Withdraw,
)
from samples.bank.read_models import balances, daily_totals, statement, transfers_in_flight
from samples.bank.transfers import (
    CancelTransfer,
    CompleteTransfer,
    RequestTransfer,
    Transfer,
    transfers,
)

app = App("bank")
app.add(Account, Transfer, transfers)
app.add(balances, statement, daily_totals, transfers_in_flight)


@app.handles
async def open_account(command: OpenAccount, context: CommandContext) -> None:
    context.add(Account.open(command.account_id, command.owner, command.overdraft_limit))


@app.handles
async def deposit(command: Deposit, context: CommandContext) -> None:
    account = await context.get(Account, command.account_id)
    account.deposit(command.transaction_id, command.amount)
    context.set_result({"balance": account.balance})


@app.handles
async def withdraw(command: Withdraw, context: CommandContext) -> None:
    account = await context.get(Account, command.account_id)
    account.withdraw(command.transaction_id, command.amount)
    context.set_result({"balance": account.balance})


@app.handles
async def send_money(command: SendMoney, context: CommandContext) -> None:
    account = await context.get(Account, command.account_id)
    account.send(command.transfer_id, command.target, command.amount)


@app.handles
async def receive_money(command: ReceiveMoney, context: CommandContext) -> None:
    account = await context.get(Account, command.account_id)
    account.receive(command.transfer_id, command.source, command.amount)


@app.handles
async def return_money(command: ReturnMoney, context: CommandContext) -> None:
    account = await context.get(Account, command.account_id)
    account.take_back(command.transfer_id, command.amount, command.reason)


@app.handles
async def close_account(command: CloseAccount, context: CommandContext) -> None:
    account = await context.get(Account, command.account_id)
    account.close()


@app.handles
async def request_transfer(command: RequestTransfer, context: CommandContext) -> None:
    context.add(
        Transfer.request(command.transfer_id, command.source, command.target, command.amount)
    )


@app.handles
async def complete_transfer(command: CompleteTransfer, context: CommandContext) -> None:
    transfer = await context.get(Transfer, command.transfer_id)
    transfer.complete()


@app.handles
async def cancel_transfer(command: CancelTransfer, context: CommandContext) -> None:
    transfer = await context.get(Transfer, command.transfer_id)
    transfer.cancel(command.reason)

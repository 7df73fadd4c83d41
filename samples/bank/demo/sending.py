"""
A data set as commands, sent in file order with a bounded number under way.

The id of each command derives from the row it comes from, so that sending a file again, whole or
from any point, changes nothing.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from headrace import Command, CommandBus, CommandResult
from headrace.errors import CommandTimeout
from samples.bank.accounts import CloseAccount, Deposit, OpenAccount, Withdraw
from samples.bank.demo.data_set import DataSet
from samples.bank.transfers import RequestTransfer

__all__ = ["Numbered", "closings", "send", "transactions", "transfers"]

Numbered = tuple[str, Command]

# Enough to keep every part busy, few enough to see the kill hit commands under way.
IN_FLIGHT_MAX: Final = 500
# Each waits `result_timeout_ms`; a restart of the service takes a few seconds.
ATTEMPTS_MAX: Final = 4


def transactions(data: DataSet) -> Iterator[Numbered]:
    """Yields each row's command, and before an account's first one the command that opens it."""
    opened = set()
    for row in data.transactions:
        if row.account_id not in opened:
            opened.add(row.account_id)
            terms = data.accounts[row.account_id]
            yield (
                f"open-{row.account_id}",
                OpenAccount(
                    account_id=row.account_id,
                    owner=terms.owner,
                    overdraft_limit=terms.overdraft_limit,
                ),
            )
        kind = Deposit if row.amount > 0 else Withdraw
        yield (
            f"tx-{row.transaction_id}",
            kind(
                account_id=row.account_id,
                transaction_id=row.transaction_id,
                amount=abs(row.amount),
            ),
        )


def closings(data: DataSet) -> Iterator[Numbered]:
    """Yields the commands that close accounts after their last transaction."""
    for account in data.accounts.values():
        if account.closes:
            yield f"close-{account.account_id}", CloseAccount(account_id=account.account_id)


def transfers(data: DataSet) -> Iterator[Numbered]:
    """Yields the commands that request transfers."""
    for order in data.transfers:
        yield (
            f"transfer-{order.transfer_id}",
            RequestTransfer(
                transfer_id=order.transfer_id,
                source=order.source,
                target=order.target,
                amount=order.amount,
            ),
        )


async def send(
    bus: CommandBus, commands: Iterable[Numbered], *, answered: Callable[[], None]
) -> list[str]:
    """Executes the commands in order; calls `answered` after each result.

    Returns a sentence for each command that was not executed.

    Raises:
        CommandTimeout: a command got no answer in several attempts.
    """
    free = asyncio.Semaphore(IN_FLIGHT_MAX)
    refusals: list[str] = []

    async def one(command_id: str, command: Command) -> None:
        result = await _execute(bus, command_id, command)
        if not result.ok:
            refusals.append(f"command {command_id} was {result.status}: {result.sentence}")
        answered()
        free.release()

    # Tasks begin in the order in which they are made, and `execute` takes its place in the queue
    # before it first waits: that is what keeps the file's order.
    async with asyncio.TaskGroup() as group:
        for command_id, command in commands:
            await free.acquire()
            group.create_task(one(command_id, command))
    return refusals


async def _execute(bus: CommandBus, command_id: str, command: Command) -> CommandResult:
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return await bus.execute(command, command_id=command_id)
        except CommandTimeout:
            continue  # the outcome is unknown; the same id again is safe
    return await bus.execute(command, command_id=command_id)

"""
Makes the bank's data set: accounts, transactions and transfers, the same bytes for the same seed.

The files under `seeds/bank/` are what this program writes by default. Make a larger set elsewhere:

    python seeds/generate.py --accounts 2000 --transactions 100000 --directory var/large

Used by a developer; writes the CSV files that the sample's demo reads. Only `random()` of Python's
generator is used, because its sequence is the one that no Python version may change.
"""

import argparse
import csv
import io
import random
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

__all__ = ["BankData", "generate", "write"]

SEED = 1815
FIRST_DAY = date(2025, 1, 1)
DAYS = 365
OVERDRAFT_LIMITS = (0, 0, 50_000, 200_000)  # cents; half of the accounts have none
CLOSES_EVERY = 20  # every twentieth account ends at zero and is closed
FIRST_NAMES = ("Ada", "Bao", "Carla", "Dag", "Elif", "Femi", "Gita", "Hugo", "Ines", "Jun")
LAST_NAMES = ("Adler", "Brandt", "Costa", "Diaz", "Ekman", "Fofana", "Gupta", "Horak", "Ito")

AccountRow = tuple[str, str, str, str]
TransactionRow = tuple[str, str, str, str, str, str, str]
TransferRow = tuple[str, str, str, str]

ACCOUNT_COLUMNS = ("account_id", "owner", "overdraft_limit", "closes")
TRANSACTION_COLUMNS = (
    "transaction_id", "account_id", "date", "kind", "operation", "amount", "balance_after",
)  # fmt: skip
TRANSFER_COLUMNS = ("transfer_id", "source", "target", "amount")


@dataclass(slots=True)
class _Account:
    """An account while the generator works: amounts in cents."""

    account_id: str
    owner: str
    overdraft_limit: int
    closes: bool
    balance: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BankData:
    """The rows of the three files, without their headers, in file order."""

    accounts: list[AccountRow] = field(default_factory=list)
    transactions: list[TransactionRow] = field(default_factory=list)
    transfers: list[TransferRow] = field(default_factory=list)


class _Chance:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def below(self, end: int) -> int:
        """A whole number from 0 to end - 1."""
        return int(self._random() * end)

    def skewed_below(self, end: int) -> int:
        """The same, the low numbers more often: some accounts are busy, most are not."""
        return int(self._random() ** 2 * end)

    def happens(self, probability: float) -> bool:
        return self._random() < probability


def generate(
    *, seed: int = SEED, accounts: int = 200, transactions: int = 3_000, transfers: int = 150
) -> BankData:
    """Returns a data set in which every transaction is allowed and some transfers are refused.

    Every fifth transfer or so must fail: its target is unknown or closed, its source is unknown or
    cannot pay. All others fit into what their source holds after the last transaction, even if no other
    transfer arrives there. So the outcome of each transfer is the same in every order.

    Raises:
        ValueError: fewer transactions than an opening and a closing one per account.
    """
    if accounts < 2 or transactions < 2 * accounts:
        raise ValueError("at least 2 accounts, and 2 transactions for each")
    chance = _Chance(seed)
    bank = [
        _Account(
            account_id=f"A-{number:05d}",
            owner=f"{FIRST_NAMES[chance.below(len(FIRST_NAMES))]}"
            f" {LAST_NAMES[chance.below(len(LAST_NAMES))]}",
            overdraft_limit=OVERDRAFT_LIMITS[chance.below(len(OVERDRAFT_LIMITS))],
            closes=number % CLOSES_EVERY == 0,
        )
        for number in range(1, accounts + 1)
    ]
    data = BankData(
        accounts=[
            (a.account_id, a.owner, _money(a.overdraft_limit), "yes" if a.closes else "no")
            for a in bank
        ]
    )
    _transactions(data, bank, transactions, chance)
    _transfers(data, bank, transfers, chance)
    return data


def _transactions(data: BankData, bank: list[_Account], count: int, chance: _Chance) -> None:
    closing = [account for account in bank if account.closes]
    ordinary = count - len(closing)
    opened_every = ordinary // (2 * len(bank)) or 1
    opened = 0
    for number in range(ordinary):
        day = FIRST_DAY + timedelta(days=number * DAYS // count)
        if opened < len(bank) and number % opened_every == 0:
            account = bank[opened]
            opened += 1
            amount = 10_000 + chance.below(490_000)
            _book(data, account, amount, day, "opening_deposit")
            continue
        account = bank[chance.skewed_below(opened)]
        amount = 100 + chance.below(60_000)
        if chance.happens(0.5) and amount <= account.balance + account.overdraft_limit:
            _book(data, account, -amount, day, "cash_withdrawal")
        else:
            _book(data, account, amount, day, "cash_deposit")
    last_day = FIRST_DAY + timedelta(days=DAYS - 1)
    for account in closing:
        if account.balance:
            _book(data, account, -account.balance, last_day, "settlement")


def _book(data: BankData, account: _Account, amount: int, day: date, operation: str) -> None:
    account.balance += amount
    data.transactions.append(
        (
            f"T-{len(data.transactions) + 1:06d}",
            account.account_id,
            day.isoformat(),
            "credit" if amount > 0 else "debit",
            operation,
            _money(abs(amount)),
            _money(account.balance),
        )
    )


def _transfers(data: BankData, bank: list[_Account], count: int, chance: _Chance) -> None:
    ordinary = [account for account in bank if not account.closes]
    closed = [account.account_id for account in bank if account.closes]
    more_than_there_is = 1 + sum(abs(a.balance) + a.overdraft_limit for a in bank)
    room = {a.account_id: a.balance + a.overdraft_limit for a in ordinary}
    for number in range(1, count + 1):
        no_account = f"X-{number:05d}"
        place = chance.below(len(ordinary))
        source = ordinary[place].account_id
        target = ordinary[(place + 1 + chance.below(len(ordinary) - 1)) % len(ordinary)].account_id
        amount = 1 + chance.below(room[source] // 4)
        match chance.below(20):
            case 0:
                amount = more_than_there_is
            case 1:
                target = no_account
            case 2:
                target = closed[chance.below(len(closed))] if closed else no_account
            case 3:
                source = no_account
        if source != no_account and amount > room[source]:
            amount = more_than_there_is  # not just too much: refused also after money came in
        elif source != no_account:
            room[source] -= amount
        data.transfers.append((f"M-{number:05d}", source, target, _money(amount)))


def _money(cents: int) -> str:
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100}.{abs(cents) % 100:02d}"


def write(data: BankData, directory: Path) -> None:
    """Writes `accounts.csv`, `transactions.csv` and `transfers.csv` into the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, columns, rows in (
        ("accounts", ACCOUNT_COLUMNS, data.accounts),
        ("transactions", TRANSACTION_COLUMNS, data.transactions),
        ("transfers", TRANSFER_COLUMNS, data.transfers),
    ):
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
        (directory / f"{name}.csv").write_bytes(text.getvalue().encode())


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes the bank's data set.")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--accounts", type=int, default=200)
    parser.add_argument("--transactions", type=int, default=3_000)
    parser.add_argument("--transfers", type=int, default=150)
    parser.add_argument("--directory", type=Path, default=Path(__file__).parent / "bank")
    options = parser.parse_args()
    data = generate(
        seed=options.seed,
        accounts=options.accounts,
        transactions=options.transactions,
        transfers=options.transfers,
    )
    write(data, options.directory)
    print(
        f"{options.directory}: {len(data.accounts):,} accounts,"
        f" {len(data.transactions):,} transactions, {len(data.transfers):,} transfers"
    )


if __name__ == "__main__":
    main()

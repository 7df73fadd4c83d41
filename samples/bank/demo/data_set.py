"""
Data sets for the demo: CSV files read whole, checked row by row, and turned into values.

Amounts become whole cents exactly. Nothing of a file is used before all of it has been checked.
"""

import csv
import hashlib
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

__all__ = [
    "AccountTerms",
    "DataSet",
    "MalformedRow",
    "Transaction",
    "TransferOrder",
    "read_bank",
    "read_transactions",
]

TRANSACTION_COLUMNS = (
    "transaction_id", "account_id", "date", "kind", "operation", "amount", "balance_after",
)  # fmt: skip
# 15 digits before the point: in cents they still fit a database's 64-bit integer.
_MONEY = re.compile(r"(-?)([0-9]{1,15})(?:\.([0-9]{1,2}))?")
# An id becomes part of a command id, which has 255 characters at most.
ID_CHARACTERS_MAX = 200

Row = dict[str, str]
T = TypeVar("T")


class MalformedRow(Exception):
    """A file cannot be used; the sentence names the file, the line and what is wrong there."""

    def __init__(self, path: Path, line: int, sentence: str) -> None:
        super().__init__(f"{path}, line {line}: {sentence}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One row of a bank's journal; amounts in cents, negative where money leaves."""

    transaction_id: str
    account_id: str
    amount: int
    balance_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountTerms:
    """How an account is opened, and whether it is closed after its last transaction."""

    account_id: str
    owner: str
    overdraft_limit: int | None
    closes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferOrder:
    """Money to move from one account to another, in cents."""

    transfer_id: str
    source: str
    target: str
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """Everything the demo sends.

    Attributes:
        name: made of the file's name and its content, so that another content is another name.
        accounts: by id, in the order in which they first appear.
        transactions: in file order.
        transfers: to be requested after the last transaction.
    """

    name: str
    accounts: dict[str, AccountTerms]
    transactions: list[Transaction]
    transfers: list[TransferOrder]


def read_transactions(path: Path) -> DataSet:
    """Reads one file of transactions; every account in it may be overdrawn without limit.

    Raises:
        MalformedRow: the file or one of its rows cannot be used.
        OSError: the file cannot be read.
    """
    transactions = _read(path, TRANSACTION_COLUMNS, _transaction, same="transaction_id")
    accounts = {
        account_id: AccountTerms(
            account_id=account_id, owner=f"owner of {account_id}", overdraft_limit=None
        )
        for account_id in dict.fromkeys(row.account_id for row in transactions)
    }
    return DataSet(
        name=_name(path.stem, path), accounts=accounts, transactions=transactions, transfers=[]
    )


def read_bank(folder: Path) -> DataSet:
    """Reads `accounts.csv`, `transactions.csv` and `transfers.csv` of a folder.

    Raises:
        MalformedRow: a file or one of its rows cannot be used.
        OSError: a file cannot be read.
    """
    files = [folder / f"{name}.csv" for name in ("accounts", "transactions", "transfers")]
    terms = _read(
        files[0], ("account_id", "owner", "overdraft_limit", "closes"), _terms, same="account_id"
    )
    transactions = _read(files[1], TRANSACTION_COLUMNS, _transaction, same="transaction_id")
    transfers = _read(
        files[2], ("transfer_id", "source", "target", "amount"), _transfer, same="transfer_id"
    )
    return DataSet(
        name=_name(folder.name, *files),
        accounts={one.account_id: one for one in terms},
        transactions=transactions,
        transfers=transfers,
    )


def _name(word: str, *files: Path) -> str:
    content = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    return f"{word}-{content[:8]}"


def _read(path: Path, columns: tuple[str, ...], make: Callable[[Row], T], *, same: str) -> list[T]:
    """Makes a value of each row; rows with one id must say the same."""
    values: list[T] = []
    first: dict[str, tuple[int, T]] = {}
    for line, row in _rows(path, columns):
        try:
            value = make(row)
        except ValueError as error:
            raise MalformedRow(path, line, str(error)) from error
        earlier, other = first.setdefault(row[same], (line, value))
        if other != value:
            raise MalformedRow(
                path, line, f"{same} {row[same]!r} stands on line {earlier} with other values"
            )
        values.append(value)
    return values


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, Row]]:
    reader = csv.reader(io.StringIO(_text(path), newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        missing = [name for name in columns if header.count(name) != 1]
        if missing:
            raise MalformedRow(
                path, 1, f"these columns must each be there once: {', '.join(missing)}"
            )
        for values in reader:
            if not values:
                continue  # an empty line, as editors leave at the end
            if len(values) != len(header):
                raise MalformedRow(
                    path, reader.line_num, f"{len(values)} values for {len(header)} columns"
                )
            stripped = (value.strip() for value in values)
            yield reader.line_num, dict(zip(header, stripped, strict=True))
    except csv.Error as error:
        raise MalformedRow(path, reader.line_num, f"not CSV: {error}") from error


def _text(path: Path) -> str:
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise MalformedRow(path, line, "not UTF-8 text") from error


def _transaction(row: Row) -> Transaction:
    kind = row["kind"]
    if kind not in {"credit", "debit"}:
        raise ValueError(f"kind must be credit or debit, not {kind!r}")
    amount = _amount(row)
    return Transaction(
        transaction_id=_id(row, "transaction_id"),
        account_id=_id(row, "account_id"),
        amount=amount if kind == "credit" else -amount,
        balance_after=_cents(row, "balance_after"),
    )


def _terms(row: Row) -> AccountTerms:
    if row["closes"] not in {"yes", "no"}:
        raise ValueError(f"closes must be yes or no, not {row['closes']!r}")
    return AccountTerms(
        account_id=_id(row, "account_id"),
        owner=row["owner"],
        overdraft_limit=_cents(row, "overdraft_limit"),
        closes=row["closes"] == "yes",
    )


def _transfer(row: Row) -> TransferOrder:
    return TransferOrder(
        transfer_id=_id(row, "transfer_id"),
        source=_id(row, "source"),
        target=_id(row, "target"),
        amount=_amount(row),
    )


def _id(row: Row, column: str) -> str:
    value = row[column]
    if not 1 <= len(value) <= ID_CHARACTERS_MAX:
        raise ValueError(f"{column} must have 1 to {ID_CHARACTERS_MAX} characters")
    return value


def _amount(row: Row) -> int:
    cents = _cents(row, "amount")
    if cents < 1:
        raise ValueError(f"amount must be more than zero, not {row['amount']}")
    return cents


def _cents(row: Row, column: str) -> int:
    found = _MONEY.fullmatch(row[column])
    if found is None:
        raise ValueError(
            f"{column} must be a number such as 12.50, with at most two decimals,"
            f" not {row[column]!r}"
        )
    sign, whole, fraction = found.groups(default="")
    return int(f"{sign}{whole}{fraction:0<2}")

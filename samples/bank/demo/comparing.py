"""
What came out against what must come out, row for row; every difference is one sentence.

Pure: rows in, sentences out.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from pydantic import BaseModel

from samples.bank.demo.ledger import ExpectedAccount, ExpectedLine, Ledger
from samples.bank.read_models import Balance, DailyTotal, StatementLine

__all__ = ["against_days", "against_ledger", "against_rows", "against_total", "against_transfers"]

E = TypeVar("E")
R = TypeVar("R")
Row = TypeVar("Row", bound=BaseModel)


def against_ledger(
    ledger: Ledger, balances: Mapping[str, Balance], statement: Mapping[str, StatementLine]
) -> list[str]:
    """Compares the two read models with the ledger; returns a sentence per difference."""
    return _compare("account", ledger.accounts, balances, _account) + _compare(
        "statement line", ledger.lines, statement, _statement_line
    )


def against_total(ledger: Ledger, balances: Mapping[str, Balance]) -> list[str]:
    """Compares all the money there is with all that transactions brought in: transfers only move it."""
    brought_in = sum(line.amount for line in ledger.lines.values() if line.balance is not None)
    return _differ("all money together", brought_in, sum(row.balance for row in balances.values()))


def against_days(ledger: Ledger, days: Mapping[str, DailyTotal]) -> list[str]:
    """Compares what all days brought together with the ledger, whichever days they were."""
    amounts = [line.amount for line in ledger.lines.values() if line.balance is not None]
    received = [line.amount for key, line in ledger.lines.items() if key.endswith("/MoneyReceived")]
    totals = days.values()
    return [
        *_differ(
            "paid in", sum(each for each in amounts if each > 0), sum(d.paid_in for d in totals)
        ),
        *_differ(
            "paid out", -sum(each for each in amounts if each < 0), sum(d.paid_out for d in totals)
        ),
        *_differ("transferred", sum(received), sum(d.transferred for d in totals)),
        *_differ("moves", len(amounts) + len(received), sum(d.transactions for d in totals)),
    ]


def against_transfers(ledger: Ledger, ends: Mapping[str, str]) -> list[str]:
    """Compares how each transfer ended with how it must end."""
    return _compare("transfer", ledger.transfers, ends, _end)


def against_rows(what: str, rows: Mapping[str, Row], others: Mapping[str, Row]) -> list[str]:
    """Compares two tables of one projection, field by field."""
    return _compare(what, rows, others, _whole_row)


def _compare(
    what: str,
    expected: Mapping[str, E],
    found: Mapping[str, R],
    differences: Callable[[E, R], list[str]],
) -> list[str]:
    sentences = []
    for key in expected.keys() | found.keys():
        if key not in found:
            sentences.append(f"{what} {key} is missing")
        elif key not in expected:
            sentences.append(f"{what} {key} should not be there")
        else:
            sentences += [f"{what} {key}: {one}" for one in differences(expected[key], found[key])]
    return sorted(sentences)


def _account(expected: ExpectedAccount, row: Balance) -> list[str]:
    return [
        *_differ("balance", expected.balance, row.balance),
        *_differ("transactions", expected.transactions, row.transactions),
        *_differ("closed", expected.closed, row.closed),
    ]


def _statement_line(expected: ExpectedLine, row: StatementLine) -> list[str]:
    return [
        *_differ("account", expected.account_id, row.account_id),
        *_differ("amount", expected.amount, row.amount),
        *(
            _differ("balance", expected.balance, row.balance)
            if expected.balance is not None
            else []
        ),
    ]


def _end(expected: str, found: str) -> list[str]:
    return _differ("end", expected, found)


def _whole_row(expected: BaseModel, row: BaseModel) -> list[str]:
    before, after = expected.model_dump(), row.model_dump()
    return [one for name in before for one in _differ(name, before[name], after.get(name))]


def _differ(name: str, expected: object, found: object) -> list[str]:
    return [] if expected == found else [f"{name} is {found!r} and must be {expected!r}"]

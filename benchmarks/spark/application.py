"""The application that the benchmark rebuilds: deposits, balances kept in two ways, and a row per event."""

from collections.abc import Iterator

from pydantic import BaseModel

from headrace import Aggregate, App, DomainEvent, EventContext, Projection, applies
from headrace.folds import count, last

__all__ = ["APP", "TOPIC", "Balance", "Deposited", "app", "bodies", "declared", "entries", "folded"]

APP = "benchmarks.spark.application:app"
TOPIC = "bench.events"

# A stream as the framework stores it, written by hand: encoding would take longer than the queue.
_BODY = (
    '{"aggregate_type":"Account","aggregate_id":"%s","version":%d,"command_id":"%d",'
    '"correlation_id":"%d","recorded_at":"2026-01-31T12:00:00.000000Z","result":null,"items":{},'
    '"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":%d}}],"rejection":null}'
)


class Deposited(DomainEvent):
    """What the topic holds."""

    amount: int
    balance: int


class Account(Aggregate):
    """Applies deposits; nobody sends it commands here."""

    @applies
    def _deposited(self, event: Deposited) -> None:
        """Needs no state."""


class Balance(BaseModel):
    """What both projections keep."""

    account_id: str
    balance: int = 0
    transactions: int = 0


class Entry(BaseModel):
    """One deposit."""

    entry_id: str
    account_id: str
    amount: int
    balance: int


declared = Projection("declared", row=Balance, key="account_id")
declared.on(Deposited, balance=last("balance"), transactions=count())
folded = Projection("folded", row=Balance, key="account_id")


@folded.fold
def deposited(row: Balance | None, event: Deposited, context: EventContext) -> Balance:
    return Balance(
        account_id=context.aggregate_id,
        balance=event.balance,
        transactions=row.transactions + 1 if row else 1,
    )


def _entry_of(_event: DomainEvent, context: EventContext) -> str:
    return f"{context.aggregate_id}/{context.version}"


entries = Projection("entries", row=Entry, key="entry_id", key_of=_entry_of)


@entries.fold
def entered(row: Entry | None, event: Deposited, context: EventContext) -> Entry:  # noqa: ARG001 - a fold's arguments
    return Entry(
        entry_id=_entry_of(event, context),
        account_id=context.aggregate_id,
        amount=event.amount,
        balance=event.balance,
    )


app = App("bench")
app.add(Account, declared, folded, entries)


def bodies(total: int, keys: int) -> Iterator[tuple[str, bytes]]:
    """One deposit per stream, the accounts in turn, with the key of each message."""
    for number in range(total):
        version = number // keys + 1
        key = f"a-{number % keys:06}"
        yield key, (_BODY % (key, version, number, number, 5 * version)).encode()

"""The application that the benchmark projects: deposits into accounts, and balances as rows."""

from collections.abc import Iterator
from datetime import UTC, datetime

from pydantic import BaseModel

from headrace import Aggregate, App, DomainEvent, EventContext, Projection, applies
from headrace.domain.stream import EventStream

__all__ = ["Balance", "Deposited", "app", "bodies", "projections"]

# As many projections as a run can ask for side by side.
PROJECTIONS_MAX = 6


class Deposited(DomainEvent):
    """What the topic holds."""

    transaction_id: str
    amount: int
    balance: int


class Account(Aggregate):
    """Applies deposits; nobody sends it commands here."""

    @applies
    def _deposited(self, event: Deposited) -> None:
        """Needs no state."""


class Balance(BaseModel):
    """What a projection keeps."""

    account_id: str
    balance: int
    transactions: int = 0


def deposited(row: Balance | None, event: Deposited, context: EventContext) -> Balance:
    return Balance(
        account_id=context.aggregate_id,
        balance=event.balance,
        transactions=row.transactions + 1 if row else 1,
    )


def _project(name: str) -> Projection[Balance]:
    projection = Projection(name, row=Balance, key="account_id")
    projection.fold(deposited)
    return projection


projections = [_project(f"balances_{number}") for number in range(PROJECTIONS_MAX)]

app = App("bench")
app.add(Account, *projections)


def bodies(count: int, keys: int) -> Iterator[tuple[str, bytes]]:
    """One deposit per stream, the accounts in turn, with the key of each message."""
    serializer = app.serializer
    for number in range(count):
        version = number // keys + 1
        command_id = f"0190d6a4-5b2e-7c3d-9e4f-{number:012}"
        stream = EventStream(
            aggregate_type="Account",
            aggregate_id=f"account-{number % keys:06}",
            version=version,
            command_id=command_id,
            correlation_id=command_id,
            recorded_at=datetime(2026, 1, 31, 12, tzinfo=UTC),
            events=(Deposited(transaction_id=f"t-{number}", amount=5, balance=5 * version),),
        )
        yield stream.aggregate_id, serializer.encode_stream(stream)

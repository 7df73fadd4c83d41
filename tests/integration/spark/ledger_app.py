"""The application that Spark's workers import in these tests."""

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

from pydantic import BaseModel

from headrace.app import App
from headrace.domain.aggregate import Aggregate, applies
from headrace.domain.message import DomainEvent, EventContext
from headrace.folds import count, sum_
from headrace.projections.definition.projection import Projection


class Booked(DomainEvent):
    partner: str
    amount: int


class Noted(DomainEvent):
    text: str


class Ended(DomainEvent):
    pass


class Ledger(Aggregate):
    """Knows its events; these tests publish them without commands."""

    @applies
    def _booked(self, event: Booked) -> None:
        pass

    @applies
    def _noted(self, event: Noted) -> None:
        pass

    @applies
    def _ended(self, event: Ended) -> None:
        pass


class Account(BaseModel):
    account_id: str
    balance: int
    bookings: int
    rate: Decimal
    booked_at: datetime | None
    booked_on: date
    note: str | None = None


class Partner(BaseModel):
    partner: str
    total: int


accounts = Projection("accounts", row=Account, key="account_id")


@accounts.fold
def booked(row: Account | None, event: Booked, context: EventContext) -> Account:
    before, count = (row.balance, row.bookings) if row else (0, 0)
    return Account(
        account_id=context.aggregate_id,
        # Depends on the order: a version that is skipped, doubled or late changes it.
        balance=(before * 3 + event.amount) % 1_000_003,
        bookings=count + 1,
        rate=Decimal(event.amount) / 8,
        booked_at=context.recorded_at,
        booked_on=context.recorded_at.date(),
        note=row.note if row else None,
    )


@accounts.fold
def noted(row: Account | None, event: Noted, context: EventContext) -> Account | None:
    if event.text == "poison":
        raise RuntimeError("this note cannot be folded")
    gate = Path(event.text.removeprefix("gate:"))
    if event.text.startswith("gate:") and gate.exists():
        # Waits for somebody to open it for writing, and to close it.
        gate.read_bytes()
    return row and row.model_copy(update={"note": event.text})


@accounts.fold
def ended(row: Account | None, event: Ended, context: EventContext) -> None:
    return None


def _partner_of(event: DomainEvent, context: EventContext) -> str:
    assert isinstance(event, Booked)
    return event.partner


partners = Projection("partners", row=Partner, key="partner", key_of=_partner_of)


@partners.fold
def partner_booked(row: Partner | None, event: Booked, context: EventContext) -> Partner | None:
    total = (row.total if row else 0) + event.amount
    return Partner(partner=event.partner, total=total) if total else None


class Bookings(BaseModel):
    account_id: str
    bookings: int = 0
    turnover: int = 0


counts = Projection("counts", row=Bookings, key="account_id")
counts.on(Booked, bookings=count(), turnover=sum_("amount"))

app = App("ledger")
app.add(Ledger, accounts, partners, counts)


class NamedAccount(Account):
    """The next version of the row: one field more."""

    last_partner: str = ""


wider_accounts = Projection("accounts", row=NamedAccount, key="account_id")


@wider_accounts.fold
def wider_booked(row: NamedAccount | None, event: Booked, context: EventContext) -> NamedAccount:
    plain = booked(row, event, context)
    return NamedAccount(**plain.model_dump(), last_partner=event.partner)


wider = App("ledger")
wider.add(Ledger, wider_accounts)

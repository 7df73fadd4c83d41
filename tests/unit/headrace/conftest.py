"""A small ledger: aggregates, events and two projections, for the rebuilds of either engine."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from pydantic import BaseModel

from headrace.app import App
from headrace.domain.aggregate import Aggregate, applies
from headrace.domain.message import DomainEvent, EventContext
from headrace.domain.stream import EventStream, Rejection
from headrace.projections.definition.projection import Projection
from headrace.projections.tables.read_models import ReadModels

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
TOPIC = "ledger.events"


class Booked(DomainEvent):
    partner: str
    amount: int


class Noted(DomainEvent):
    text: str


class Ended(DomainEvent):
    pass


class Passed(DomainEvent):
    """No projection reacts to it."""


class Ledger(Aggregate):
    """Knows its events."""

    @applies
    def _booked(self, event: Booked) -> None:
        pass

    @applies
    def _noted(self, event: Noted) -> None:
        pass

    @applies
    def _ended(self, event: Ended) -> None:
        pass

    @applies
    def _passed(self, event: Passed) -> None:
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


def make_accounts() -> Projection[Account]:
    """Keyed by aggregate, order-dependent, with every kind of column and with deletion."""
    accounts = Projection("accounts", row=Account, key="account_id")

    @accounts.fold
    def booked(row: Account | None, event: Booked, context: EventContext) -> Account:
        before, count = (row.balance, row.bookings) if row else (0, 0)
        return Account(
            account_id=context.aggregate_id,
            # Depends on the order: a version that is skipped, doubled or late changes it.
            balance=before * 3 + event.amount,
            bookings=count + 1,
            rate=Decimal(event.amount) / 8,
            booked_at=context.recorded_at,
            booked_on=context.recorded_at.date(),
            note=row.note if row else None,
        )

    @accounts.fold
    def noted(row: Account | None, event: Noted, context: EventContext) -> Account | None:
        if event.text == "fail":
            raise RuntimeError("this note cannot be folded")
        return row and row.model_copy(update={"note": event.text})

    @accounts.fold
    def ended(row: Account | None, event: Ended, context: EventContext) -> None:
        return None

    return accounts


def make_partners() -> Projection[Partner]:
    """Keyed by a field of the event, so that a row has events of several aggregates."""

    def partner_of(event: DomainEvent, context: EventContext) -> str:
        assert isinstance(event, Booked)
        return event.partner

    partners = Projection("partners", row=Partner, key="partner", key_of=partner_of)

    @partners.fold
    def booked(row: Partner | None, event: Booked, context: EventContext) -> Partner | None:
        total = (row.total if row else 0) + event.amount
        return Partner(partner=event.partner, total=total) if total else None

    return partners


def stream(aggregate_id: str, version: int, *events: DomainEvent) -> EventStream:
    return EventStream(
        aggregate_type="Account",
        aggregate_id=aggregate_id,
        version=version,
        command_id=f"{aggregate_id}-{version}",
        correlation_id=f"{aggregate_id}-{version}",
        recorded_at=NOW,
        events=events,
    )


def rejection(aggregate_id: str) -> EventStream:
    return EventStream(
        aggregate_type="Account",
        aggregate_id=aggregate_id,
        version=None,
        command_id="no",
        correlation_id="no",
        recorded_at=NOW,
        rejection=Rejection(
            error="No", sentence="no", command_name="X", command_version=1, command_data={}
        ),
    )


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The domain, importable as `unit_ledger:app`, and what tests make of it."""
    accounts, partners = make_accounts(), make_partners()
    app = App("ledger")
    app.add(Ledger, accounts, partners)
    module = ModuleType("unit_ledger")
    module.__file__ = __file__
    module.app = app  # type: ignore[attr-defined]  # a module made here
    monkeypatch.setitem(sys.modules, "unit_ledger", module)
    return SimpleNamespace(
        app=app,
        path="unit_ledger:app",
        serializer=app.serializer,
        accounts=accounts,
        partners=partners,
        Account=Account,
        Partner=Partner,
        Booked=Booked,
        Noted=Noted,
        Ended=Ended,
        Passed=Passed,
        stream=stream,
        rejection=rejection,
        now=NOW,
        topic_name=TOPIC,
    )


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new database, of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'read.db'}"
    url: str = request.getfixturevalue("postgres_database")
    return url


@pytest.fixture
async def read_models(
    database_url: str, ledger: SimpleNamespace, give_schema: Callable[[str], Awaitable[None]]
) -> AsyncIterator[ReadModels]:
    """Read models with generation 1 of the accounts, and generation 2 as a shadow."""
    await give_schema(database_url)
    opened = ReadModels(database_url)
    await opened.ensure(ledger.accounts)
    assert await opened.begin_shadow(ledger.accounts, "the test") == 2
    yield opened
    await opened.aclose()

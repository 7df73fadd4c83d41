"""Declared folds of every kind, and the same in Python, for Spark's workers to import."""

from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, field_validator

from headrace.app import App
from headrace.domain.aggregate import Aggregate, applies
from headrace.domain.message import DomainEvent, EventContext
from headrace.folds import count, day, field, first, last, literal, max_, min_, sum_
from headrace.projections.definition.projection import Projection


class Happened(DomainEvent):
    """What other events have in common."""

    partner: str | None = None


class Paid(Happened, version=2):
    amount: int
    price: Decimal
    on: date
    at: datetime | None = None
    rate: float = 0.5
    cash: bool = False


class Moved(Happened):
    source: str
    target: str
    amount: int


class Visited(Happened):
    pass


class Renamed(DomainEvent):
    # Read through the model: msgspec knows nothing of this rule.
    name: str

    @field_validator("name")
    @classmethod
    def _shout(cls, value: str) -> str:
        return value.upper()


class Ledger(Aggregate):
    """Knows its events; these tests publish them without commands."""

    @applies
    def _paid(self, event: Paid) -> None:
        pass

    @applies
    def _moved(self, event: Moved) -> None:
        pass

    @applies
    def _visited(self, event: Visited) -> None:
        pass

    @applies
    def _renamed(self, event: Renamed) -> None:
        pass


class Account(BaseModel):
    account_id: str
    total: int
    payments: int = 100
    none_yet: int | None = None
    worth: Decimal
    first_partner: str | None = None
    last_partner: str | None = "nobody"
    cheapest: Decimal | None
    dearest: Decimal | None
    earliest: date | None
    latest: datetime | None
    highest_rate: float | None
    cash: bool = False
    name: str = "?"
    touched_at: datetime | None
    constant: str = "same"


accounts = Projection("accounts", row=Account, key="account_id")
accounts.on(
    Paid,
    total=sum_("amount"),
    payments=count(),
    worth=sum_("price"),
    first_partner=first("partner"),
    last_partner=last("partner"),
    cheapest=min_("price"),
    dearest=max_(-field("price")),
    earliest=min_("on"),
    latest=max_("at"),
    highest_rate=max_("rate"),
    cash=last("cash"),
    touched_at=last("context.recorded_at"),
)
accounts.on(Paid, where=(field("price") > 2) & ~field("cash"), none_yet=sum_(-field("amount")))
accounts.on(Paid, where=field("partner").is_in("p", "ü'\\"), none_yet=count())
accounts.on(Moved, total=sum_(-field("amount")), last_partner=last("target"))
accounts.on(Renamed, name=last("name"))


class Partner(BaseModel):
    partner: str
    total: int
    events: int
    last_aggregate: str = ""
    last_version: int | None = None
    never: str = "never"
    dearest: Decimal | None = None


partners = Projection("partners", row=Partner, key="partner")
partners.on(Happened, key="partner", events=count(), last_aggregate=last("context.aggregate_id"))
partners.on(Renamed, Moved, key="context.aggregate_type", events=count())
partners.on(
    Paid,
    key="partner",
    where=~(field("cash") == literal(True)) | (field("amount") <= 0),
    total=sum_("amount"),
    events=count(),
    dearest=max_("price"),
)
partners.on(Moved, key="source", total=sum_(-field("amount")), events=count())
partners.on(
    Moved, key="target", total=sum_("amount"), events=count(), last_version=last("context.version")
)


class Daily(BaseModel):
    day: str
    payments: int
    amount: int


daily = Projection("daily", row=Daily, key="day", key_of=day("context.recorded_at"))
daily.on(Paid, where=~field("amount").is_none(), payments=count(), amount=sum_("amount"))


class Move(BaseModel):
    place: str
    balance: int
    sightings: int = 0


def _both(event: Moved, context: EventContext) -> Iterable[str]:
    return [f"{context.aggregate_id}/{event.source}", f"{context.aggregate_id}/{event.target}"]


moves = Projection("moves", row=Move, key="place", key_of=_both)
moves.on(Moved, sightings=count())


@moves.fold
def moved(row: Move | None, event: Moved, context: EventContext, key: str) -> Move | None:
    assert row is not None
    change = key.endswith(event.target) - key.endswith(event.source)
    balance = row.balance + change * event.amount
    return row.model_copy(update={"balance": balance}) if event.amount % 5 else None


app = App("ledger")
app.add(Ledger, accounts, partners, daily, moves)


@app.upcasts(Paid, 1)
def paid_2(data: dict[str, Any]) -> dict[str, Any]:
    """Version 1 had no price."""
    return {**data, "price": "1.5"}

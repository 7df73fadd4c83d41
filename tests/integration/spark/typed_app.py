"""Read models of every type of column and key, for Spark's workers to import."""

from datetime import date
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Literal
from uuid import UUID

from pydantic import BaseModel, Field

from headrace.app import App
from headrace.domain.aggregate import Aggregate, applies
from headrace.domain.message import DomainEvent, EventContext
from headrace.folds import count, day, last, sum_
from headrace.projections.definition.index import Index
from headrace.projections.definition.projection import Projection


class State(StrEnum):
    NEW = "new"
    SOLD = "sold, gone"


class Weight(IntEnum):
    LIGHT = 1
    HEAVY = 20


class Colour(Enum):
    RED = "r"
    NONE = ""


class Part(BaseModel):
    name: str
    price: Decimal | None = None
    made: date = date(2026, 1, 1)
    parts: list["Part"] = []


class Listed(DomainEvent):
    shop: str
    number: int
    owner: UUID
    state: State = State.NEW
    amount: int = 1
    parts: list[Part]
    rates: dict[str, float]


class Sold(DomainEvent):
    shop: str
    number: int
    amount: int


class Ledger(Aggregate):
    """Knows its events; these tests publish them without commands."""

    @applies
    def _listed(self, event: Listed) -> None:
        pass

    @applies
    def _sold(self, event: Sold) -> None:
        pass


class Item(BaseModel):
    item_id: UUID
    state: State = State.NEW
    weight: Weight | None = None
    colour: Colour = Colour.NONE
    size: Literal["s", "m"] | None = None
    level: Literal[1, 2] = 1
    owner: UUID | None = None
    mark: bytes = b""
    parts: list[Part] = Field(default_factory=list)
    rates: dict[str, float] = Field(default_factory=dict)
    best: Part | None = None
    tags: list[list[str]] | None = None


# A row per aggregate, whose ids are UUIDs.
items = Projection(
    "items",
    row=Item,
    key="item_id",
    indexes=[Index("state", "mark"), Index("owner", "item_id", unique=True)],
)


@items.fold
def listed(row: Item | None, event: Listed, context: EventContext) -> Item:
    before = row or Item(item_id=UUID(context.aggregate_id))
    return before.model_copy(
        update={
            "state": event.state,
            "owner": event.owner,
            "parts": [*before.parts, *event.parts][-3:],
            "rates": {**event.rates, **dict(list(before.rates.items())[:2])},
            "best": event.parts[0] if event.parts else None,
            "mark": context.command_id.encode() + bytes([0, event.number % 256]),
        }
    )


@items.fold
def item_sold(row: Item | None, event: Sold, context: EventContext) -> Item | None:
    if row is None or event.amount % 5 == 0:
        return None
    return row.model_copy(
        update={
            "state": State.SOLD,
            "weight": Weight.HEAVY if event.amount > 9 else Weight.LIGHT,
            "colour": Colour.RED,
            "size": "m" if event.amount % 2 else "s",
            "level": 2,
            "tags": [[event.shop], []],
        }
    )


class Owned(BaseModel):
    state: State | None = None
    owner: UUID | None = None
    item_id: UUID
    parts: list[Part] = Field(default_factory=list)
    events: int = 0


# Declared, and folded in Python, as its values are.
owned = Projection("owned", row=Owned, key="item_id")
owned.on(Listed, state=last("state"), owner=last("owner"), parts=last("parts"), events=count())


class Shelf(BaseModel):
    number: int
    shop: str
    amount: int = 0
    events: int = 0


# Declared, with a key of two fields in another order than the columns; and one that is a number.
shelves = Projection("shelves", row=Shelf, key=("shop", "number"), key_of=("shop", "number"))
shelves.on(Sold, amount=sum_("amount"), events=count())


class Number(BaseModel):
    number: int
    amount: int = 0


numbers = Projection("numbers", row=Number, key="number", key_of="number")
numbers.on(Sold, amount=sum_("amount"))


class Daily(BaseModel):
    day: str
    number: int
    sold: int = 0


daily = Projection("daily", row=Daily, key=("day", "number"))
daily.on(Sold, key=(day("context.recorded_at"), "number"), sold=count())


class Pair(BaseModel):
    shop: str
    owner: UUID
    numbers: list[int] = []


# Several keys of one event.
pairs = Projection("pairs", row=Pair, key=("owner", "shop"))


@pairs.fold(key=lambda event: [(event.owner, event.shop), (UUID(int=event.number % 2), "a,b%")])
def paired(
    row: Pair | None, event: Listed, context: EventContext, key: tuple[UUID, str]
) -> Pair | None:
    owner, shop = key
    before = [] if row is None else row.numbers
    if event.number % 7 == 0:
        return None
    return Pair(shop=shop, owner=owner, numbers=[*before, event.number][-4:])


app = App("ledger")
app.add(Ledger, items, owned, shelves, numbers, daily, pairs)

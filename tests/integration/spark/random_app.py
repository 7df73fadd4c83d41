"""Declared projections made at random, the same ones in every process that imports this."""

import random
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from declared_app import Ledger, Moved, Paid, Renamed
from pydantic import BaseModel, Field

from headrace.app import App
from headrace.folds import count, day, field, first, last, max_, min_, sum_
from headrace.projections.definition.expressions import Term
from headrace.projections.definition.projection import Projection

SEEDS = range(5)
# Of these the key is a number, or two fields of which one is a number.
TYPED_SEEDS = range(10, 13)


class Row(BaseModel):
    key: str
    number: int | None = None
    events: int
    amount: Decimal | None = None
    text: str | None = None
    other: str | None = "none"
    at: datetime | None = None


def _condition(chance: random.Random) -> Term:
    made = [
        field("amount") > chance.randrange(-50, 50),
        field("partner").is_in("p", "q"),
        field("partner").is_none(),
        ~field("cash"),
        field("price") <= Decimal(chance.randrange(-300, 300)).scaleb(-2),
    ]
    one, other = chance.sample(made, 2)
    return chance.choice([one, one & other, one | other, ~(one & other)])


def _projection(seed: int) -> Projection[Row]:
    chance = random.Random(seed)
    made = Projection(f"random{seed}", row=Row, key="key")
    number, amount = chance.choice([sum_, min_, max_]), chance.choice([sum_, min_, max_])
    latest = chance.choice([max_, min_, last])
    text, other = (chance.choice([first, last]) for _ in range(2))
    for _ in range(chance.randrange(1, 4)):
        made.on(
            Paid,
            key=chance.choice(["partner", "context.aggregate_id", "context.correlation_id"]),
            where=_condition(chance) if chance.random() < 0.7 else None,
            events=count(),
            number=number(chance.choice([field("amount"), -field("amount")])),
            amount=amount("price"),
            text=text(chance.choice(["partner", "context.command_id"])),
            at=latest("at"),
        )
    made.on(
        Moved,
        key=chance.choice(["source", "target"]),
        events=count(),
        number=number("amount"),
        other=other(chance.choice(["context.aggregate_id", "target"])),
    )
    if chance.random() < 0.5:
        made.on(Renamed, key="name", events=count(), text=text("context.command_id"))
    return made


class Numbered(BaseModel):
    number: int
    events: int
    where: Literal["here", "there"] = "here"
    tags: list[str] = Field(default_factory=list)
    text: str | None = None


class Paired(Numbered):
    who: str


def _typed_projection(seed: int) -> Projection[Any]:
    chance = random.Random(seed)
    pairs = seed % 2 == 1
    order = chance.choice([("who", "number"), ("number", "who")])
    made: Projection[Any] = (
        Projection(f"typed{seed}", row=Paired, key=order)
        if pairs
        else Projection(f"typed{seed}", row=Numbered, key="number")
    )

    def key(who: Any, number: Any) -> Any:
        parts = {"who": who, "number": number}
        return tuple(parts[name] for name in order) if pairs else number

    for event, names in (
        (Paid, ["partner", "context.aggregate_id"]),
        (Moved, ["source", "target"]),
    ):
        number = chance.choice([field("amount"), -field("amount"), field("context.version")])
        made.on(
            event,
            key=key(chance.choice([*names, day("context.recorded_at")]), number),
            where=chance.choice([None, field("amount") > chance.randrange(-50, 20)]),
            events=count(),
            text=last("context.command_id"),
        )
    return made


app = App("ledger")
app.add(Ledger, *map(_projection, SEEDS), *map(_typed_projection, TYPED_SEEDS))


@app.upcasts(Paid, 1)
def _with_a_price(data: dict[str, Any]) -> dict[str, Any]:
    return data | {"price": "1.5"}

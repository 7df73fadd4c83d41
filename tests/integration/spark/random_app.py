"""Declared projections made at random, the same ones in every process that imports this."""

import random
from datetime import datetime
from decimal import Decimal
from typing import Any

from declared_app import Ledger, Moved, Paid, Renamed
from pydantic import BaseModel

from headrace.app import App
from headrace.folds import count, field, first, last, max_, min_, sum_
from headrace.projections.definition.expressions import Term
from headrace.projections.definition.projection import Projection

SEEDS = range(5)


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


app = App("ledger")
app.add(Ledger, *(_projection(seed) for seed in SEEDS))


@app.upcasts(Paid, 1)
def _with_a_price(data: dict[str, Any]) -> dict[str, Any]:
    return data | {"price": "1.5"}

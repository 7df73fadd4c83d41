"""`headrace projection letters|retry|skip` on a shop whose fold cannot do one number."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SHOP = """
import asyncio
import os

from headrace import (
    Aggregate, AggregateId, App, Command, CommandContext, DomainEvent, EventContext, Projection,
    Settings, applies,
)
from pydantic import BaseModel


class Sell(Command):
    product_id: AggregateId
    pieces: list[int]


class Sold(DomainEvent):
    pieces: int


class Product(Aggregate):
    def initial_state(self) -> None:
        pass

    @applies
    def _sold(self, event: Sold) -> None:
        pass


class Sales(BaseModel):
    product_id: str
    pieces: int


app = App("shop")
sales = Projection("sales", row=Sales, key="product_id")
app.add(Product, sales)


@app.handles
async def sell(command: Sell, context: CommandContext) -> None:
    product = Product(command.product_id)
    product.record(Sold(pieces=command.pieces[0]))
    context.add(product)


@sales.fold
def sold(row: Sales | None, event: Sold, context: EventContext) -> Sales:
    if event.pieces == 13 and "MENDED" not in os.environ:
        raise ValueError("thirteen are not sold here")
    return Sales(product_id=context.aggregate_id, pieces=event.pieces)


async def main() -> None:
    settings = Settings(
        event_store="sqlite:///var/events.db", read_models="sqlite:///var/read.db", retry_ms_max=50
    )
    async with app.run(settings) as running:
        for product_id, pieces in (("pen", 1), ("ink", 13), ("nib", 13), ("cap", 2)):
            await running.bus.execute(Sell(product_id=product_id, pieces=[pieces]))
        while await running.read_models.parked("sales") < 2 or not await running.read(sales).get("cap"):
            await asyncio.sleep(0.01)


if __name__ == "__main__":
    asyncio.run(main())
"""
LETTERS = ("projection", "letters", "sales", "--app", "shop:app")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a shop whose projection has parked two of four products."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.py").write_text(SHOP, encoding="utf-8")
    subprocess.run([sys.executable, "shop.py"], cwd=folder, timeout=50, check=True)
    return folder


def headrace(folder: Path, *arguments: str, mended: bool = False) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *arguments],
        capture_output=True, text=True, cwd=folder, timeout=50, check=False,
        env=os.environ | ({"MENDED": "yes"} if mended else {}),
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, " ".join(done.stderr.split())


def test_letters_are_listed_retried_and_skipped(shop: Path) -> None:
    status, shown, _ = headrace(shop, *LETTERS, "--json")
    assert status == 0
    letters = sorted(map(json.loads, shown.splitlines()), key=lambda each: each["aggregate_id"])
    assert [letter["aggregate_id"] for letter in letters] == ["ink", "nib"]
    assert {(letter["version"], letter["held"], letter["retries"]) for letter in letters} == {
        (0, 1, 0)
    }
    assert "thirteen are not sold here" in letters[0]["error"]

    status, shown, _ = headrace(shop, "projection", "list", "--app", "shop:app")
    assert shown.split()[-5:] == ["sales", "1", "2", "2", "live"]

    retry = ("projection", "retry", "sales", "--app", "shop:app")
    status, shown, _ = headrace(shop, *retry)
    assert (status, "0 of 2 letters of sales are done" in shown) == (1, True)
    status, shown, _ = headrace(shop, *retry, "ink", mended=True)
    assert (status, shown) == (0, "1 of 1 letters of sales are done\n")
    skip = ("projection", "skip", "sales", "nib", "--app", "shop:app")
    assert headrace(shop, *skip)[:2] == (0, "nib goes on without it\n")
    assert headrace(shop, *LETTERS)[:2] == (0, "projection sales has parked nothing\n")
    status, shown, _ = headrace(shop, "projection", "list", "--app", "shop:app")
    assert shown.split()[-5:] == ["sales", "1", "3", "0", "live"]

    status, _, said = headrace(shop, *skip)
    assert (status, "projection sales has not parked 'nib'" in said) == (2, True)

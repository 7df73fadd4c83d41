"""`headrace projection status` on a shop that sold two things and has nobody to count them."""

import asyncio
import copy
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headrace.cli
from headrace.app import load_app
from headrace.projections.tables.contents import write_offsets
from headrace.projections.tables.read_models import ReadModels
from headrace.projections.tables.succession import take_own
from headrace.stores.database.schema import upgrade
from headrace.transports.base import Outgoing
from headrace.transports.open import open_transport
from samples.bank.read_models import balances

SHOP = """
import os

from headrace import App, Projection
from pydantic import BaseModel


class Sales(BaseModel):
    product_id: str


app = App(os.environ["SHOP_NAME"])
sales = Projection("sales", row=Sales, key="product_id")
app.add(sales)
"""


@pytest.fixture
def shop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker_address: str, topic: str
) -> Iterator[str]:
    """The address of a broker that holds two messages of the shop's event topic."""
    name = "".join(each if each.isalnum() else "_" for each in topic.lower())
    monkeypatch.setenv("SHOP_NAME", name)
    (tmp_path / "status_shop.py").write_text(SHOP, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("status_shop")

    async def sell() -> None:
        async with open_transport(broker_address) as transport:
            await transport.ensure_topic(f"{name}.events", queues=1, forever=True)
            for _ in range(2):
                message = Outgoing(topic=f"{name}.events", key="k", body=b"")
                await transport.publish(message)

    asyncio.run(sell())
    yield broker_address
    del sys.modules["status_shop"]


@pytest.fixture
def ask(tmp_path: Path, shop: str) -> Callable[..., tuple[int, str]]:
    environment = {
        "HEADRACE_READ_MODELS": f"sqlite:///{tmp_path / 'read.db'}",
        "HEADRACE_APP": "status_shop:app",
        "HEADRACE_BROKER": shop,
        "TERM": "dumb",
        "COLUMNS": "200",
    }

    def run(*arguments: str) -> tuple[int, str]:
        line = ["projection", "status", *arguments]
        done = CliRunner().invoke(headrace.cli._command_line(), line, env=environment)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.output

    return run


def test_status_shows_the_lag_when_no_runner_works(ask: Any, tmp_path: Path) -> None:
    asyncio.run(upgrade(f"sqlite:///{tmp_path / 'read.db'}"))
    status, said = ask("--json")
    lag = json.loads(said)
    assert (status, lag["messages"], lag["age_ms"] > 0) == (0, 2, True)
    [queue] = lag["queues"]
    assert (queue["next_offset"], queue["end"], queue["messages"]) == (0, 2, 2)
    assert ask()[1].splitlines()[1].split()[:5] == ["sales", "0", "0", "2", "2"]
    assert ask("--behind-max", "86400000")[0] == 0
    assert ask("sales", "--behind-max", "0")[0] == 1


def test_a_projection_whose_group_is_paused_says_so_and_what_to_do(
    ask: Any, tmp_path: Path, shop: str
) -> None:
    asyncio.run(upgrade(f"sqlite:///{tmp_path / 'read.db'}"))
    assert json.loads(ask("--json")[1])["group_paused"] is None
    group = f"{os.environ['SHOP_NAME']}.projection.sales"
    line = ["group", "set", group, "--broker", shop, "--consume", "off"]
    assert CliRunner().invoke(headrace.cli._command_line(), line).exit_code == 0
    assert json.loads(ask("--json")[1])["group_paused"] == group
    told = " ".join(ask()[1].split())
    assert f"live, paused by an operator: headrace group set {group} --consume on" in told


def test_a_newer_version_is_shown_with_how_far_it_is_behind(ask: Any, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'read.db'}"
    asyncio.run(upgrade(url))
    assert json.loads(ask("--json")[1])["other_versions"] == []

    async def build() -> None:
        newer = copy.copy(load_app("status_shop:app").projection("sales"))
        newer.version = 2
        models = ReadModels(url)
        async with models.begin() as connection:
            assert await take_own(connection, newer) == 2
        await models.aclose()

    asyncio.run(build())
    assert json.loads(ask("--json")[1])["other_versions"] == [
        {"generation": 2, "version": 2, "messages": 2, "behind_live": 0, "by_command": False}
    ]
    assert "generation 2 of version 2: is built next to the live one, 0 messages behind it" in (
        " ".join(ask()[1].split())
    )


async def fill_tables(url: str) -> None:
    await upgrade(url)
    models = ReadModels(url)
    await models.ensure(balances)
    async with models.begin() as connection:
        rows = [{"account_id": key, "owner": key} for key in ("ann", "bob")]
        values = [{"balance": 0, "transactions": 0, "closed": False, **row} for row in rows]
        await connection.execute(models.table_for(balances, 1).insert(), values)
    await models.pause("balances")
    await models.aclose()


def test_projections_are_listed_with_rows_versions_and_tables(run: Any, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'read.db'}"
    asyncio.run(fill_tables(url))
    asked = ("projection", "list", "--app", "samples.bank:app", "--read-models", url)
    listed = [json.loads(line) for line in run(*asked, "--json").output.splitlines()]
    shown = {one["projection"]: one for one in listed}
    assert shown["balances"] == {
        "projection": "balances", "generation": 1, "version": 1, "rows": 2, "parked": 0,
        "state": "paused", "generations": [{"generation": 1, "version": 1, "is": "live"}],
    }  # fmt: skip
    assert (shown["statement"]["rows"], shown["statement"]["state"]) == (0, "live")
    table = run(*asked).output.splitlines()
    assert table[0].split() == ["projection", "generation", "version", "rows", "parked", "state"]
    assert ["balances", "1", "1", "2", "0", "paused"] in [line.split() for line in table]


async def build_newer(url: str) -> None:
    """Makes a generation of version 2, and lets the live one be ahead of it."""
    newer = copy.copy(balances)
    newer.version = 2
    models = ReadModels(url)
    await models.resume("balances")
    async with models.begin() as connection:
        assert await take_own(connection, newer) == 2
        live = models.target(balances, 1)
        await write_offsets(connection, live, {("bank.events", 0): 7, ("bank.events", 1): 5})
        built = models.target(newer, 2)
        await write_offsets(connection, built, {("bank.events", 0): 4, ("bank.events", 1): 6})
    await models.aclose()


def test_a_newer_version_is_listed_with_what_the_live_one_has_more_of(
    run: Any, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'read.db'}"
    asyncio.run(fill_tables(url))
    asyncio.run(build_newer(url))
    asked = ("projection", "list", "--app", "samples.bank:app", "--read-models", url)
    listed = [json.loads(line) for line in run(*asked, "--json").output.splitlines()]
    (shown,) = (one for one in listed if one["projection"] == "balances")
    assert shown["generations"][1] == {
        "generation": 2, "version": 2, "is": "being built by services", "behind": 3,
    }  # fmt: skip
    words = " ".join(run(*asked).output.split())
    assert "2 2 - - being built by services, 3 messages behind the live one" in words

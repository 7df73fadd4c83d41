"""`headrace projection list`: each projection with its rows and its tables."""

import asyncio
import copy
import json
from pathlib import Path
from typing import Any

from headrace.projections.tables.contents import write_offsets
from headrace.projections.tables.read_models import ReadModels
from headrace.projections.tables.succession import take_own
from headrace.stores.database.schema import upgrade
from samples.bank.read_models import balances


async def fill(url: str) -> None:
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
    asyncio.run(fill(url))
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
    asyncio.run(fill(url))
    asyncio.run(build_newer(url))
    asked = ("projection", "list", "--app", "samples.bank:app", "--read-models", url)
    listed = [json.loads(line) for line in run(*asked, "--json").output.splitlines()]
    (shown,) = (one for one in listed if one["projection"] == "balances")
    assert shown["generations"][1] == {
        "generation": 2, "version": 2, "is": "being built by services", "behind": 3,
    }  # fmt: skip
    words = " ".join(run(*asked).output.split())
    assert "2 2 - - being built by services, 3 messages behind the live one" in words

"""`headrace projection list`: each projection with its rows and its tables."""

import asyncio
import json
from pathlib import Path
from typing import Any

from headrace.projections.tables.read_models import ReadModels
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
        "state": "paused", "generations": [
            {"generation": 1, "version": 1, "is": "live", "followed": False, "behind": 0}
        ],
    }  # fmt: skip
    assert (shown["statement"]["rows"], shown["statement"]["state"]) == (0, "live")
    table = run(*asked).output.splitlines()
    assert table[0].split() == ["projection", "generation", "version", "rows", "parked", "state"]
    assert ["balances", "1", "1", "2", "0", "paused"] in [line.split() for line in table]

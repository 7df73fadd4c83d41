"""What there is of each projection: rows, generations and what they are for."""

from typing import Any

import pytest

from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.owner import new_owner
from headrace.watch.overview import projection_rows
from samples.bank.read_models import balances


@pytest.fixture
async def models(tmp_path: Any, give_schema: Any) -> Any:
    url = f"sqlite:///{tmp_path}/read.db"
    await give_schema(url)
    models = ReadModels(url)
    yield models
    await models.aclose()


async def test_a_projection_tells_its_tables_and_that_it_is_paused(models: ReadModels) -> None:
    (row,) = await projection_rows({"balances": balances}, models)
    assert (row["projection"], row["rows"], row["parked"], row["state"]) == (
        "balances",
        0,
        0,
        "live",
    )
    assert [each["is"] for each in row["generations"]] == ["live"]
    await models.reset(balances, new_owner())
    await models.pause("balances")
    (row,) = await projection_rows({"balances": balances}, models)
    assert row["state"] == "paused"
    assert [each["is"] for each in row["generations"]] == ["previous", "live"]

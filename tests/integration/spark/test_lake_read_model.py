"""A read model in the lake equals the live one, row for row, over increments and killed runs."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from headrace.errors import ProjectionError
from headrace.spark.lake.delta import LakeTable
from headrace.spark.lake.read_model import write_read_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

APP = "ledger_app:app"


class Killed(Exception):
    """Stands for the end of a process: nothing handles it."""


async def test_rows_are_those_of_the_live_read_model_also_after_a_run_that_ended_in_between(
    spark: Any, broker: Any, ledger: Any, make_history: Any, publish: Any, catch_up_live: Any,
    rows_of: Any, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    history, later, latest = (make_history(20, 4, first=n, seed=n) for n in (1, 5, 9))
    projections = {"accounts": ledger.accounts, "partners": ledger.partners}

    async def write(name: str) -> Any:
        return await asyncio.to_thread(
            write_read_model, spark, APP, name, str(tmp_path / name), broker=broker.address
        )

    async def same() -> None:
        for name, projection in projections.items():
            await catch_up_live(sqlite_url, projection)
            live = await rows_of(sqlite_url, projection)
            found = DeltaTable(str(tmp_path / name)).to_pyarrow_table().to_pylist()
            rows = [projection.shape.load(values) for values in found]
            assert len(rows) == len(live)
            assert {getattr(row, projection.key): row for row in rows} == live

    await publish(history)
    for name in projections:
        first = await write(name)
        assert (first.messages, first.start) == (len(history), {0: 0, 1: 0, 2: 0})
    await same()

    # Duplicates, deleted rows and new versions; the first run for each ends between its two tables.
    await publish([*history[3:9], *later])
    merge = LakeTable.merge
    for name in projections:

        def fail(table: LakeTable, *arguments: Any) -> None:
            if not table.uri.endswith("_versions"):
                raise Killed
            merge(table, *arguments)

        with monkeypatch.context() as patch:
            patch.setattr(LakeTable, "merge", fail)
            with pytest.raises(Killed):
                await write(name)
        await publish(latest[: len(latest) // 2] if name == "accounts" else [])
        second = await write(name)
        assert second.start == first.end
        assert second.deleted or name == "partners"
    await publish(latest[len(latest) // 2 :])
    for name in projections:
        await write(name)
        assert (await write(name)).messages == 0
    await same()


async def test_a_table_of_other_columns_and_a_job_that_comes_second_are_refused(
    spark: Any, broker: Any, ledger: Any, make_history: Any, publish: Any, tmp_path: Path
) -> None:
    await publish(make_history(3, 2))
    arguments = (spark, APP, "accounts", str(tmp_path / "rows"))
    write_read_model(*arguments, broker=broker.address)
    with pytest.raises(ProjectionError, match="not those of the rows of partners now"):
        write_read_model(spark, APP, "partners", str(tmp_path / "rows"), broker=broker.address)
    one, other = (LakeTable(str(tmp_path / "rows")) for _ in range(2))
    one.add_files([], ("ledger.events", ""), {0: 1_000})
    with pytest.raises(ProjectionError, match="another job has written into it meanwhile"):
        other.add_files([], ("ledger.events", ""), {0: 2_000})
    with pytest.raises(ProjectionError, match=r"deleted and made again, .* into an empty folder"):
        write_read_model(*arguments, broker=broker.address)

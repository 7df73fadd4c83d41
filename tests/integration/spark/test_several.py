"""Several projections rebuilt in one pass through real Spark equal the live rows, each by itself."""

from typing import Any

import pytest

from headrace.errors import RebuildRunning
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.report import RebuildReport
from headrace.rebuild.shadow import Building
from headrace.spark.rebuild import rebuild_together

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

APP = "ledger_app:app"
NAMES = ["accounts", "partners", "counts"]


async def test_each_equals_live_and_is_switched(
    rows_of: Any, spark: Any, broker: Any, ledger: Any, make_history: Any, publish: Any,
    catch_up_live: Any, read_models_url: str,
) -> None:  # fmt: skip
    history = make_history(40, 12)
    again = [one for one in history[100:200] if one.version is not None]
    await publish([*history, *again])
    live = {}
    for name in NAMES:
        await catch_up_live(read_models_url, ledger.app.projections[name])
        live[name] = await rows_of(read_models_url, ledger.app.projections[name])
    said: list[tuple[str, str, int]] = []
    outcomes = await rebuild_together(
        APP, NAMES, broker=broker.address, read_models_url=read_models_url, spark=spark,
        report=lambda name, phase, ahead: said.append((name, phase, ahead)),
    )  # fmt: skip
    assert list(outcomes) == NAMES
    for name, report in outcomes.items():
        assert isinstance(report, RebuildReport), report
        assert (report.switched, report.reason, report.mismatches) == (True, "", 0)
        assert report.rows == report.compared == len(live[name]) > 5
        assert report.events == sum(len(one.events) for one in history)
        assert report.duplicates == len(again)
        assert sum(report.end_offsets.values()) == len(history) + len(again)
        assert await rows_of(read_models_url, ledger.app.projections[name]) == live[name]
    # Those with a row per account are ready before the first of them folds; the other one follows.
    phases = [(name, phase) for name, phase, _ in said if phase in {"capture", "fold"}]
    assert [phase for _, phase in phases] == [
        "capture",
        "capture",
        "fold",
        "fold",
        "capture",
        "fold",
    ]
    assert [name for name, _ in phases[4:]] == ["partners", "partners"]


async def test_a_projection_that_cannot_begin_ends_no_other(
    spark: Any, broker: Any, ledger: Any, make_history: Any, publish: Any, catch_up_live: Any,
    postgres_database: str,
) -> None:  # fmt: skip
    url = postgres_database
    await publish(make_history(20, 4))
    for name in NAMES:
        await catch_up_live(url, ledger.app.projections[name])
    read_models = ReadModels(url)
    await Building(read_models, ledger.app.projections["accounts"]).begin(take_over=False)
    outcomes = await rebuild_together(
        APP, NAMES, broker=broker.address, read_models_url=url, spark=spark
    )
    assert isinstance(outcomes["accounts"], RebuildRunning)
    for name in NAMES[1:]:
        report = outcomes[name]
        assert isinstance(report, RebuildReport), report
        assert report.switched
    await read_models.aclose()

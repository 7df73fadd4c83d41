"""Exported events are whole after a kill, Spark reads them, and a rebuild from them equals another."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.spark.analysis.export import export_events
from headrace.spark.archive import exported_parts
from headrace.spark.rebuild import rebuild

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

APP = "ledger_app:app"

# Killed when everything is written and nothing is renamed yet.
KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[3])
from headrace.spark.analysis import export
export.finish_part = lambda place, part: os.kill(os.getpid(), signal.SIGKILL)
export.export_events("ledger_app:app", sys.argv[2], broker=sys.argv[1])
"""


async def test_a_killed_export_leaves_nothing_and_rebuilds_from_files_equal_those_from_the_broker(
    spark: Any, broker: Any, ledger: Any, make_history: Any, publish: Any, catch_up_live: Any,
    sqlite_url: str, tmp_path: Path,
) -> None:  # fmt: skip
    history, later, tail = (make_history(20, 4, first=first, seed=first) for first in (1, 5, 9))
    folder = tmp_path / "out"
    await publish(history)
    killed = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", KILLED, broker.address, str(folder), str(Path(__file__).parent)],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert killed.returncode == -9, killed.stderr
    assert (folder / ".writing" / "messages").is_dir()
    assert exported_parts(folder) == []
    first = export_events(APP, folder, broker=broker.address)
    assert (first.number, first.messages) == (1, len(history))
    await publish([*history[3:9], *later])
    second = export_events(APP, folder, broker=broker.address)
    assert (second.number, second.messages) == (2, 6 + len(later))

    booked = spark.read.parquet(f"{folder}/export-*/events/Booked")
    told = booked.selectExpr(
        "context.aggregate_id", "context.version", "context.sequence", "amount"
    )
    expected = [
        (context.aggregate_id, context.version, context.sequence, event.amount)
        for one in (*history, *later)
        for event, context in one.contexts()
        if isinstance(event, ledger.Booked)
    ]
    assert sorted(map(tuple, told.collect())) == sorted(expected)
    assert first.events["Booked"] + second.events["Booked"] == len(expected)

    await publish(tail)
    await catch_up_live(sqlite_url, ledger.accounts)
    await catch_up_live(sqlite_url, ledger.partners)
    for name in ("accounts", "partners"):
        report = await rebuild(
            APP, name, broker=broker.address, read_models_url=sqlite_url, spark=spark, export=folder
        )
        assert (report.switched, report.mismatches, report.compared) == (True, 0, report.rows)
        assert report.archived == first.messages + second.messages
        assert report.events == sum(len(one.events) for one in (*history, *later, *tail))
        assert sum(each["messages"] for each in report.queues.values()) > 0

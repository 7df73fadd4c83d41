"""Events in the lake: each once, over increments, duplicates and a killed driver; files are whole."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from headrace.errors import ProjectionError
from headrace.spark.lake.delta import LakeTable
from headrace.spark.lake.events import lake_events, write_events
from headrace.spark.lake.read_model import write_read_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

APP = "ledger_app:app"


class Killed(Exception):
    """Stands for the end of a process: nothing handles it."""


def expected(ledger: Any, history: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Returns every event as the tests look at it."""
    return sorted(
        (
            context.aggregate_id, context.version, context.sequence, type(event).__name__,
            context.recorded_at.date(), getattr(event, "amount", None), getattr(event, "text", None),
        )
        for one in history
        if one.version is not None
        for event, context in one.contexts()
    )  # fmt: skip


def found_in(folder: Path, pattern: str) -> list[Path]:
    return list(folder.glob(pattern))


def told(frame: Any) -> list[tuple[Any, ...]]:
    """Returns every event that a frame has, in the same form."""
    rows = frame.selectExpr(
        "context.aggregate_id", "context.version", "context.sequence", "event_type", "day",
        "Booked.amount", "Noted.text",
    )  # fmt: skip
    return sorted(map(tuple, rows.collect()), key=lambda row: row[:3])


def told_delta(path: Path) -> list[tuple[Any, ...]]:
    """Returns every event that a Delta table has, read without Spark, in the same form."""
    rows = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return sorted(
        (
            row["context"]["aggregate_id"], row["context"]["version"], row["context"]["sequence"],
            row["event_type"], row["day"], (row["Booked"] or {}).get("amount"),
            (row["Noted"] or {}).get("text"),
        )
        for row in rows
    )  # fmt: skip


async def test_each_event_is_in_both_formats_once_also_when_runs_fail_in_between(
    spark: Any, broker: Any, ledger: Any, make_history: Any, publish: Any, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    history, later = (make_history(12, 4, first=first, seed=first) for first in (1, 5))
    parquet, delta = tmp_path / "parquet", tmp_path / "delta"

    def write(form: Any) -> Any:
        path = {"parquet": parquet.as_uri(), "delta": str(delta)}[form]
        return asyncio.to_thread(write_events, spark, APP, path, broker=broker.address, format=form)

    await publish(history)
    first = await write("parquet")
    assert first.messages == len(history)
    assert await write("delta") == first
    assert told(lake_events(spark, str(parquet))) == expected(ledger, history)
    assert told_delta(delta) == expected(ledger, history)

    # Streams that earlier runs have, again, and new ones.
    await publish([*history[3:30], *later])
    with monkeypatch.context() as patch:

        def fail(*_: object) -> None:
            raise Killed

        patch.setattr(LakeTable, "add_files", fail)
        with pytest.raises(Killed):
            await write("delta")
    assert told_delta(delta) == expected(ledger, history)
    second = await write("delta")
    assert second.start == first.end
    assert await write("parquet") == second
    whole = expected(ledger, [*history, *later])
    assert told(lake_events(spark, str(parquet))) == whole
    assert told_delta(delta) == whole
    # What reads folders sees the same.
    assert told(spark.read.option("mergeSchema", "true").parquet(str(parquet))) == whole
    assert (await write("parquet")).messages == (await write("delta")).messages == 0
    days = {row[4] for row in whole}
    folders = {path.name for path in found_in(parquet, "export=000002/event_type=Booked/*")}
    assert folders <= {f"day={day}" for day in days}
    assert date(2026, 1, 31) in days


# Three jobs at once, each killed where everything is written and nothing is to be seen yet: a part before
# its name, a Delta table before its entry, a read model between its two tables.
KILLED = """
import os, signal, sys, threading
broker, folder, tests = sys.argv[1:]
sys.path.insert(0, tests)
from headrace.spark import local_session
from headrace.spark.lake.delta import LakeTable
from headrace.spark.lake.events import write_events
from headrace.spark.lake.hadoop import HadoopFolder
from headrace.spark.lake.read_model import write_read_model
ready, for_ever = threading.Barrier(4), threading.Event()
def stop(*_):
    ready.wait(300)
    for_ever.wait()
merge = LakeTable.merge
def merge_versions(table, *arguments):
    if not table.uri.endswith("_versions"):
        stop()
    merge(table, *arguments)
HadoopFolder.rename, LakeTable.add_files, LakeTable.merge = stop, stop, merge_versions
spark = local_session("killed", cores=2, driver_memory="600m")
known = dict(broker=broker)
for work in (
    lambda: write_events(spark, "ledger_app:app", folder + "/parquet", **known),
    lambda: write_events(spark, "ledger_app:app", folder + "/delta", format="delta", **known),
    lambda: write_read_model(spark, "ledger_app:app", "accounts", folder + "/rows", **known),
):
    threading.Thread(target=work, daemon=True).start()
ready.wait(300)
os.kill(os.getpid(), signal.SIGKILL)
"""
# Java without its second compiler, which a process that lives for seconds gains nothing from.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


async def test_a_killed_driver_leaves_nothing_to_be_seen_and_the_next_one_writes_all_of_it_once(
    spark: Any, broker: Any, ledger: Any, make_history: Any, publish: Any, catch_up_live: Any,
    rows_of: Any, sqlite_url: str, tmp_path: Path,
) -> None:  # fmt: skip
    history = make_history(6, 4)
    await publish(history)
    killed = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", KILLED, broker.address, tmp_path, Path(__file__).parent],
        capture_output=True, text=True, timeout=400, check=False,
        env=os.environ | {"JAVA_TOOL_OPTIONS": QUICK_JAVA},
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert found_in(tmp_path, "parquet/_writing-*/event_type=Booked/day=*/*.parquet")
    assert found_in(tmp_path, "delta/data-*/event_type=Booked/day=*/*.parquet")
    assert DeltaTable(str(tmp_path / "rows" / "_versions")).version() > 0
    with pytest.raises(ProjectionError, match="holds no events"):
        lake_events(spark, str(tmp_path / "parquet"))

    write_events(spark, APP, str(tmp_path / "parquet"), broker=broker.address)
    write_events(spark, APP, str(tmp_path / "delta"), broker=broker.address, format="delta")
    write_read_model(spark, APP, "accounts", str(tmp_path / "rows"), broker=broker.address)
    whole = expected(ledger, history)
    assert told(lake_events(spark, str(tmp_path / "parquet"))) == whole
    assert told_delta(tmp_path / "delta") == whole
    await catch_up_live(sqlite_url, ledger.accounts)
    found = DeltaTable(str(tmp_path / "rows")).to_pyarrow_table().to_pylist()
    rows = {values["account_id"]: ledger.accounts.shape.load(values) for values in found}
    assert rows == await rows_of(sqlite_url, ledger.accounts)


async def test_rejections_are_read_and_leave_nothing(
    spark: Any, broker: Any, ledger: Any, make_stream: Any, publish: Any, tmp_path: Path
) -> None:
    parquet, delta = str(tmp_path / "parquet"), str(tmp_path / "delta")
    await publish([make_stream("a", None)])
    for _ in range(2):
        first = write_events(spark, APP, parquet, broker=broker.address)
        assert write_events(spark, APP, delta, broker=broker.address, format="delta") == first
    assert first.messages == 0
    with pytest.raises(ProjectionError, match="holds no events"):
        lake_events(spark, parquet)
    await publish([make_stream("a", 1, ledger.Noted(text="first"))])
    write_events(spark, APP, parquet, broker=broker.address)
    write_events(spark, APP, delta, broker=broker.address, format="delta")
    assert len(told_delta(tmp_path / "delta")) == len(told(lake_events(spark, parquet))) == 1


async def test_a_wrong_format_column_or_folder_is_said_in_a_sentence(
    spark: Any, broker: Any, ledger: Any, make_history: Any, publish: Any, tmp_path: Path
) -> None:
    await publish(make_history(2, 1))
    path = str(tmp_path / "lake")
    with pytest.raises(ProjectionError, match="cannot divide events by month"):
        write_events(spark, APP, path, broker=broker.address, partition_by=["month"])
    with pytest.raises(ProjectionError, match="there is no format csv; use 'parquet' or 'delta'"):
        write_events(spark, APP, path, broker=broker.address, format="csv")  # type: ignore[arg-type]  # a mistake
    write_events(spark, APP, path, broker=broker.address, partition_by=[])
    [manifest] = found_in(Path(path), "export=*/_part.json")
    manifest.with_name("._part.json.crc").unlink()
    manifest.write_text(manifest.read_text().replace("ledger.events", "other.events"))
    with pytest.raises(ProjectionError, match=r"holds events of .*, not of ledger"):
        write_events(spark, APP, path, broker=broker.address)
    manifest.write_text("{")
    with pytest.raises(ProjectionError, match="export=000001 is no part"):
        lake_events(spark, path)
    with pytest.raises(ProjectionError, match=r"nowhere://lake/events cannot be opened: .*nowhere"):
        lake_events(spark, "nowhere://lake/events")
    # A part that is not whole: no reader sees it, and the next run replaces it.
    manifest.unlink()
    with pytest.raises(ProjectionError, match="holds no events"):
        lake_events(spark, path)
    assert write_events(spark, APP, path, broker=broker.address).messages == 2
    assert lake_events(spark, path).count() == len(expected(ledger, make_history(2, 1)))

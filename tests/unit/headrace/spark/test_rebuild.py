"""A rebuild as it is asked for, with Spark and the broker replaced, and everything else real."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import DefinitionError, ProjectionNotFound, RebuildRunning
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.shadow import Building
from headrace.spark import session
from headrace.spark.driver.load import Loading
from headrace.spark.rebuild import rebuild

BROKER = "127.0.0.1:1"


class SteppingClock:
    """Each look at it is a second later."""

    def __init__(self) -> None:
        self._now_ms = 0

    def monotonic_ms(self) -> int:
        self._now_ms += 1_000
        return self._now_ms

    def now(self) -> Any:
        raise AssertionError("a rebuild measures only durations with this clock")


async def test_phases_are_announced_measured_and_reported(
    ledger: Any, live: Any, spark: Any
) -> None:
    announced: list[tuple[str, int]] = []
    report = await rebuild(
        ledger.path, "accounts", broker=live.broker, read_models_url=live.url, spark=spark,
        verify=False, report=lambda phase, ahead: announced.append((phase, ahead)),
        clock=SteppingClock(),
    )  # fmt: skip
    passed = [each for each in announced if each[0].endswith(" folded")]
    assert sorted(name for name, _ in passed) == sorted(
        f"{queue} folded" for queue in report.end_offsets
    )
    assert passed[-1][1] == 0
    announced = [each for each in announced if each not in passed]
    assert announced == [("begin", 0), ("capture", 0), ("fold", 4), ("load", 2), ("switch", 0)]
    phases = ("begin", "capture", "fold", "load", "switch")
    assert report.seconds == dict.fromkeys(phases, 1.0) | {"total": 5.0}
    assert (report.events, report.events_per_second, report.rows) == (3, 3.0, 2)
    assert (report.switched, report.table) == (True, "accounts__2")
    assert sum(report.end_offsets.values()) == 4


async def test_without_a_session_one_is_started_for_the_rebuild_and_stopped(
    ledger: Any, live: Any, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[bool] = []
    monkeypatch.setattr(spark, "stop", lambda: stopped.append(True), raising=False)
    monkeypatch.setattr(session, "local_session", lambda: spark)
    monkeypatch.setattr(session, "SparkSession", SimpleNamespace(getActiveSession=lambda: None))
    report = await rebuild(
        ledger.path, "accounts", broker=live.broker, read_models_url=live.url, verify=False,
        clock=SteppingClock(),
    )  # fmt: skip
    assert report.switched
    assert stopped == [True]
    # The session interrupts the phase `begin`, which takes two steps of the clock.
    assert (report.seconds["session"], report.seconds["begin"]) == (1.0, 2.0)
    assert report.seconds["total"] == 6.0


async def test_a_session_that_is_there_already_is_used_and_left_alone(
    ledger: Any, live: Any, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "SparkSession", SimpleNamespace(getActiveSession=lambda: spark))
    report = await rebuild(
        ledger.path, "accounts", broker=live.broker, read_models_url=live.url, verify=False
    )
    assert report.switched


async def test_a_failure_anywhere_drops_the_shadow(
    ledger: Any, live: Any, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await live.read_models.state("accounts")

    async def fail(*_of: object) -> None:
        raise OSError("the database is gone")

    monkeypatch.setattr(Loading, "load", fail)
    with pytest.raises(OSError, match="the database is gone"):
        await rebuild(
            ledger.path, "accounts", broker=live.broker, read_models_url=live.url, spark=spark
        )
    assert await live.read_models.state("accounts") == before
    with pytest.raises(Exception, match="accounts__2"):
        await live.read_models.reader(ledger.accounts, generation=2).count()


async def test_a_failure_that_keeps_the_shadow_from_being_dropped_does_not_hide_the_first(
    ledger: Any, live: Any, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_of: object) -> None:
        raise OSError("the database is gone")

    monkeypatch.setattr(Loading, "load", fail)
    monkeypatch.setattr(ReadModels, "abandon_shadow", fail)
    with pytest.raises(OSError, match="the database is gone"):
        await rebuild(
            ledger.path, "accounts", broker=live.broker, read_models_url=live.url, spark=spark
        )


async def test_a_rebuild_under_way_is_in_the_way_until_its_lock_is_free(
    ledger: Any, live: Any, spark: Any
) -> None:
    other = ReadModels(live.url)
    owner = (await Building(other, ledger.accounts).begin(take_over=False)).owner
    with pytest.raises(RebuildRunning, match=f"{owner} has been rebuilding it since"):
        await rebuild(
            ledger.path, "accounts", broker=live.broker, read_models_url=live.url, spark=spark
        )
    await other.aclose()
    report = await rebuild(
        ledger.path,
        "accounts",
        broker=live.broker,
        read_models_url=live.url,
        spark=spark,
        verify=False,
    )
    assert report.switched


async def test_unknown_names_are_refused_before_anything_starts(
    ledger: Any, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'read.db'}"
    with pytest.raises(ProjectionNotFound, match="has no projection 'nothing'"):
        await rebuild(ledger.path, "nothing", broker=BROKER, read_models_url=url)
    with pytest.raises(DefinitionError, match="no module 'no_such_app'"):
        await rebuild("no_such_app:app", "accounts", broker=BROKER, read_models_url=url)


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow", "pandas"])
def test_without_the_extra_the_import_names_the_command(missing: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; import headrace.spark"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "ExtraMissing: rebuilding with Spark needs" in done.stderr
    assert "pip install 'headrace[spark]'" in done.stderr

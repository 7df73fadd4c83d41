"""A rebuild whole, with Spark and the broker replaced, and everything else real."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import DefinitionError, ProjectionError, ProjectionNotFound, RebuildRunning
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.local.partial_rebuild import Wanted
from headrace.rebuild.shadow import Building
from headrace.spark import rebuild as rebuild_module
from headrace.spark import session
from headrace.spark.load import Loading
from headrace.spark.rebuild import rebuild
from headrace_mq.errors import ConnectionLost
from headrace_mq.protocol.bodies import QueueRange

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


@pytest.fixture
async def live(
    ledger: Any, topic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[SimpleNamespace]:
    """A topic with three bookings, and a live generation that has never run."""

    def ranges(address: str, topics: list[str]) -> list[QueueRange]:
        assert (address, topics) == (BROKER, ["ledger.events"])
        return [
            QueueRange("ledger.events", queue, 0, len(messages))
            for queue, messages in topic.bodies.items()
        ]

    monkeypatch.setattr(rebuild_module, "fetch_ranges", ranges)
    url = f"sqlite:///{tmp_path / 'read.db'}"
    read_models = ReadModels(url)
    await read_models.ensure(ledger.accounts)
    topic.publish(
        *(ledger.stream("a", version, ledger.Booked(partner="p", amount=1)) for version in (1, 2)),
        ledger.stream("b", 1, ledger.Booked(partner="p", amount=1)),
        ledger.rejection("b"),
    )
    yield SimpleNamespace(url=url, read_models=read_models)
    await read_models.aclose()


async def test_phases_are_announced_measured_and_reported(
    ledger: Any, live: Any, spark: Any
) -> None:
    announced: list[tuple[str, int]] = []
    report = await rebuild(
        ledger.path, "accounts", broker=BROKER, read_models_url=live.url, spark=spark,
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


async def test_a_topic_whose_queues_were_added_is_rebuilt_with_exact_counts(
    ledger: Any, live: Any, topic: Any, spark: Any
) -> None:
    # Versions of one aggregate in both queues, one of them twice.
    streams = [ledger.stream("m", v, ledger.Booked(partner="p", amount=v)) for v in range(1, 7)]
    topic.publish(*streams[:4], queue=0)
    topic.publish(streams[3], *streams[4:], queue=1)
    topic.settled = False
    announced: list[tuple[str, int]] = []
    report = await rebuild(
        ledger.path, "accounts", broker=BROKER, read_models_url=live.url, spark=spark,
        verify=False, report=lambda phase, ahead: announced.append((phase, ahead)),
    )  # fmt: skip
    assert (report.switched, report.tasks) == (True, 2)
    assert (report.events, report.duplicates, report.filled) == (9, 1, 0)
    passed = [each for each in announced if each[0].endswith(" folded")]
    assert sorted(name for name, _ in passed) == sorted(
        f"{queue} folded" for queue in report.end_offsets
    )
    assert report.queues["ledger.events/0"]["messages"] >= 4
    # Nothing else says that an aggregate may stand in two queues.
    topic.settled = True
    with pytest.raises(ProjectionError, match="m versions 1 to 3"):
        await rebuild(
            ledger.path, "accounts", broker=BROKER, read_models_url=live.url, spark=spark,
            verify=False,
        )  # fmt: skip


async def test_without_a_session_one_is_started_for_the_rebuild_and_stopped(
    ledger: Any, live: Any, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[bool] = []
    monkeypatch.setattr(spark, "stop", lambda: stopped.append(True), raising=False)
    monkeypatch.setattr(session, "local_session", lambda: spark)
    monkeypatch.setattr(session, "SparkSession", SimpleNamespace(getActiveSession=lambda: None))
    report = await rebuild(
        ledger.path, "accounts", broker=BROKER, read_models_url=live.url, verify=False,
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
        ledger.path, "accounts", broker=BROKER, read_models_url=live.url, verify=False
    )
    assert report.switched


@pytest.mark.parametrize(("name", "key"), [("accounts", "a"), ("partners", "p")])
async def test_rows_of_keys_are_folded_anew_among_live_ones(
    name: str, key: str, ledger: Any, live: Any, spark: Any, topic: Any
) -> None:
    projection = ledger.app.projection(name)
    given: dict[str, Any] = {"broker": BROKER, "read_models_url": live.url, "spark": spark}
    topic.publish(ledger.stream("c", 1, ledger.Booked(partner="q", amount=5)))
    assert (await rebuild(ledger.path, name, verify=False, **given)).switched
    table = live.read_models.table_for(projection, 2)
    async with live.read_models.begin() as connection:
        damaged = {field: -1 for field in ("balance", "total") if field in table.c}
        await connection.execute(table.update().values(damaged))
    topic.publish(ledger.stream("d", 1, ledger.Booked(partner="q", amount=5)))
    report = await rebuild(
        ledger.path, name, wanted=Wanted(keys=frozenset({key, "nobody"})), **given
    )
    assert (report.switched, report.start, report.keys, report.mended) == (True, "keys", 2, 1)
    assert (report.mismatches, report.rows, report.caught_up) == (0, 1, 0)
    whole = await rebuild(ledger.path, name, verify=True, switch=False, live_wait_ms=0, **given)
    assert "the live generation is behind the rebuilt one" in whole.reason
    rows = live.read_models.reader(projection).rows()
    found = {getattr(row, projection.key): row async for row in rows}
    rows = live.read_models.reader(projection, generation=whole.generation).rows()
    right = {getattr(row, projection.key): row async for row in rows}
    assert found[key] == right[key]
    assert found.keys() | {"d"} == right.keys() | {"d"}
    assert all(found[other] != right[other] for other in found.keys() - {key})


async def test_the_row_of_a_stream_that_does_not_decode_stays_and_others_are_folded_anew(
    ledger: Any, live: Any, spark: Any, topic: Any
) -> None:
    given: dict[str, Any] = {"broker": BROKER, "read_models_url": live.url, "spark": spark}
    for name in ("accounts", "partners"):
        assert (await rebuild(ledger.path, name, verify=False, **given)).switched
    table = live.read_models.table_for(ledger.accounts, 2)
    async with live.read_models.begin() as connection:
        await connection.execute(table.update().values(balance=-1))
    for messages in topic.bodies.values():
        for place, (key, headers, body) in enumerate(messages):
            if key == "a" and b'"version":2' in body:
                messages[place] = (key, headers, body.replace(b'"amount"', b'"lost"'))
    report = await rebuild(ledger.path, "accounts", wanted=Wanted(keys=frozenset("ab")), **given)
    assert (report.switched, report.mended) == (True, 1)
    (sentence,) = report.left_out
    assert "(aggregate a) does not decode" in sentence
    rows = live.read_models.reader(ledger.accounts).rows()
    assert {row.account_id: row.balance async for row in rows} == {"a": -1, "b": 1}
    with pytest.raises(ProjectionError, match=r"nothing tells .* \(aggregate a\) does not"):
        await rebuild(ledger.path, "partners", wanted=Wanted(keys=frozenset("p")), **given)


async def test_a_failure_anywhere_drops_the_shadow(
    ledger: Any, live: Any, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await live.read_models.state("accounts")

    async def fail(*_of: object) -> None:
        raise OSError("the database is gone")

    monkeypatch.setattr(Loading, "load", fail)
    with pytest.raises(OSError, match="the database is gone"):
        await rebuild(ledger.path, "accounts", broker=BROKER, read_models_url=live.url, spark=spark)
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
        await rebuild(ledger.path, "accounts", broker=BROKER, read_models_url=live.url, spark=spark)


async def test_a_rebuild_under_way_is_in_the_way_until_its_lock_is_free(
    ledger: Any, live: Any, spark: Any
) -> None:
    other = ReadModels(live.url)
    owner = (await Building(other, ledger.accounts).begin(take_over=False)).owner
    with pytest.raises(RebuildRunning, match=f"{owner} has been rebuilding it since"):
        await rebuild(ledger.path, "accounts", broker=BROKER, read_models_url=live.url, spark=spark)
    await other.aclose()
    report = await rebuild(
        ledger.path, "accounts", broker=BROKER, read_models_url=live.url, spark=spark, verify=False
    )
    assert report.switched


async def test_a_cancelled_rebuild_ends_its_spark_jobs(
    ledger: Any, live: Any, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folding, interrupted = asyncio.Event(), []
    loop = asyncio.get_running_loop()
    ended = threading.Event()

    def fold_for_long(*_of: object, **__: object) -> None:
        loop.call_soon_threadsafe(folding.set)
        assert ended.wait(30)
        raise RuntimeError("the job was interrupted")

    def interrupt(tag: str) -> None:
        interrupted.append(tag)
        ended.set()

    monkeypatch.setattr(rebuild_module, "run_fold", fold_for_long)
    monkeypatch.setattr(spark, "interruptTag", interrupt, raising=False)
    running = asyncio.create_task(
        rebuild(ledger.path, "accounts", broker=BROKER, read_models_url=live.url, spark=spark)
    )
    await folding.wait()
    owner = (await live.read_models.state("accounts")).rebuild_owner
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert interrupted == [owner]
    assert (await live.read_models.state("accounts")).rebuild_owner is None


async def test_a_broker_that_is_not_there_is_a_projection_error(
    ledger: Any, live: Any, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_of: object) -> None:
        raise ConnectionLost("no broker answers at 127.0.0.1:1")

    monkeypatch.setattr(rebuild_module, "fetch_ranges", unreachable)
    with pytest.raises(ProjectionError, match="accounts: no broker answers at 127"):
        await rebuild(ledger.path, "accounts", broker=BROKER, read_models_url=live.url, spark=spark)


async def test_a_few_events_move_no_row_through_spark(
    ledger: Any, live: Any, topic: Any, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rebuild(
        ledger.path, "accounts", broker=BROKER, read_models_url=live.url, spark=spark, verify=False
    )

    def moved(*_of: object) -> None:
        raise AssertionError("no frame is needed")

    for name in ("range", "createDataFrame"):
        monkeypatch.setattr(type(spark), name, moved)
    topic.publish(
        ledger.stream("b", 2, ledger.Booked(partner="p", amount=10)),
        ledger.stream("c", 1, ledger.Booked(partner="p", amount=100)),
    )
    phases: list[tuple[str, int]] = []
    report = await rebuild(
        ledger.path, "accounts", broker=BROKER, read_models_url=live.url, spark=spark,
        start="offsets", verify=False, report=lambda *of: phases.append(of),
    )  # fmt: skip
    assert (report.start, report.events, report.rows, report.switched) == ("offsets", 2, 3, True)
    assert ("fold", 2) in phases
    rows = [row async for row in live.read_models.reader(ledger.accounts, generation=3).rows()]
    assert sorted((row.account_id, row.balance) for row in rows) == [
        ("a", 4),
        ("b", 13),
        ("c", 100),
    ]


async def test_an_increment_that_fails_leaves_nothing_behind(
    ledger: Any, live: Any, topic: Any, spark: Any
) -> None:
    await rebuild(
        ledger.path, "accounts", broker=BROKER, read_models_url=live.url, spark=spark, verify=False
    )
    topic.publish(ledger.stream("b", 4, ledger.Booked(partner="p", amount=10)))
    with pytest.raises(ProjectionError, match="versions 2 to 3 of aggregate b"):
        await rebuild(
            ledger.path, "accounts", broker=BROKER, read_models_url=live.url, spark=spark,
            start="offsets", verify=False,
        )  # fmt: skip
    assert (await live.read_models.state("accounts")).rebuild_generation is None


async def test_live_offsets_beyond_the_topic_are_refused(
    ledger: Any, live: Any, topic: Any, spark: Any
) -> None:
    await rebuild(
        ledger.path, "accounts", broker=BROKER, read_models_url=live.url, spark=spark, verify=False
    )
    for messages in topic.bodies.values():
        messages.clear()
    with pytest.raises(ProjectionError, match="startingOffsets asks for offset"):
        await rebuild(
            ledger.path, "accounts", broker=BROKER, read_models_url=live.url, spark=spark,
            start="offsets",
        )  # fmt: skip


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


@pytest.mark.parametrize(
    ("name", "least", "used"),
    [("partners", 4, True), ("partners", 5, False), ("accounts", 4, False)],
)
async def test_only_many_messages_for_rows_of_any_key_are_worth_a_query(
    ledger: Any, live: Any, spark: Any, monkeypatch: Any, name: str, least: int, used: bool
) -> None:
    as_sql = SimpleNamespace(files=None)
    given: list[object] = []
    run_fold = rebuild_module.run_fold

    def watched(*arguments: Any, native: Any, **named: Any) -> Any:
        given.append(native)
        return run_fold(*arguments, **named)

    monkeypatch.setattr(rebuild_module, "plan_native", lambda *of: as_sql)
    monkeypatch.setattr(rebuild_module, "run_fold", watched)
    monkeypatch.setattr(rebuild_module, "_NATIVE_MESSAGES_MIN", least)
    await rebuild(
        ledger.path, name, broker=BROKER, read_models_url=live.url, spark=spark, verify=False
    )
    assert given == [as_sql if used else None]

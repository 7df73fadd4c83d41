"""A rebuild through real Spark, from a real broker, into real databases, equals the live rows."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, update
from sqlalchemy.exc import OperationalError

from headrace.errors import ProjectionError, RebuildRunning
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.check import drop_built
from headrace.rebuild.local.partial_rebuild import Wanted
from headrace.spark.driver import all_rows
from headrace.spark.rebuild import rebuild
from headrace.stores.database.parked import new_row
from headrace.stores.database.tables import parked_rows
from headrace.stores.open import open_event_store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

APP = "ledger_app:app"


async def change_live(url: str, projection: Any, key: str, **values: Any) -> None:
    """Writes into the live table what no fold made."""
    read_models = ReadModels(url)
    try:
        live = await read_models.generation(projection.name)
        table = read_models.table_for(projection, live)
        async with read_models.begin() as connection:
            await connection.execute(
                update(table).where(table.c[projection.key] == key).values(**values)
            )
    finally:
        await read_models.aclose()


def meanwhile(phase: str, work: Callable[[], Awaitable[None]]) -> Callable[[str, int], None]:
    """Makes a progress callback that does something to its end when a phase begins."""

    def report(name: str, ahead: int) -> None:
        if name == phase:
            thread = threading.Thread(target=lambda: asyncio.run(work()))
            thread.start()
            thread.join()

    return report


@pytest.mark.parametrize(
    ("read_models_url", "name"),
    [("sqlite", "accounts"), ("postgresql", "accounts"), ("postgresql", "partners")],
    indirect=["read_models_url"],
)
async def test_a_rebuild_from_zero_equals_live_and_is_switched(
    rows_of: Any, state_of: Any, name: str, spark: Any, broker: Any, ledger: Any, make_history:
    Any, publish: Any, catch_up_live: Any, read_models_url: str,
) -> None:  # fmt: skip
    projection = ledger.app.projections[name]
    history = make_history(40, 12)
    again = [one for one in history[100:200] if one.version is not None]
    await publish([*history, *again])
    await catch_up_live(read_models_url, projection)
    live = await rows_of(read_models_url, projection)
    before = await state_of(read_models_url, projection)
    said: list[tuple[str, int]] = []
    report = await rebuild(
        APP, name, broker=broker.address, read_models_url=read_models_url, spark=spark,
        report=lambda phase, ahead: said.append((phase, ahead)),
    )  # fmt: skip
    passed = [each for each in said if each[0].endswith(" folded")]
    held = [queue for queue, end in report.end_offsets.items() if end]
    assert sorted(phase for phase, _ in passed) == sorted(f"{queue} folded" for queue in held)
    assert passed[-1][1] == 0
    assert (report.switched, report.reason) == (True, "")
    assert (report.mismatches, report.compared) == (0, len(live))
    assert report.rows == len(live) > 5
    assert report.events == sum(len(one.events) for one in history)
    assert report.duplicates == len(again)
    assert sum(report.end_offsets.values()) == len(history) + len(again)
    assert report.caught_up_offsets == report.end_offsets
    after = await state_of(read_models_url, projection)
    assert (after.generation, after.previous_generation) == (report.generation, before.generation)
    assert await rows_of(read_models_url, projection) == live


@pytest.mark.parametrize(
    ("read_models_url", "name", "few"),
    [("postgresql", "accounts", False), ("postgresql", "partners", False), ("sqlite", "partners", False),
     ("postgresql", "partners", True), ("sqlite", "accounts", True)],
    indirect=["read_models_url"],
)  # fmt: skip
async def test_a_rebuild_from_offsets_equals_live_after_a_tail(
    name: str, few: bool, spark: Any, broker: Any, ledger: Any, make_history: Any, publish: Any,
    catch_up_live: Any, read_models_url: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(all_rows, "INCREMENT_MAX", 100_000 if few else 0)
    projection = ledger.app.projections[name]
    first = make_history(30, 6)
    # Ten aggregates begin in the tail; a piece of what was folded stands in it again.
    tail = [*make_history(40, 6, first=7, seed=8)]
    tail = [one for one in tail if int(one.aggregate_id[1:]) < 30 and one.version is not None]
    begun = [one for one in make_history(40, 3, seed=9) if int(one.aggregate_id[1:]) >= 30]
    await publish(first)
    await catch_up_live(read_models_url, projection)
    await publish([*first[20:50], *tail, *begun])

    async def live_goes_on() -> None:
        await catch_up_live(read_models_url, projection)

    report = await rebuild(
        APP, name, broker=broker.address, read_models_url=read_models_url, spark=spark,
        start="offsets", report=meanwhile("switch", live_goes_on),
    )  # fmt: skip
    assert (report.switched, report.reason) == (True, "")
    assert report.events == sum(len(one.events) for one in [*tail, *begun])
    assert sum(report.start_offsets.values()) == len(first)
    assert report.mismatches == 0
    # The same from zero, with everything in one go.
    whole = await rebuild(
        APP, name, broker=broker.address, read_models_url=read_models_url, spark=spark
    )
    assert (whole.switched, whole.mismatches) == (True, 0)


@pytest.mark.parametrize(
    ("read_models_url", "name", "wrong"),
    [("postgresql", "accounts", {"balance": -7}), ("sqlite", "partners", {"total": 1})],
    indirect=["read_models_url"],
)
async def test_wrong_rows_are_healed_while_events_come_in_and_others_are_left_alone(
    rows_of: Any, name: str, wrong: dict[str, int], spark: Any, broker: Any, ledger: Any,
    make_history: Any, publish: Any, catch_up_live: Any, read_models_url: str,
) -> None:  # fmt: skip
    projection = ledger.app.projections[name]
    await publish(make_history(20, 4))
    await catch_up_live(read_models_url, projection)
    live = await rows_of(read_models_url, projection)
    first, second, other = sorted(live)[:3]
    for key in (first, second, other):
        await change_live(read_models_url, projection, key, **wrong)
    late = make_history(20, 2, first=5, seed=3)

    async def events_come_in() -> None:
        await publish(late)
        await catch_up_live(read_models_url, projection)

    report = await rebuild(
        APP, name, broker=broker.address, read_models_url=read_models_url, spark=spark,
        wanted=Wanted(keys=frozenset({first, second})), report=meanwhile("load", events_come_in),
    )  # fmt: skip
    assert (report.switched, report.mismatches, report.keys) == (True, 0, 2)
    assert report.caught_up == len(late)
    whole = await rebuild(
        APP, name, broker=broker.address, read_models_url=read_models_url, spark=spark
    )
    assert {key for key, _, _ in whole.differences} <= {other}


async def test_nothing_is_built_upon_rows_that_wait_for_parked_events(
    spark: Any, broker: Any, ledger: Any, make_history: Any, publish: Any, catch_up_live: Any,
    tmp_path: Path,
) -> None:  # fmt: skip
    url = f"sqlite:///{tmp_path / 'read.db'}"
    await publish(make_history(3, 1))
    await catch_up_live(url, ledger.accounts)
    models = ReadModels(url)
    letter = {
        "name": "accounts", "generation": 1, "aggregate_id": "a1", "topic": "t", "queue_id": 0,
        "message_offset": 0, "parked_at": datetime(2026, 1, 1, tzinfo=UTC),
        **new_row(ValueError("no")),
    }  # fmt: skip
    await models.transact(lambda connection: connection.execute(insert(parked_rows), letter))
    with pytest.raises(
        ProjectionError, match="headrace parked retry --processor projection:accounts"
    ):
        await rebuild(
            APP, "accounts", broker=broker.address, read_models_url=url, spark=spark,
            start="offsets",
        )  # fmt: skip
    assert (await models.state("accounts")).rebuild_generation is None
    await models.aclose()


async def test_a_wrong_live_row_is_found_and_nothing_is_switched(
    rows_of: Any, state_of: Any, spark: Any, broker: Any, ledger: Any, make_history: Any,
    publish: Any, catch_up_live: Any, read_models_url: str,
) -> None:  # fmt: skip
    await publish(make_history(9, 3))
    await catch_up_live(read_models_url, ledger.accounts)
    live = await rows_of(read_models_url, ledger.accounts)
    key = min(live)
    await change_live(read_models_url, ledger.accounts, key, balance=-1)
    before = await state_of(read_models_url, ledger.accounts)
    report = await rebuild(
        APP, "accounts", broker=broker.address, read_models_url=read_models_url, spark=spark
    )
    assert not report.switched
    assert (report.mismatches, report.compared) == (1, len(live))
    [(wrong, live_row, rebuilt_row)] = report.differences
    assert (wrong, live_row["balance"]) == (key, -1)
    assert rebuilt_row["balance"] == live[key].balance
    assert f"1 of {len(live)} rows differ from the live ones; not switched" in report.reason
    assert report.table in report.reason
    assert await state_of(read_models_url, ledger.accounts) == before
    rebuilt = await rows_of(read_models_url, ledger.accounts, report.generation)
    assert rebuilt == live
    # The table is kept, and does not stand in the way of the next one.
    unchecked = await rebuild(
        APP, "accounts", broker=broker.address, read_models_url=read_models_url, spark=spark,
        verify=False,
    )  # fmt: skip
    assert (unchecked.switched, unchecked.compared) == (True, None)
    assert await rows_of(read_models_url, ledger.accounts) == live


@pytest.mark.parametrize("read_models_url", ["postgresql"], indirect=True)
async def test_events_that_come_in_meanwhile_are_caught_up_with(
    spark: Any, broker: Any, ledger: Any, make_history: Any, publish: Any, catch_up_live: Any,
    read_models_url: str,
) -> None:  # fmt: skip
    await publish(make_history(20, 4))
    await catch_up_live(read_models_url, ledger.accounts)
    late = make_history(25, 3, first=5, seed=3)
    late = [one for one in late if int(one.aggregate_id[1:]) < 20]

    async def events_come_in() -> None:
        await publish(late)
        await catch_up_live(read_models_url, ledger.accounts)

    report = await rebuild(
        APP, "accounts", broker=broker.address, read_models_url=read_models_url, spark=spark,
        report=meanwhile("load", events_come_in),
    )  # fmt: skip
    assert (report.switched, report.mismatches, report.caught_up) == (True, 0, len(late))
    assert sum(report.caught_up_offsets.values()) == sum(report.end_offsets.values()) + len(late)


async def test_a_rebuild_without_a_switch_leaves_the_live_table_in_place(
    rows_of: Any, state_of: Any, spark: Any, broker: Any, ledger: Any, make_history: Any,
    publish: Any, catch_up_live: Any, sqlite_url: str,
) -> None:  # fmt: skip
    await publish(make_history(5, 2))
    await catch_up_live(sqlite_url, ledger.accounts)
    before = await state_of(sqlite_url, ledger.accounts)
    report = await rebuild(
        APP, "accounts", broker=broker.address, read_models_url=sqlite_url, spark=spark,
        switch=False,
    )  # fmt: skip
    assert (report.switched, report.mismatches) == (False, 0)
    assert report.compared == report.rows
    assert await state_of(sqlite_url, ledger.accounts) == before
    assert await rows_of(sqlite_url, ledger.accounts, report.generation) == await rows_of(
        sqlite_url, ledger.accounts
    )
    found = (await drop_built(APP, {"accounts": report}, read_models_url=sqlite_url))["accounts"]
    assert found == report
    assert await rows_of(sqlite_url, ledger.accounts)
    with pytest.raises(OperationalError):
        await rows_of(sqlite_url, ledger.accounts, report.generation)


async def test_a_live_generation_that_stays_behind_is_not_compared(
    spark: Any, broker: Any, ledger: Any, make_history: Any, publish: Any, catch_up_live: Any,
    sqlite_url: str,
) -> None:  # fmt: skip
    await publish(make_history(5, 2))
    await catch_up_live(sqlite_url, ledger.accounts)
    await publish(make_history(5, 1, first=3))
    report = await rebuild(
        APP, "accounts", broker=broker.address, read_models_url=sqlite_url, spark=spark,
        live_wait_ms=50,
    )  # fmt: skip
    assert (report.switched, report.compared) == (False, None)
    assert "the live generation is behind the rebuilt one" in report.reason
    assert "start the application" in report.reason


async def test_a_projection_that_never_ran_is_built_without_comparing(
    rows_of: Any, spark: Any, broker: Any, ledger: Any, make_history: Any, publish: Any,
    sqlite_url: str,
) -> None:  # fmt: skip
    await publish(make_history(5, 2))
    report = await rebuild(
        APP, "partners", broker=broker.address, read_models_url=sqlite_url, spark=spark,
        verify=False,
    )  # fmt: skip
    assert report.switched
    assert len(await rows_of(sqlite_url, ledger.partners)) == report.rows > 0


@pytest.mark.parametrize("read_models_url", ["postgresql"], indirect=True)
async def test_new_fields_are_built_and_switched_though_nothing_can_be_compared(
    rows_of: Any, spark: Any, broker: Any, ledger: Any, make_history: Any, publish: Any,
    catch_up_live: Any, read_models_url: str,
) -> None:  # fmt: skip
    await publish(make_history(6, 2))
    await catch_up_live(read_models_url, ledger.accounts)
    with pytest.raises(ProjectionError, match=r"other fields than NamedAccount .* start from zero"):
        await rebuild(
            "ledger_app:wider", "accounts", broker=broker.address,
            read_models_url=read_models_url, spark=spark, start="offsets",
        )  # fmt: skip
    report = await rebuild(
        "ledger_app:wider", "accounts", broker=broker.address,
        read_models_url=read_models_url, spark=spark,
    )  # fmt: skip
    assert (report.switched, report.compared) == (True, None)
    assert "other columns: nothing was compared" in report.reason
    rows = await rows_of(read_models_url, ledger.wider_accounts)
    assert {row.last_partner[0] for row in rows.values()} == {"p"}


@pytest.mark.parametrize("read_models_url", ["sqlite"], indirect=True)
async def test_two_rebuilds_at_once_are_refused(
    spark: Any, broker: Any, ledger: Any, make_history: Any, publish: Any, catch_up_live: Any,
    read_models_url: str,
) -> None:  # fmt: skip
    await publish(make_history(5, 2))
    await catch_up_live(read_models_url, ledger.accounts)
    refused: list[RebuildRunning] = []

    async def another() -> None:
        with pytest.raises(RebuildRunning, match="has been rebuilding it since") as raised:
            await rebuild(
                APP, "accounts", broker=broker.address, read_models_url=read_models_url, spark=spark
            )
        refused.append(raised.value)

    report = await rebuild(
        APP, "accounts", broker=broker.address, read_models_url=read_models_url, spark=spark,
        report=meanwhile("fold", another),
    )  # fmt: skip
    assert len(refused) == 1
    assert (report.switched, report.mismatches) == (True, 0)


async def test_another_rebuild_can_be_taken_over_and_then_gives_up(
    state_of: Any, spark: Any, broker: Any, ledger: Any, make_history: Any, publish: Any,
    catch_up_live: Any, sqlite_url: str,
) -> None:  # fmt: skip
    await publish(make_history(5, 2))
    await catch_up_live(sqlite_url, ledger.accounts)
    switched: list[int] = []

    async def take_over() -> None:
        report = await rebuild(
            APP, "accounts", broker=broker.address, read_models_url=sqlite_url, spark=spark,
            take_over=True,
        )  # fmt: skip
        assert report.switched
        switched.append(report.generation)

    with pytest.raises(ProjectionError, match="is no longer the shadow that"):
        await rebuild(
            APP, "accounts", broker=broker.address, read_models_url=sqlite_url, spark=spark,
            report=meanwhile("load", take_over),
        )  # fmt: skip
    assert [(await state_of(sqlite_url, ledger.accounts)).generation] == switched


KILLED = """
import asyncio, os, signal, sys
from headrace.rebuild.check import drop_built
from headrace.spark.rebuild import rebuild
def report(phase, ahead):
    if phase == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)
# No phase up to the fold's beginning needs Spark.
asyncio.run(rebuild("ledger_app:app", "accounts", broker=sys.argv[1], read_models_url=sys.argv[2],
                    spark=object(), start=sys.argv[4], report=report))
"""


@pytest.mark.parametrize(
    ("read_models_url", "phase", "start"),
    [("sqlite", "capture", "zero"), ("postgresql", "fold", "offsets")],
    indirect=["read_models_url"],
)
async def test_a_killed_rebuild_leaves_live_untouched_and_can_be_run_again(
    rows_of: Any, state_of: Any, phase: str, start: str, spark: Any, broker: Any, ledger: Any,
    make_history: Any, publish: Any, catch_up_live: Any, read_models_url: str,
) -> None:  # fmt: skip
    await publish(make_history(5, 2))
    await catch_up_live(read_models_url, ledger.accounts)
    live = await rows_of(read_models_url, ledger.accounts)
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", KILLED, broker.address, read_models_url, phase, start],
        env={"PYTHONPATH": str(Path(__file__).parent)},
        check=False,
    )
    assert done.returncode == -9
    killed = await state_of(read_models_url, ledger.accounts)
    assert (killed.generation, killed.rebuild_generation) == (1, 2)
    assert await rows_of(read_models_url, ledger.accounts) == live
    report = await rebuild(
        APP, "accounts", broker=broker.address, read_models_url=read_models_url, spark=spark
    )
    assert (report.switched, report.mismatches) == (True, 0)
    assert await rows_of(read_models_url, ledger.accounts) == live


async def test_a_cancelled_rebuild_drops_its_shadow(
    state_of: Any, spark: Any, broker: Any, ledger: Any, make_history: Any, publish: Any,
    catch_up_live: Any, sqlite_url: str,
) -> None:  # fmt: skip
    await publish(make_history(5, 2))
    await catch_up_live(sqlite_url, ledger.accounts)
    before = await state_of(sqlite_url, ledger.accounts)
    loop = asyncio.get_running_loop()

    def report(phase: str, ahead: int) -> None:
        if phase == "fold":
            loop.call_soon(running.cancel)

    running = asyncio.create_task(
        rebuild(
            APP, "accounts", broker=broker.address, read_models_url=sqlite_url, spark=spark,
            report=report,
        )
    )  # fmt: skip
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await state_of(sqlite_url, ledger.accounts) == before
    assert spark.range(3).count() == 3


async def test_a_fold_that_fails_on_an_executor_is_named_and_live_is_untouched(
    state_of: Any, spark: Any, broker: Any, ledger: Any, make_history: Any, publish: Any,
    catch_up_live: Any, sqlite_url: str, make_stream: Any,
) -> None:  # fmt: skip
    await publish(make_history(5, 2))
    await catch_up_live(sqlite_url, ledger.accounts)
    before = await state_of(sqlite_url, ledger.accounts)
    await publish([make_stream("a0", 3, ledger.Noted(text="poison"))])
    with pytest.raises(
        ProjectionError,
        match=r"Spark job failed: projection accounts cannot fold Noted a0/3/1:"
        " RuntimeError: this note cannot be folded",
    ):
        await rebuild(
            APP, "accounts", broker=broker.address, read_models_url=sqlite_url, spark=spark
        )
    assert await state_of(sqlite_url, ledger.accounts) == before


async def test_a_hole_in_the_topic_is_filled_from_the_event_store_or_refused(
    rows_of: Any, spark: Any, broker: Any, ledger: Any, publish: Any, sqlite_url: str,
    make_stream: Any, tmp_path: Path,
) -> None:  # fmt: skip
    streams = [
        make_stream("a0", version, ledger.Booked(partner="p", amount=version))
        for version in range(1, 6)
    ]
    await publish([streams[0], streams[3], streams[4]])
    with pytest.raises(
        ProjectionError,
        match=r"1 aggregates lack events that neither the topic nor an event store \(none was"
        r" given\) has: a0 versions 2 to 3",
    ):
        await rebuild(
            APP, "accounts", broker=broker.address, read_models_url=sqlite_url, spark=spark
        )
    store_url = f"sqlite:///{tmp_path / 'events.db'}"
    store = await open_event_store(store_url, ledger.app.serializer)
    await store.append(streams)
    await store.aclose()
    for name in ("accounts", "partners"):
        report = await rebuild(
            APP, name, broker=broker.address, read_models_url=sqlite_url, spark=spark,
            event_store_url=store_url, verify=False,
        )  # fmt: skip
        assert (report.events, report.gaps, report.filled) == (5, 1, 2)
    assert (await rows_of(sqlite_url, ledger.accounts))["a0"].bookings == 5
    assert (await rows_of(sqlite_url, ledger.partners))["p"].total == 15


async def test_a_missing_broker_or_topic_is_named_in_the_error(
    state_of: Any, spark: Any, broker: Any, ledger: Any, sqlite_url: str,
) -> None:  # fmt: skip
    with pytest.raises(ProjectionError, match=r"ledger\.events"):
        await rebuild(
            APP, "accounts", broker=broker.address, read_models_url=sqlite_url, spark=spark
        )
    broker.stop()
    with pytest.raises(ProjectionError, match="no broker answers at 127"):
        await rebuild(
            APP, "accounts", broker=broker.address, read_models_url=sqlite_url, spark=spark
        )
    assert (await state_of(sqlite_url, ledger.accounts)).rebuild_owner is None

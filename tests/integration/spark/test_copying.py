"""Rows that tasks copy themselves: past the driver, each once, and nothing is left of who was killed."""

import asyncio
import json
import random
import sys
import threading
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from sqlalchemy import inspect, text
from structlog.testing import capture_logs

from headrace._runtime.backoff import Backoff
from headrace.errors import ProjectionError, SparkUnreachable
from headrace.projections.definition.fold import fold_streams
from headrace.projections.tables.read_models import ReadModels
from headrace.spark.executor import fold
from headrace.spark.executor.plan import FoldPlan, module_folder
from headrace.spark.rebuild import rebuild
from headrace.spark.result import parts
from headrace.spark.result.copy import Copying, copy_out
from headrace.spark.session import SessionOnDemand
from headrace.stores.database.schema import upgrade

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

LOOKS = Backoff(ms_min=10, ms_max=10)

# Results of more than a mebibyte are refused; a task may fail once; a part is a quarter of that.
# The last database is rebuilt once more as if executors had other disks than the driver.
DRIVER = """
import asyncio, sys
from contextlib import nullcontext
from headrace.spark.result import parts
from headrace.spark import rebuild as module
from headrace.spark.session import cluster_session

parts._PART_BYTES = 1 << 18

spark = cluster_session("local[2,2]", settings={
    "spark.driver.maxResultSize": "1m", "spark.driver.memory": "600m",
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
})
def run(url):
    work = module.rebuild(
        "entries_app:app", "entries", broker=sys.argv[1], read_models_url=url, spark=spark
    )
    print(asyncio.run(work).to_json(), flush=True)
for url in sys.argv[2:]:
    run(url)
module.shared_folder = lambda session: nullcontext()
run(url)
try:
    spark.range(0, 2400, 1, 4).selectExpr("repeat('x', 900)").toArrow()
except Exception as error:
    print("maxResultSize" in str(error), flush=True)
spark.stop()
"""

# Ends in the middle of the job, with a share of rows that no fold has made.
KILLED = """
import asyncio, os, signal, sys
from types import SimpleNamespace
from headrace.projections.tables.shadow_load import copy_share, note_share
from headrace.spark import rebuild as module
from headrace.spark.driver import fold
from headrace.stores.database.engines import create_engine

async def copy(copying):
    async with create_engine(copying.url).begin() as connection:
        await copy_share(connection, copying.table, [("wrong", 1)], [("version", "wrong", 1)])
        assert await note_share(connection, copying.table, copying.owner, 0, 1)

def run_fold(*given, into, **named):
    asyncio.run(copy(into))
    os.kill(os.getpid(), signal.SIGKILL)

fold.run_fold = run_fold
fold.divide_plan = lambda session, plan, **_: plan
session = SimpleNamespace(
    addTag=id, removeTag=id, registerProgressHandler=id, removeProgressHandler=id
)
asyncio.run(module.rebuild("ledger_app:app", "partners", broker=sys.argv[1],
                           read_models_url=sys.argv[2], spark=session))
"""

# Folds and copies two of three shares as tasks do, and ends.
KILLED_LATER = """
import asyncio, os, signal, sys
from dataclasses import replace
from types import SimpleNamespace
import pyarrow as pa
from headrace.spark import rebuild as module
from headrace.spark.driver import fold
from headrace.spark.executor.slices import fold_slices
from headrace.spark.result.copy import copy_out

def run_fold(session, plan, *, into, **named):
    for task in (0, 1):
        number = pa.record_batch({"id": [task]})
        for _ in copy_out(into, plan, task, fold_slices(plan, iter([number]))):
            pass
    os.kill(os.getpid(), signal.SIGKILL)

fold.run_fold = run_fold
fold.divide_plan = lambda session, plan, **_: replace(plan, groups=((2,), (0,), (1,)))
session = SimpleNamespace(addTag=id, removeTag=id, registerProgressHandler=id)
asyncio.run(module.rebuild("ledger_app:app", "accounts", broker=sys.argv[1],
                           read_models_url=sys.argv[2], spark=session))
"""

# Three tasks, one after the other.
REBUILD = """
import asyncio, sys
from dataclasses import replace
from headrace.spark import local_session
from headrace.spark import rebuild as module
from headrace.spark.driver import fold

fold.divide_plan = lambda session, plan, **_: replace(plan, groups=((2,), (0,), (1,)))
spark = local_session(cores=1, driver_memory="600m")
asyncio.run(module.rebuild("ledger_app:app", "accounts", broker=sys.argv[1],
                           read_models_url=sys.argv[2], spark=spark))
"""


@pytest.fixture
def entries(ledger: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The application's module, whose small batches are for workers alone."""
    monkeypatch.setattr(fold, "_BATCH_RECORDS", fold._BATCH_RECORDS)
    import entries_app

    yield entries_app
    sys.modules.pop("entries_app")


async def run(program: str, environment: dict[str, str], *arguments: str) -> tuple[int, str]:
    """Returns how a process ended and what it printed."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, *arguments,
        env=environment, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        printed, _ = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    assert child.returncode is not None
    return child.returncode, printed.decode()


async def tables_of(url: str) -> set[str]:
    models = ReadModels(url)
    try:
        async with models.begin() as connection:
            names = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
    finally:
        await models.aclose()
    return {name for name in names if "__" in name}


async def test_a_row_per_event_is_never_whole_in_the_driver_and_a_task_that_failed_doubles_none(
    rows_of: Any, broker: Any, ledger: Any, entries: Any, make_stream: Any, publish: Any,
    catch_up_live: Any, postgres_database: str, sqlite_url: str, child_environment: dict[str, str],
) -> None:  # fmt: skip
    chance = random.Random(7)

    def random_text() -> str:
        # Spark compresses what it sends to the driver.
        return b64encode(chance.randbytes(900)).decode()

    streams = [
        make_stream(
            f"a{number}", version, ledger.Noted(text=f"{number} {version} " + random_text())
        )
        for version in range(1, 16)
        for number in range(160)
    ]
    # Last of all keys, so that its task has copied others before it fails.
    await publish([*streams, make_stream("z", 1, ledger.Noted(text="again"))])
    await catch_up_live(postgres_database, entries.entries)
    live = await rows_of(postgres_database, entries.entries)
    assert len(live) == len(streams) + 1
    await catch_up_live(sqlite_url, entries.entries)
    urls = [postgres_database, sqlite_url]
    ended, printed = await run(DRIVER, child_environment, broker.address, *urls)
    assert ended == 0
    *reports, refused = printed.splitlines()
    for url, told in zip([*urls, sqlite_url], reports, strict=True):
        report = json.loads(told)
        assert (report["switched"], report["mismatches"]) == (True, 0)
        assert report["rows"] == report["compared"] == report["events"] == len(live)
        assert await rows_of(url, entries.entries) == live
    assert await tables_of(postgres_database) == {"entries__1", "entries__2"}
    assert await tables_of(sqlite_url) == {"entries__2", "entries__3"}
    # As many as came in parts are too many for the driver at once.
    assert refused == "True"


@pytest.fixture
def jobs_of(spark: Any) -> Callable[[], int]:
    """Returns how many jobs were begun since the last call."""
    context, seen = spark.sparkContext, [-1]

    def count() -> int:
        # What is told of jobs is told a moment later.
        context._jsc.sc().listenerBus().waitUntilEmpty()
        # Those of streaming queries have a group.
        ours = [job for job in context.statusTracker().getJobIdsForGroup() if job > seen[0]]
        seen[0] = max(ours, default=seen[0])
        return len(ours)

    count()
    return count


async def test_a_small_result_is_fetched_by_the_job_that_makes_it_however_many_messages_there_are(
    rows_of: Any, spark: Any, broker: Any, ledger: Any, make_stream: Any, publish: Any,
    sqlite_url: str, jobs_of: Callable[[], int],
) -> None:  # fmt: skip
    for versions in ((1,), range(2, 60)):
        await publish(
            [
                make_stream(f"a{number}", version, ledger.Booked(partner="p", amount=1))
                for version in versions
                for number in range(20)
            ]
        )
        report = await rebuild(
            "ledger_app:app", "accounts", broker=broker.address, read_models_url=sqlite_url,
            spark=spark, verify=False,
        )  # fmt: skip
        assert (report.switched, report.rows) == (True, 20)
        assert jobs_of() == 1


@pytest.mark.parametrize(("part_bytes", "jobs"), [(1 << 24, range(2, 3)), (1 << 20, range(5, 9))])
def test_pieces_are_fetched_in_as_few_parts_as_their_bytes_need_and_their_tasks_run_once(
    spark: Any, monkeypatch: pytest.MonkeyPatch, jobs_of: Callable[[], int],
    part_bytes: int, jobs: range,
) -> None:  # fmt: skip
    monkeypatch.setattr(parts, "_PART_BYTES", part_bytes)
    ran = spark.sparkContext.accumulator(0)

    def make(batches: Any) -> Any:
        ran.add(1)
        task = sum(batch.column(0)[0].as_py() for batch in batches)
        made = [fold.Record.known("row", f"{task} {n}", data=b"x" * 1_000) for n in range(1_000)]
        yield from parts.in_pieces(task, iter([fold.records_to_arrow(made)] * 2))

    frame = spark.range(0, 2, 1, 2).mapInArrow(make, parts.PIECE_SCHEMA)
    found = [key for batch in parts.fetch_parts(frame) for key in batch["key"].to_pylist()]
    assert Counter(found) == Counter({f"{task} {n}": 2 for task in (0, 1) for n in range(1_000)})
    assert ran.value == 2
    assert jobs_of() in jobs


async def test_rows_copied_by_a_killed_driver_are_dropped_by_the_next_rebuild(
    rows_of: Any, spark: Any, broker: Any, ledger: Any, make_history: Any, publish: Any,
    catch_up_live: Any, postgres_database: str, child_environment: dict[str, str],
) -> None:  # fmt: skip
    await upgrade(postgres_database)
    await publish(make_history(9, 3))
    await catch_up_live(postgres_database, ledger.partners)
    live = await rows_of(postgres_database, ledger.partners)
    ended, _ = await run(KILLED, child_environment, broker.address, postgres_database)
    assert ended == -9
    assert await rows_of(postgres_database, ledger.partners) == live
    staging = {f"partners__2__{kind}" for kind in ("rows", "others", "shares")}
    assert await tables_of(postgres_database) == {"partners__1", "partners__2"} | staging
    report = await rebuild(
        "ledger_app:app", "partners", broker=broker.address, read_models_url=postgres_database,
        spark=spark,
    )  # fmt: skip
    assert (report.switched, report.mismatches, report.rows) == (True, 0, len(live))
    assert await rows_of(postgres_database, ledger.partners) == live
    assert await tables_of(postgres_database) == {"partners__1", report.table}


def add_late(url: str, table: str, owner: str) -> list[BaseException]:
    """Copies a row as a task of a killed rebuild does that comes late; returns what it fails with."""
    plan = FoldPlan(
        app="ledger_app:app", folder=module_folder("ledger_app:app"), projection="accounts",
        broker="", event_store=None, slices=(),
    )  # fmt: skip
    late = fold.records_to_arrow([fold.Record.known("version", "late", number=1)])
    failures: list[BaseException] = []

    def copy() -> None:
        try:
            list(copy_out(Copying(url=url, table=table, owner=owner), plan, 2, iter([late])))
        except ProjectionError as error:
            failures.append(error)

    thread = threading.Thread(target=copy)
    thread.start()
    thread.join()
    return failures


def away_cluster() -> SessionOnDemand:
    def start() -> Any:
        raise SparkUnreachable("no cluster answers")

    return SessionOnDemand(start=start)


def lost_session() -> Any:
    """A session whose Java process has ended."""

    def gone(_: str) -> None:
        raise Py4JNetworkError("Answer from Java side is empty")

    return SimpleNamespace(
        addTag=gone, removeTag=gone, registerProgressHandler=id, removeProgressHandler=id
    )


async def test_shares_that_a_killed_driver_has_noted_are_not_folded_again(
    rows_of: Any, state_of: Any, spark: Any, broker: Any, ledger: Any, make_history: Any,
    publish: Any, catch_up_live: Any, postgres_database: str, child_environment: dict[str, str],
) -> None:  # fmt: skip
    await upgrade(postgres_database)
    first, second = make_history(30, 4), make_history(30, 2, first=5, seed=8)
    once = {(one.aggregate_id, one.version): one for one in first if one.version is not None}
    await publish([*first, *first[:20]])
    await catch_up_live(postgres_database, ledger.accounts)
    ended, _ = await run(KILLED_LATER, child_environment, broker.address, postgres_database)
    assert ended == -9
    killed = (await state_of(postgres_database, ledger.accounts)).rebuild_owner
    # The topic goes on meanwhile, and a task that was left over comes once the next run has begun.
    once |= {(one.aggregate_id, one.version): one for one in second if one.version is not None}
    await publish(second)
    await catch_up_live(postgres_database, ledger.accounts)
    late: list[BaseException] = []

    def report(phase: str, ahead: int) -> None:
        if phase == "fold":
            late.extend(add_late(postgres_database, "accounts__2", killed))

    again: dict[str, Any] = {
        "broker": broker.address, "read_models_url": postgres_database, "spark": spark,
    }  # fmt: skip
    for away in (away_cluster, lost_session):
        # Spark that is away, at the start or later, costs nothing of it.
        with pytest.raises(SparkUnreachable):
            await rebuild("ledger_app:app", "accounts", **{**again, "spark": away()})
    told = await rebuild("ledger_app:app", "accounts", report=report, **again)
    assert "violates check constraint" in str(late[0])
    assert (told.switched, told.mismatches, told.reused, told.tasks) == (True, 0, 2, 1)
    # Of all three shares: what was counted before the kill, and after.
    counted = sum(len(one.events) for one in first if one.version is not None)
    assert (told.events, told.duplicates > 0, len(told.queues)) == (counted, True, 3)
    assert told.caught_up == len(second)
    rows = fold_streams(ledger.accounts, {}, [once[key] for key in sorted(once)])
    rows = {key: row for key, row in rows.items() if row is not None}
    assert await rows_of(postgres_database, ledger.accounts) == rows
    assert await tables_of(postgres_database) == {"accounts__1", "accounts__2"}

    # What does not fit is folded again, and it is said why.
    ended, _ = await run(KILLED_LATER, child_environment, broker.address, postgres_database)
    assert ended == -9
    models = ReadModels(postgres_database)
    async with models.begin() as connection:
        await connection.execute(
            text(
                'UPDATE accounts__3__plan SET plan = replace(plan, \'"identity":"\', \'"identity":"1\')'
            )
        )
    await models.aclose()
    with capture_logs() as logs:
        told = await rebuild("ledger_app:app", "accounts", **again)
    assert (told.switched, told.mismatches, told.reused, told.rows) == (True, 0, 0, len(rows))
    assert {one.get("reason") for one in logs} & {"the event topic is another one"}
    assert await rows_of(postgres_database, ledger.accounts) == rows


async def test_the_driver_of_a_running_job_is_killed_and_the_next_one_folds_what_is_left(
    rows_of: Any, state_of: Any, spark: Any, broker: Any, ledger: Any, make_history: Any,
    publish: Any, catch_up_live: Any, postgres_database: str, child_environment: dict[str, str],
) -> None:  # fmt: skip
    await upgrade(postgres_database)
    await publish(make_history(30, 4))
    await catch_up_live(postgres_database, ledger.accounts)
    live = await rows_of(postgres_database, ledger.accounts)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", REBUILD, broker.address, postgres_database, env=child_environment
    )
    models, noted = ReadModels(postgres_database), "accounts__2__shares"

    async def count() -> int:
        async with models.begin() as connection:
            found = await connection.execute(text(f"SELECT count(*) FROM {noted}"))
            return int(found.scalar_one())

    try:
        while noted not in await tables_of(postgres_database):
            assert child.returncode is None
            await LOOKS.pause(1)
        owner = (await state_of(postgres_database, ledger.accounts)).rebuild_owner
        async with models.begin() as connection:
            # The last task waits for this one.
            await connection.execute(
                text(f"INSERT INTO {noted} (share, rows, told, owner) VALUES (2, 0, '', :owner)"),
                {"owner": owner},
            )
            while await count() < 2:
                assert child.returncode is None
                await LOOKS.pause(1)
            child.kill()
            assert await child.wait() == -9
            await connection.rollback()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
        await models.aclose()
    told = await rebuild(
        "ledger_app:app", "accounts", broker=broker.address, read_models_url=postgres_database,
        spark=spark,
    )  # fmt: skip
    # The last task may have come to its end before its Java process has.
    assert (told.reused in {2, 3}, told.reused + told.tasks) == (True, 3)
    assert (told.switched, told.mismatches, told.compared) == (True, 0, len(live))
    assert await rows_of(postgres_database, ledger.accounts) == live
    assert await tables_of(postgres_database) == {"accounts__1", "accounts__2"}

"""Rows that tasks copy themselves: past the driver, each once, and nothing is left of who was killed."""

import asyncio
import json
import random
import sys
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import inspect

from headrace.projections.tables.read_models import ReadModels
from headrace.spark.executor import fold
from headrace.spark.rebuild import rebuild
from headrace.spark.result import parts
from headrace.stores.database.schema import upgrade

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

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
from headrace.stores.database.engines import create_engine

async def copy(copying):
    async with create_engine(copying.url).begin() as connection:
        await copy_share(connection, copying.table, [("wrong", 1)], [("version", "wrong", 1)])
        assert await note_share(connection, copying.table, copying.owner, 0, 1)

def run_fold(*given, into, **named):
    asyncio.run(copy(into))
    os.kill(os.getpid(), signal.SIGKILL)

module.run_fold = run_fold
module.divide_plan = lambda session, plan, **_: plan
session = SimpleNamespace(
    addTag=id, removeTag=id, registerProgressHandler=id, removeProgressHandler=id
)
asyncio.run(module.rebuild("ledger_app:app", "partners", broker=sys.argv[1],
                           read_models_url=sys.argv[2], spark=session))
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

    def text() -> str:
        # Spark compresses what it sends to the driver.
        return b64encode(chance.randbytes(900)).decode()

    streams = [
        make_stream(f"a{number}", version, ledger.Noted(text=f"{number} {version} " + text()))
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

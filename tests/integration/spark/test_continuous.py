"""A streaming job keeps a live table as the live runner would, whatever it is killed or met by."""

import asyncio
import signal
import subprocess
import sys
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace.projections.definition.fold import fold_streams
from headrace.projections.tables.read_models import ReadModels
from headrace.settings import Settings
from headrace.spark.stream import continuous
from headrace.spark.stream.continuous import follow
from headrace.stores.database.schema import upgrade

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

APP = "ledger_app:app"


def folded(projection: Any, history: list[Any]) -> dict[str, Any]:
    """What a plain loop makes of each version once, in order."""
    once = {(one.aggregate_id, one.version): one for one in history if one.version is not None}
    rows = fold_streams(projection, {}, [once[key] for key in sorted(once)])
    return {key: row for key, row in rows.items() if row is not None}


@pytest.mark.parametrize(
    ("read_models_url", "name"),
    [("sqlite", "accounts"), ("postgresql", "partners")],
    indirect=["read_models_url"],
)
async def test_available_events_are_folded_on_executors_and_applied_once(
    rows_of: Any, name: str, spark: Any, broker: Any, ledger: Any, make_history: Any, publish:
    Any, read_models_url: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(continuous, "HERE_MAX", 0)
    projection = ledger.app.projections[name]
    await upgrade(read_models_url)
    history = make_history(40, 12)
    await publish([*history, *history[100:200]])
    batches: list[Any] = []
    done = await follow(
        APP, name, broker=broker.address, read_models_url=read_models_url, spark=spark,
        available_now=True, batch_max=400, report=batches.append,
    )  # fmt: skip
    assert (done.messages, done.batches) == (len(history) + 100, 2)
    assert {one.here for one in batches} == {False}
    assert await rows_of(read_models_url, projection) == folded(projection, history)


@pytest.mark.parametrize("read_models_url", ["postgresql"], indirect=True)
async def test_a_job_is_not_disturbed_by_a_live_runner_or_an_absent_broker(
    rows_of: Any, spark: Any, broker: Any, ledger: Any, make_history: Any, publish: Any,
    catch_up_live: Any, topic_ends: Any, read_models_url: str,
) -> None:  # fmt: skip
    first, second = make_history(30, 6), make_history(30, 6, first=7, seed=8)
    await upgrade(read_models_url)
    await publish(first)
    stop = asyncio.Event()
    with capture_logs() as logs:
        job = asyncio.create_task(
            follow(
                APP, "partners", broker=broker.address, read_models_url=read_models_url,
                spark=spark, stop=stop, settings=Settings(retry_ms_max=100),
            )
        )  # fmt: skip
        # Both work on the same batches until this one has everything.
        await catch_up_live(read_models_url, ledger.partners)
        broker.stop()
        while not any("ConnectionLost" in one.get("error", "") for one in logs):
            assert not job.done(), job.result()
            await asyncio.wait({job}, timeout=0.1)
    broker.start()
    await publish(second)
    read_models = ReadModels(read_models_url)
    try:
        ends = topic_ends()
        await read_models.wait_for_offsets(
            ledger.partners, ends, timeout_ms=300_000, check=lambda: job.done() and job.result()
        )
    finally:
        await read_models.aclose()
    stop.set()
    done = await job
    assert done.restarts >= 1
    assert done.messages >= len(second)
    assert done.offsets == ends
    assert await rows_of(read_models_url, ledger.partners) == folded(
        ledger.partners, [*first, *second]
    )


KILLED = """
import os, signal, sys
import headrace.cli
from headrace.spark.stream import continuous
from headrace.spark.stream import sink

follow = ["projection", "follow", "accounts", "--app", "ledger_app:app", "--broker", sys.argv[1],
          "--read-models", sys.argv[2], "--unsealed", "--log-format", "json"]
sys.argv = ["headrace", *follow]
try:
    headrace.cli.main()
except SystemExit as ended:
    print("ended", ended.code or 0, flush=True)

# The same again, many messages at once, and killed with rows and versions written and no offset.
continuous.HERE_MAX = 0
sink.store_offsets = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
sys.stdin.readline()
headrace.cli.main()
"""


@pytest.mark.parametrize("read_models_url", ["postgresql"], indirect=True)
async def test_a_job_is_stopped_by_a_signal_and_one_killed_while_it_stores_stored_nothing(
    rows_of: Any, spark: Any, broker: Any, ledger: Any, make_history: Any, publish: Any,
    read_models_url: str, child_environment: dict[str, str],
) -> None:  # fmt: skip
    first, second = make_history(20, 5), make_history(20, 5, first=6, seed=8)
    await upgrade(read_models_url)
    await publish(first)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, broker.address, read_models_url,
        env=child_environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        line = await process.stdout.readline()
        assert b"%d messages" % len(first) in line
        process.send_signal(signal.SIGTERM)
        told, ended = await process.stdout.readline(), await process.stdout.readline()
        assert told.startswith(b"projection accounts: %d messages in 1 batches" % len(first))
        assert ended == b"ended 0\n"
        assert await rows_of(read_models_url, ledger.accounts) == folded(ledger.accounts, first)
        await publish(second)
        await process.communicate(b"go on\n")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == -signal.SIGKILL
    assert await rows_of(read_models_url, ledger.accounts) == folded(ledger.accounts, first)
    done = await follow(
        APP, "accounts", broker=broker.address, read_models_url=read_models_url, spark=spark,
        available_now=True,
    )  # fmt: skip
    assert done.messages == len(second)
    assert await rows_of(read_models_url, ledger.accounts) == folded(
        ledger.accounts, [*first, *second]
    )

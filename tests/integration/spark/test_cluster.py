"""A rebuild on a standalone cluster, its driver killed, and then an executor of the next one."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from headrace.stores.database.schema import upgrade

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# Each executor is a Java process that starts: one is enough where a job gets nowhere.
ONE_EXECUTOR = "spark.cores.max=1"


async def enter(gate: Path) -> int:
    """Returns when somebody waits at a gate; closing what is returned lets them pass."""
    return await asyncio.to_thread(os.open, gate, os.O_WRONLY)


@pytest.mark.parametrize("read_models_url", ["postgresql"], indirect=True)
async def test_a_killed_driver_changes_nothing_and_a_killed_executor_is_replaced(
    rows_of: Any, state_of: Any, cluster: Any, broker: Any, ledger: Any, make_history: Any,
    make_stream: Any, publish: Any, catch_up_live: Any, read_models_url: str, child_environment:
    dict[str, str], tmp_path: Path,
) -> None:  # fmt: skip
    gate = tmp_path / "gate"
    history = [*make_history(9, 3), make_stream("z", 1, ledger.Noted(text=f"gate:{gate}"))]
    await upgrade(read_models_url)
    await publish(history)
    await catch_up_live(read_models_url, ledger.accounts)
    live = await rows_of(read_models_url, ledger.accounts)
    os.mkfifo(gate)

    def start(*more: str) -> Awaitable[asyncio.subprocess.Process]:
        settings = [f"--conf={each}" for each in (*cluster.settings, *more)]
        return asyncio.create_subprocess_exec(
            sys.executable, "-m", "headrace", "projection", "rebuild", "accounts",
            "--engine", "spark", "--app", "ledger_app:app", "--broker", broker.address,
            "--read-models", read_models_url, "--unsealed", "--json",
            "--master", cluster.address, *settings,
            env=child_environment, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip

    driver = await start(ONE_EXECUTOR)
    inside = await enter(gate)
    driver.kill()
    await driver.wait()
    os.close(inside)
    killed = await state_of(read_models_url, ledger.accounts)
    assert (killed.generation, killed.rebuild_generation) == (1, 2)
    assert await rows_of(read_models_url, ledger.accounts) == live

    driver = await start()
    try:
        inside = await enter(gate)
        os.kill(cluster.executor_at(gate), signal.SIGKILL)
        os.close(inside)
        # The same part again, in another executor.
        again = await enter(gate)
        gate.unlink()
        os.close(again)
        assert driver.stdout is not None
        report = json.loads(await driver.stdout.read())
        assert await driver.wait() == 0
    finally:
        if driver.returncode is None:
            driver.kill()
            await driver.wait()
    assert (report["switched"], report["mismatches"], report["compared"]) == (True, 0, len(live))
    assert (await state_of(read_models_url, ledger.accounts)).generation == report["generation"]
    assert await rows_of(read_models_url, ledger.accounts) == live


async def test_executors_without_python_are_one_sentence_and_exit_status_2(
    cluster: Any, broker: Any, ledger: Any, make_history: Any, publish: Any, sqlite_url: str,
    child_environment: dict[str, str], tmp_path: Path,
) -> None:  # fmt: skip
    await publish(make_history(3, 2))
    settings = [
        *cluster.settings,
        ONE_EXECUTOR,
        "spark.pyspark.python=/no/such/python",
        "spark.task.maxFailures=1",
    ]
    command = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headrace", "projection", "rebuild", "accounts", "--engine", "spark",
        "--app", "ledger_app:app", "--broker", broker.address, "--read-models", sqlite_url,
        "--unsealed", "--json", "--master", cluster.address, *(f"--conf={each}" for each in settings),
        env=child_environment | {"TMPDIR": str(tmp_path)}, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, told = (each.decode() for each in await command.communicate())
    assert (command.returncode, said) == (2, ""), told
    assert "executors cannot run /no/such/python: name a Python that they have" in told
    assert "Traceback" not in told
    assert "\tat " not in told, "a line of Java's"
    [kept] = await asyncio.to_thread(lambda: list(tmp_path.glob("headrace-spark-*.txt")))
    assert str(kept) in told
    assert "No such file or directory" in kept.read_text(encoding="utf-8")

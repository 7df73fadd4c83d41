"""What a task holds is bounded by its batches: one key with 690 MB of events takes no such memory."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.spark.rebuild import rebuild
from tests.integration.spark.conftest import descendants

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STREAMS, EVENTS, TEXT = 600, 400, "n" * 3_000
# As in docs/engineering/spark.md: 186 to 201 MiB were measured, for a quarter of these events and for all.
TASK_BYTES_MAX = 256 << 20


def workers_of(spark: SparkSession) -> list[int]:
    """Returns the Python workers of a session, and the process that forks them."""
    gateway: Any = spark.sparkContext._gateway
    found = descendants(gateway.proc.pid)
    return [each for each in found if "python" in Path(f"/proc/{each}/comm").read_text()]


def status(process: int, name: str) -> int:
    """Returns a figure of memory in bytes."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    [line] = [each for each in lines if each.startswith(f"{name}:")]
    return int(line.split()[1]) << 10


def size_from_now_on(process: int) -> int:
    """Returns what a process holds, and forgets its peak so far: earlier tests have used it."""
    Path(f"/proc/{process}/clear_refs").write_text("5")
    return status(process, "VmRSS")


@pytest.mark.parametrize("read_models_url", ["sqlite"], indirect=True)
async def test_a_key_with_more_events_than_a_task_may_hold_is_folded_within_its_bound(
    spark: Any, broker: Any, ledger: Any, make_stream: Any, publish: Any, read_models_url: str,
) -> None:  # fmt: skip
    async def rebuilt() -> Any:
        return await rebuild(
            "one_key_app:app", "notes", broker=broker.address, read_models_url=read_models_url,
            spark=spark, verify=False,
        )  # fmt: skip

    await publish([make_stream("first", 1, ledger.Noted(text=""))])
    await rebuilt()
    before = {worker: size_from_now_on(worker) for worker in workers_of(spark)}
    noted = [ledger.Noted(text=TEXT) for _ in range(EVENTS)]
    for number in range(0, STREAMS, 50):
        await publish([make_stream(f"a{at}", 1, *noted) for at in range(number, number + 50)])
    report = await rebuilt()
    assert report.events == STREAMS * EVENTS + 1
    assert report.rows == 1
    started = min(before.values())
    held = max(
        status(worker, "VmHWM") - before.get(worker, started) for worker in workers_of(spark)
    )
    assert len(TEXT) * STREAMS * EVENTS > 2 * TASK_BYTES_MAX
    assert 0 < held < TASK_BYTES_MAX, f"a task held {held >> 20} MiB"

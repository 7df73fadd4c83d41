"""The job of a rebuild: divided among tasks, and ended with the rebuild."""

import asyncio
import threading
from typing import Any

import pytest

from headrace.errors import ProjectionError
from headrace.spark.driver import fold as fold_module
from headrace.spark.rebuild import rebuild


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
        ledger.path, "accounts", broker=live.broker, read_models_url=live.url, spark=spark,
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
            ledger.path, "accounts", broker=live.broker, read_models_url=live.url, spark=spark,
            verify=False,
        )  # fmt: skip


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

    monkeypatch.setattr(fold_module, "run_fold", fold_for_long)
    monkeypatch.setattr(spark, "interruptTag", interrupt, raising=False)
    running = asyncio.create_task(
        rebuild(ledger.path, "accounts", broker=live.broker, read_models_url=live.url, spark=spark)
    )
    await folding.wait()
    owner = (await live.read_models.state("accounts")).rebuild_owner
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert interrupted == [owner]
    assert (await live.read_models.state("accounts")).rebuild_owner is None

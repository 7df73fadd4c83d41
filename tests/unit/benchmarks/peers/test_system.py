"""What the comparison asks of a system, checked on ours; the others are not installed for tests."""

from pathlib import Path

from benchmarks.peers.client import TASKS
from benchmarks.peers.system import queue_of, system

ASKED = {
    "seconds": 0.02,
    "body": 100,
    "queues": 2,
    "size": 10,
    "tasks": 2,
    "per_second": 500,
    "count": 250,
}


async def test_every_task_runs_and_counts_what_it_did(tmp_path: Path) -> None:
    ours = system("headrace")
    async with ours.serve(tmp_path, "interval", 2) as server:
        for task in TASKS.values():
            driver = ours.Driver(server.address, 2)
            await driver.open()
            try:
                said = await (await task(driver, ASKED))()
            finally:
                await driver.aclose()
            assert said["count"] > 0
            assert said["seconds"] > 0


def test_a_key_has_one_queue_whoever_asks() -> None:
    assert {queue_of(f"key-{n}", 4) for n in range(50)} == {0, 1, 2, 3}
    assert queue_of("key-1", 4) == queue_of("key-1", 4)

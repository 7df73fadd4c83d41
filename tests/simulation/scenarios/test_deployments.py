"""Deployments under faults, one per seed: no promise is broken, and a checker that would notice.

`make test-sim SEEDS=2000 FROM=1000` runs other seeds; a seed that fails prints all that happened.
"""

import asyncio
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.broker.groups import locks as locks_module
from headrace_mq.broker.groups.locks import Locks
from headrace_mq.broker.groups.offsets import Offsets
from headrace_mq.broker.schedule.scheduler import Scheduler
from headrace_mq.client.broadcast.local_offsets import LocalOffsets
from headrace_mq.client.fetch.process_queue import ProcessQueue
from headrace_mq.client.fetch.queue_priorities import Priorities, Urgency
from headrace_mq.client.handlers.failures import Settled
from headrace_mq.client.producer.queue_sender import QueueSender
from headrace_mq.client.retries.retries import RetryPolicy
from headrace_mq.message import QueueRef
from headrace_mq.protocol.keys import queue_for_key
from headrace_mq.store.log.queues import Queues
from headrace_mq.testing.simulated_disk import MountedFiles

# `make test-sim` runs a thousand.
SEEDS = 100
# Tests of this many seeds each, so that several processes share them.
SEEDS_PER_TEST = 10
# A planted defect is found within so many seeds.
SEEDS_PER_DEFECT = 60
# Every so many seeds there is one with priorities; this is the first.
SCENARIOS, FIRST_OF_PRIORITIES = 8, 4


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seeds" in metafunc.fixturenames:
        count = metafunc.config.getoption("--seeds", default=None) or SEEDS
        first = metafunc.config.getoption("from_seed", default=None) or 0
        starts = range(first, first + count, SEEDS_PER_TEST)
        groups = [range(at, min(at + SEEDS_PER_TEST, first + count)) for at in starts]
        metafunc.parametrize("seeds", groups, ids=[f"{g.start}-{g.stop - 1}" for g in groups])


@pytest.mark.timeout(300)
def test_no_promise_is_broken(world: Any, seeds: Iterable[int]) -> None:
    for seed in seeds:
        life = world(seed)
        broken = life.run()
        if broken:
            sys.stdout.write("\n".join([*life.sim.trace.lines, ""]))
            promises = "\n".join(f"{promise}: {sentence}" for promise, sentence in broken)
            pytest.fail(f"seed {seed}, repeat: make test-sim SEEDS=1 FROM={seed}\n{promises}")


def test_the_same_seed_gives_the_same_trace_to_the_last_byte(world: Any) -> None:
    first, second, other = world(11), world(11), world(12)
    for life in (first, second, other):
        life.run()
    assert first.sim.trace.lines == second.sim.trace.lines
    assert first.sim.trace.digest == second.sim.trace.digest
    assert other.sim.trace.digest != first.sim.trace.digest


def test_a_seed_means_the_same_in_every_process(world: Any) -> None:
    code = f"import runpy; life = runpy.run_path({__file__!r})['life'](3); print(life)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": number, "PYTHONPATH": ":".join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for number in ("1", "2")
    }
    assert digests == {f"{life(3)}\n"}


def life(seed: int) -> str:
    """Lives one life in a process of its own, and returns the hash of its trace."""
    here = Path(__file__).parent
    base = runpy.run_path(str(here.parent / "conftest.py"))["World"]
    world = runpy.run_path(str(here / "conftest.py"))["with_scenarios"](base)(seed)
    world.run()
    digest: str = world.sim.trace.digest
    return digest


# ---- defects ---------------------------------------------------------------------------------


def forget_to_sync(files: MountedFiles, fd: int) -> int:
    return 20


def forget_the_sequence(lane: QueueSender) -> None:
    lane.severed = lane.late = lane.confirmed = False
    lane._sequence = 0


def tell_less(get: Callable[..., int]) -> Callable[..., int]:
    return lambda offsets, group, queue: max(get(offsets, group, queue) - 1, 0)


def grant_the_same_epoch(locks: Locks[Any], holding: Any, queue: QueueRef, now_ms: int) -> int:
    holding.queues.add(queue)
    locks._locks[holding.owner.group, queue] = locks_module._Lock(holding, 1, now_ms)
    return 1


async def settle_and_forget(policy: RetryPolicy, failure: Any) -> Settled:
    return Settled("nowhere")


def cancel_nothing(scheduler: Scheduler, number: int) -> asyncio.Future[None]:
    done = asyncio.get_running_loop().create_future()
    done.set_result(None)
    return done


def load_beyond(load: Callable[..., Any]) -> Callable[..., Any]:
    async def beyond(offsets: LocalOffsets, queues: Any) -> dict[QueueRef, int]:
        return {queue: at + 1 for queue, at in (await load(offsets, queues)).items()}

    return beyond


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("owner", "name", "defect", "fault", "promises"),
    [
        (MountedFiles, "sync", forget_to_sync, "cut_power", {"lost", "does not start"}),
        (ProcessQueue, "lowest_unfinished", property(lambda q: q.end), "come", {"skipped"}),
        (Offsets, "get", tell_less(Offsets.get), "come", {"went back"}),
        (Locks, "check", lambda *_, now_ms: None, "crowd", {"stale commit"}),
        (Queues, "duplicate_of", lambda queues, header: None, "drop", {"stored twice"}),
        (QueueSender, "_begin_sequence", forget_the_sequence, "part", {"lost", "changed", "order"}),
        (Locks, "_grant", grant_the_same_epoch, "come", {"two owners"}),
        (RetryPolicy, "decide", settle_and_forget, "come", {"never done"}),
        (LocalOffsets, "load", load_beyond(LocalOffsets.load), "kill_listener", {"stuck"}),
        (Scheduler, "cancel", cancel_nothing, "come", {"cancelled"}),
    ],
    ids=[
        "a disk that forgets to sync",
        "a consumer that commits what it has not finished",
        "a broker that forgets a little",
        "a broker that takes the commits of former owners",
        "a broker that knows no repeated batch",
        "a producer that uses sequence numbers again",
        "a broker that gives two members the same lock",
        "a consumer that forgets what failed",
        "a broadcast consumer that goes on too far",
        "a broker that takes nothing back",
    ],
)
def test_a_planted_defect_is_found(
    world: Any,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    defect: Any,
    fault: str,
    promises: set[str],
) -> None:
    monkeypatch.setattr(owner, name, defect)
    monkeypatch.setattr(world, "faults", (fault,))
    for seed in range(SEEDS_PER_DEFECT):
        if promises & {promise for promise, _ in world(seed).run()}:
            return
    pytest.fail(f"{SEEDS_PER_DEFECT} seeds did not find it")


def by_key_alone(priorities: Priorities, message: Any, queues: int) -> int:
    return queue_for_key(message.key, queues)


def as_they_come(urgency: Urgency, items: Iterable[Any], queue_of: Any) -> list[Any]:
    return list(items)


def without_the_lowest(urgency: Urgency, items: Iterable[Any], queue_of: Any) -> list[Any]:
    return [item for item in items if urgency._level_of(queue_of(item))]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("owner", "name", "defect", "promise"),
    [
        (Priorities, "select", by_key_alone, "wrong level"),
        (Urgency, "arrange", as_they_come, "out of level"),
        (Urgency, "arrange", without_the_lowest, "stuck"),
    ],
    ids=[
        "a producer that knows no levels",
        "a consumer that knows no levels",
        "a consumer that leaves the lowest level alone",
    ],
)
def test_a_planted_defect_of_priorities_is_found(
    world: Any, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, defect: Any, promise: str
) -> None:
    monkeypatch.setattr(owner, name, defect)
    monkeypatch.setattr(world, "faults", ("come",))
    for seed in range(FIRST_OF_PRIORITIES, SEEDS_PER_DEFECT, SCENARIOS):
        life = world(seed)
        assert life.scenario == "priorities"
        if promise in {found for found, _ in life.run()}:
            return
    pytest.fail(f"{SEEDS_PER_DEFECT} seeds did not find it")

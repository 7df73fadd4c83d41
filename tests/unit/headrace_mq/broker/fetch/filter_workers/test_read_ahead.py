"""What is looked through for readers before they come for it."""

from asyncio import Future, get_running_loop
from collections.abc import Collection
from typing import Any

import pytest

from headrace_mq.broker.fetch.filter_workers import read_ahead as ahead_module
from headrace_mq.broker.fetch.filter_workers.jobs import Job, JobResult
from headrace_mq.broker.fetch.filter_workers.read_ahead import (
    JOB_BYTES_MIN,
    WAITING_MAX,
    FilterRequest,
    ReadAhead,
)
from headrace_mq.message import QueueRef
from headrace_mq.store.message_store import MessageStore
from tests.unit.headrace_mq.broker.fetch.filter_workers.conftest import (
    BATCHES,
    QUEUE,
    RARE,
    RECORDS,
)

END = BATCHES * RECORDS
FIRST = FilterRequest(QUEUE, 0, RARE, picks=True)


class FilterWorkers:
    """Processes whose answers the test gives."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Job, Future[JobResult | None]]] = []
        self.is_ready = self.at_hand = True
        self.starts = self.waiting = 0
        self.on_rest: Any = None

    def ready(self) -> bool:
        self.starts += not self.is_ready
        return self.is_ready

    def submit(self, job: Job) -> "Future[JobResult | None]":
        answer: Future[JobResult | None] = get_running_loop().create_future()
        self.jobs.append((job, answer))
        return answer


class Setting:
    """What a broker joins."""

    def __init__(self, store: MessageStore) -> None:
        self.workers = FilterWorkers()
        self.told: list[QueueRef] = []
        self.ahead = ReadAhead(store, self.workers, self._arrived)  # type: ignore[arg-type]  # as far as it is asked

    def _arrived(self, queues: Collection[QueueRef]) -> None:
        self.told += queues

    async def answers(self, result: JobResult | None) -> None:
        self.workers.jobs[-1][1].set_result(result)
        await a_turn()


async def a_turn() -> None:
    """Lets what is due now be called."""
    turn = get_running_loop().create_future()
    get_running_loop().call_soon(turn.set_result, None)
    await turn


@pytest.fixture
async def setting(store: MessageStore) -> Setting:
    return Setting(store)


async def test_a_result_is_taken_once_and_then_the_next_job_begins(
    setting: Setting,
) -> None:
    ahead = setting.ahead
    assert ahead.take(FIRST) is None
    assert ahead.ask(FIRST)
    assert ahead.is_coming(FIRST)
    # Whoever wants the same waits with it.
    assert ahead.ask(FIRST)
    ((job, _),) = setting.workers.jobs
    assert (job.condition, job.picks, job.topic, job.queue_id) == (RARE, True, *QUEUE)
    assert job.entries[0].base == 0
    found = JobResult(6_000, 1 << 20, 60, 9_000)
    await setting.answers(found)
    assert setting.told == [QUEUE]
    assert not ahead.is_coming(FIRST)
    assert ahead.ask(FIRST)
    assert len(setting.workers.jobs) == 1
    assert ahead.take(FIRST) == found
    assert ahead.take(FIRST) is None
    ahead.go_on(FIRST, found)
    assert setting.workers.jobs[1][0].entries[0].base == 6_000
    assert ahead.is_coming(FIRST._replace(offset=6_000))


async def test_readers_with_different_filters_have_different_jobs(setting: Setting) -> None:
    assert setting.ahead.ask(FIRST)
    for other in (
        FIRST._replace(condition="_tag = 'usual'"),
        FIRST._replace(picks=False),
        FIRST._replace(offset=100),
    ):
        assert not setting.ahead.is_coming(other)
        assert setting.ahead.ask(other)
    assert len(setting.workers.jobs) == 4


@pytest.mark.parametrize("result", [None, JobResult(0)])
async def test_a_job_without_a_result_wakes_its_reader(
    setting: Setting, result: JobResult | None
) -> None:
    assert setting.ahead.ask(FIRST)
    await setting.answers(result)
    assert setting.told == [QUEUE]
    assert not setting.ahead.is_coming(FIRST)
    assert setting.ahead.take(FIRST) is None


async def test_a_filter_that_matches_much_starts_no_further_job(setting: Setting) -> None:
    setting.ahead.go_on(FIRST, JobResult(100, 12_000, 90, 11_000))
    assert setting.workers.jobs == []


async def test_a_short_backlog_starts_no_job(setting: Setting, store: MessageStore) -> None:
    few = END - 30 * RECORDS
    stretch = store.file_range_from(QUEUE, few, 1 << 30, 1 << 30)
    assert stretch is not None
    assert sum(entry.length for entry in stretch.entries) < JOB_BYTES_MIN
    assert not setting.ahead.ask(FIRST._replace(offset=few))
    assert not setting.ahead.ask(FIRST._replace(offset=END))
    assert not setting.ahead.ask(FIRST._replace(queue=QueueRef("t", 9)))
    assert setting.workers.jobs == []


async def test_readers_do_not_wait_without_a_process_or_with_too_many_jobs(
    setting: Setting,
) -> None:
    workers = setting.workers
    workers.is_ready = False
    assert not setting.ahead.ask(FIRST)
    assert workers.starts == 1
    # Not for so little, and not where none may be.
    assert not setting.ahead.ask(FIRST._replace(offset=END - RECORDS))
    workers.at_hand = False
    assert not setting.ahead.ask(FIRST)
    assert workers.starts == 1
    workers.is_ready, workers.at_hand, workers.waiting = True, True, WAITING_MAX
    assert not setting.ahead.ask(FIRST)
    assert workers.jobs == []


async def test_results_that_no_reader_takes_are_dropped(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead_module, "HELD_BYTES_MAX", 25_000)
    wanted = [FIRST._replace(offset=offset) for offset in (0, 100, 200)]
    for one in wanted:
        assert setting.ahead.ask(one)
        await setting.answers(JobResult(5_000, 1 << 20, 50, 10_000))
    # The oldest one had to.
    assert [setting.ahead.take(one) is None for one in wanted[:2]] == [True, False]
    # When all processes have ended nobody has read on for long.
    setting.workers.on_rest()
    assert setting.ahead.take(wanted[2]) is None

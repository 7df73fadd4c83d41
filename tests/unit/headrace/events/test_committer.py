"""Group commit: batches, outcomes, and what a worker drops in answer."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import DataError

from headrace._runtime.backoff import Backoff
from headrace.errors import SubjectKeysAway
from headrace.events.append_batch import QueuedStream
from headrace.events.committer import NEXT_STEP, Committer, NextStep, Refused
from headrace.stores.base import AppendOutcome
from headrace.stores.memory.store import MemoryEventStore
from headrace_mq.metrics.histogram import Histogram


class WatchedStore(MemoryEventStore):
    """Waits before every append and fails on demand."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()
        self.appending = asyncio.Event()
        self.batches: list[list[str]] = []
        self.failures: list[Exception] = []
        self.at_once = 0
        self.poison: dict[str, Exception] = {}

    async def append(self, streams):
        self.at_once += 1
        assert self.at_once == 1, "two appends in flight"
        try:
            self.appending.set()
            await self.go_on.wait()
            if self.failures:
                raise self.failures.pop(0)
            refused = [stream for stream in streams if stream.command_id in self.poison]
            if refused:
                raise self.poison[refused[0].command_id]
            self.batches.append([stream.command_id for stream in streams])
            return await super().append(streams)
        finally:
            self.at_once -= 1


class Ledger:
    """Offers streams and notes how they settle."""

    def __init__(self, committer: Committer) -> None:
        self.committer = committer
        self.settled: list[tuple[str, NextStep]] = []
        self.news = asyncio.Event()

    def offer(self, *streams, generation: int = 0) -> None:
        for stream in streams:
            self.committer.offer(
                QueuedStream(stream=stream, generation=generation, settled=self._settled)
            )

    def _settled(self, queued: QueuedStream, step: NextStep) -> None:
        self.settled.append((queued.stream.command_id, step))
        self.news.set()
        if step is not NextStep.PUBLISH:
            self.committer.drop(queued.stream.aggregate_id, before_generation=1)

    async def until(self, count: int) -> None:
        while len(self.settled) < count:
            self.news.clear()
            await self.news.wait()


@pytest.fixture
async def store() -> WatchedStore:
    """A store whose gate is open."""
    store = WatchedStore()
    store.go_on.set()
    return store


@pytest.fixture
async def ledger(store: WatchedStore) -> AsyncIterator[Ledger]:
    """A running committer."""
    committer = Committer(
        store=store, streams_max=100, refusals_max=5, backoff=Backoff(ms_min=1, ms_max=1)
    )
    running = asyncio.create_task(committer.run())
    yield Ledger(committer)
    running.cancel()
    await asyncio.wait({running})


def test_every_outcome_has_its_next_step():
    assert set(NEXT_STEP) == set(AppendOutcome)


async def test_the_outcome_of_each_stream_reaches_its_worker(ledger, stream):
    ledger.offer(stream("a", 1, "c-1"), stream("b", 1, "c-1"))
    await ledger.until(2)
    ledger.offer(stream("a", 2, "c-1"), stream("b", 1, "c-9"), stream("c", None, "c-1"))
    await ledger.until(5)
    assert ledger.settled[2:] == [
        ("c-1", NextStep.LOOK_AGAIN),
        ("c-9", NextStep.LOOK_AGAIN),
        ("c-1", NextStep.PUBLISH),
    ]


async def test_streams_offered_during_an_append_share_the_next_one(ledger, store, stream):
    store.go_on.clear()
    ledger.offer(stream("a", 1))
    await store.appending.wait()
    ledger.offer(*(stream(f"b-{number}", 1) for number in range(20)))
    store.go_on.set()
    await ledger.until(21)
    assert [len(batch) for batch in store.batches] == [1, 20]


async def test_streams_that_a_worker_drops_because_of_an_outcome_are_never_appended(
    ledger, store, stream
):
    await MemoryEventStore.append(store, [stream("a", 1, "foreign")])
    store.go_on.clear()
    ledger.offer(stream("a", 1, "c-1"))
    await store.appending.wait()
    # Decided on top of c-1, waiting for the next batch when c-1 is refused.
    ledger.offer(stream("a", 2, "c-2"), stream("b", 1, "c-3"))
    store.go_on.set()
    await ledger.until(2)
    assert store.batches == [["c-1"], ["c-3"]]
    assert ledger.settled == [("c-1", NextStep.LOOK_AGAIN), ("c-3", NextStep.PUBLISH)]


@pytest.mark.parametrize("error", [RuntimeError("unknown"), OSError("i/o")])
async def test_an_append_that_fails_is_repeated_until_it_works(ledger, store, stream, error):
    store.failures = [error] * 5
    ledger.offer(stream("a", 1), stream("b", 1))
    await ledger.until(2)
    assert [step for _, step in ledger.settled] == [NextStep.PUBLISH] * 2
    assert await store.last_position() == 2


TOO_LONG = DataError("INSERT", {}, ValueError("too long"))


@pytest.mark.parametrize("error", [TOO_LONG, RuntimeError("nobody knows why")])
async def test_a_stream_that_the_store_always_refuses_fails_alone(ledger, store, stream, error):
    store.poison["c-7"] = error
    ledger.offer(*(stream(f"a-{number}", 1, f"c-{number}") for number in range(20)))
    await ledger.until(20)
    assert ledger.settled[7] == ("c-7", Refused(error))
    assert {step for _, step in ledger.settled[:7] + ledger.settled[8:]} == {NextStep.PUBLISH}
    assert await store.last_position() == 19
    # The next batch is not held up by it.
    ledger.offer(stream("b", 1, "later"))
    await ledger.until(21)
    assert ledger.settled[20] == ("later", NextStep.PUBLISH)


@pytest.mark.parametrize("error", [OSError("disk full"), SubjectKeysAway("keys are away")])
async def test_a_database_that_is_away_blames_no_stream(ledger, store, stream, error):
    store.failures = [error] * 50
    ledger.offer(stream("a", 1), stream("b", 1))
    await ledger.until(2)
    assert [step for _, step in ledger.settled] == [NextStep.PUBLISH] * 2


async def test_a_stream_decided_on_a_refused_one_is_not_stored_even_if_its_version_fits(
    ledger, store, stream
):
    # A foreign stream has taken the version of the refused one.
    await MemoryEventStore.append(store, [stream("a", 1, "foreign")])
    store.poison["c-1"] = TOO_LONG
    ledger.offer(stream("a", 1, "c-1"), stream("b", 1, "b-1"), stream("a", 2, "c-2"))
    await ledger.until(3)
    assert ledger.settled == [
        ("c-1", Refused(TOO_LONG)),
        ("b-1", NextStep.PUBLISH),
        ("c-2", NextStep.LOOK_AGAIN),
    ]
    assert [found.command_id for found in await store.read_stream("a")] == ["foreign"]


@given(
    chains=st.lists(st.sampled_from("abc"), min_size=1, max_size=24),
    poison=st.sets(st.integers(0, 23), max_size=4),
    taken=st.sets(st.sampled_from("abc")),
)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_streams_appended_apart_or_together_are_stored_alike(stream, chains, poison, taken):
    """Poisonous streams end their aggregate's chain, as any other that is not stored does."""
    streams, heads = [], dict.fromkeys("abc", 0)
    for number, name in enumerate(chains):
        heads[name] += 1
        streams.append(stream(name, heads[name], f"c-{number}"))

    async def play() -> None:
        store = WatchedStore()
        store.go_on.set()
        for name in taken:
            await MemoryEventStore.append(store, [stream(name, 1, "foreign")])
        store.poison = {f"c-{number}": TOO_LONG for number in poison}
        committer = Committer(
            store=store, streams_max=100, refusals_max=0, backoff=Backoff(ms_min=1, ms_max=1)
        )
        settled: dict[str, NextStep | Refused] = {}
        for each in streams:
            committer.offer(
                QueuedStream(
                    stream=each,
                    generation=0,
                    settled=lambda queued, step: settled.update({queued.stream.command_id: step}),
                )
            )
        running = asyncio.create_task(committer.run())
        while len(settled) < len(streams):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait({running})
        broken: set[str] = set()
        for each in streams:
            if each.aggregate_id in broken:
                expected: NextStep | Refused = NextStep.LOOK_AGAIN
            elif each.command_id in store.poison:
                expected = Refused(TOO_LONG)
            elif each.aggregate_id in taken:
                expected = NextStep.LOOK_AGAIN
            else:
                expected = NextStep.PUBLISH
            assert settled[each.command_id] == expected
            if expected is not NextStep.PUBLISH:
                broken.add(each.aggregate_id)

    asyncio.run(play())


async def test_appends_are_measured_where_there_is_something_to_measure_in(ledger, stream):
    ledger.offer(stream("a", 1, "c-1"))
    await ledger.until(1)
    ledger.committer.times = Histogram()
    ledger.offer(stream("a", 2, "c-2"), stream("b", 1, "c-3"))
    await ledger.until(3)
    assert ledger.committer.times.read().total == 1

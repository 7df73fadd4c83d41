"""Micro-batches into live tables: once, whole, in order, whoever else works on the projection."""

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy.exc import OperationalError

from headrace._runtime.clock import SystemClock
from headrace.errors import ProjectionError
from headrace.projections.batch_transaction import decode_batch
from headrace.projections.definition.fold import fold_streams
from headrace.projections.letters import Letters
from headrace.projections.tables.read_models import ReadModels
from headrace.settings import Settings
from headrace.spark.job import Folded
from headrace.spark.rows import RowCodec
from headrace.spark.stream.batch import Span
from headrace.spark.stream.sink import AppliedBatch, Behind, Known, ProjectionSink, Stopped
from headrace.stores.database.schema import upgrade
from headrace.stores.memory.store import MemoryEventStore
from headrace.transports.base import Incoming, QueueId

QUEUE = ("ledger.events", 0)


class Listed:
    """A batch that is a list."""

    def __init__(self, messages: Sequence[Incoming]) -> None:
        self._messages = list(messages)

    def spans(self) -> list[Span]:
        queues: dict[QueueId, list[int]] = {}
        for message in self._messages:
            queues.setdefault(message.queue, []).append(message.offset)
        return [
            Span(queue=queue, start=min(offsets), end=max(offsets) + 1)
            for queue, offsets in sorted(queues.items())
        ]

    def after(self, offsets: Mapping[QueueId, int]) -> "Listed":
        return Listed([one for one in self._messages if one.offset >= offsets.get(one.queue, 0)])

    def messages(self) -> list[Incoming]:
        return self._messages

    def streams(self) -> Any:
        raise AssertionError("the fold of these tests takes the messages")


class Folding:
    """Folds as executors would; `before` is done once before it answers, in the query's thread."""

    def __init__(self, projection: Any, serializer: Any) -> None:
        self._projection, self._serializer = projection, serializer
        self.before: list[Callable[[], None]] = []
        self.spans: list[Sequence[Span]] = []

    def __call__(self, batch: Any, spans: Sequence[Span], known: Known) -> Folded:
        self.spans.append(spans)
        codec: RowCodec[Any] = RowCodec(self._projection)
        streams = decode_batch(batch.messages(), {}, self._serializer).streams
        versions = {one.key: one.number for one in known.versions(s.aggregate_id for s in streams)}
        new = [one for one in streams if (one.version or 0) > versions.get(one.aggregate_id, 0)]
        rows = {
            one.key: codec.row(one.data) for one in known.rows({one.aggregate_id for one in new})
        }
        changes = fold_streams(self._projection, rows, new)
        while self.before:
            self.before.pop()()
        return Folded(
            rows=pa.chunked_array([[codec.encode(row) for row in changes.values() if row]],
                                  pa.binary()),
            deleted=[key for key, row in changes.items() if row is None],
            versions={one.aggregate_id: one.version or 0 for one in new},
        )  # fmt: skip


class Bench:
    """A sink over a new database, and a topic to make batches of."""

    def __init__(self, ledger: Any, read_models: ReadModels) -> None:
        self.ledger, self.read_models = ledger, read_models
        self.store = MemoryEventStore()
        self.folding = Folding(ledger.accounts, ledger.serializer)
        self.topic: list[Incoming] = []
        self.history: list[Any] = []

    def sink(self, **choices: Any) -> ProjectionSink:
        async def missing(aggregate_id: str, after: int, to: int) -> Sequence[Any]:
            return await self.store.read_stream(aggregate_id, after_version=after, to_version=to)

        given: dict[str, Any] = {
            "settings": Settings(retry_ms_min=1, retry_ms_max=1, projection_batch_max=4),
            "here_max": 1_000,
            "read_models": self.read_models,
            "projection": self.ledger.accounts,
        }
        return ProjectionSink(
            serializer=self.ledger.serializer,
            missing=missing,
            fold=self.folding,
            clock=SystemClock(),
            **(given | choices),
        )

    def publish(self, *streams: Any, queue: int = 0) -> None:
        for one in streams:
            at = sum(message.queue[1] == queue for message in self.topic)
            kind = "rejection" if one.version is None else "events"
            body = self.ledger.serializer.encode_stream(one)
            place = (self.ledger.topic_name, queue)
            self.topic.append(Incoming(place, at, one.aggregate_id, "", {"kind": kind}, body))
            self.history.append(one)

    def book(self, count: int, *, first: int = 1, aggregate: str = "a", queue: int = 0) -> None:
        for version in range(first, first + count):
            event = self.ledger.Booked(partner="p", amount=version)
            self.publish(self.ledger.stream(aggregate, version, event), queue=queue)

    def batch(self, start: int = 0, end: int | None = None) -> Listed:
        return Listed(self.topic[start:end])

    async def take(self, sink: ProjectionSink, batch: Listed) -> AppliedBatch:
        return await asyncio.to_thread(sink.take, batch, asyncio.get_running_loop())

    async def rows(self) -> dict[str, Any]:
        reader = self.read_models.reader(self.ledger.accounts)
        return {row.account_id: row async for row in reader.rows()}

    async def offsets(self) -> dict[QueueId, int]:
        return await self.read_models.offsets("accounts", 1)

    def wanted(self) -> dict[str, Any]:
        once = {(o.aggregate_id, o.version): o for o in self.history if o.version is not None}
        rows = fold_streams(self.ledger.accounts, {}, [once[key] for key in sorted(once)])
        return {key: row for key, row in rows.items() if row}


@pytest.fixture
async def bench(database_url: str, ledger: Any) -> AsyncIterator[Bench]:
    """A new database of each kind."""
    await upgrade(database_url)
    read_models = ReadModels(database_url)
    await read_models.ensure(ledger.accounts)
    yield Bench(ledger, read_models)
    await read_models.aclose()


@pytest.fixture
async def small(ledger: Any, tmp_path: Any) -> AsyncIterator[Bench]:
    """A new database in a file."""
    read_models = ReadModels(f"sqlite:///{tmp_path / 'read.db'}")
    await read_models.ensure(ledger.accounts)
    yield Bench(ledger, read_models)
    await read_models.aclose()


@pytest.mark.parametrize("here_max", [0, 1_000])
async def test_a_batch_that_comes_again_changes_nothing(bench: Any, here_max: int) -> None:
    bench.book(5)
    bench.book(3, aggregate="b", queue=1)
    bench.publish(bench.ledger.rejection("b"), queue=1)
    sink = bench.sink(here_max=here_max)
    taken = await bench.take(sink, bench.batch())
    assert (taken.messages, taken.rows > 0, taken.here) == (9, True, here_max > 0)
    assert taken.offsets == await bench.offsets() == {QUEUE: 5, ("ledger.events", 1): 4}
    assert await bench.rows() == bench.wanted()
    # A checkpoint that is lost or behind: the same, and the same with more behind it.
    again = await bench.take(sink, bench.batch())
    assert (again.messages, again.rows, again.offsets) == (0, 0, taken.offsets)
    bench.book(2, first=6)
    more = await bench.take(sink, bench.batch())
    assert (more.messages, more.offsets[QUEUE]) == (2, 7)
    bench.publish(bench.ledger.stream("b", 4, bench.ledger.Ended()), queue=1)
    await bench.take(sink, bench.batch(8))
    assert await bench.rows() == bench.wanted()
    assert set(await bench.rows()) == {"a"}


async def test_executors_are_given_what_is_new_alone(small: Any) -> None:
    small.book(6)
    sink = small.sink(here_max=2)
    await small.take(sink, small.batch(0, 2))
    taken = await small.take(sink, small.batch())
    assert not taken.here
    assert small.folding.spans == [[Span(queue=QUEUE, start=2, end=6)]]
    assert await small.rows() == small.wanted()


@pytest.mark.parametrize("here_max", [0, 1_000])
async def test_the_second_of_two_jobs_writes_nothing(bench: Any, here_max: int) -> None:
    bench.book(6)
    other = bench.sink()
    loop = asyncio.get_running_loop()
    sink = bench.sink(here_max=here_max)

    def meanwhile() -> None:
        other.take(bench.batch(0, 4), loop)

    if here_max:
        await bench.take(other, bench.batch(0, 4))
    else:
        bench.folding.before.append(meanwhile)
    taken = await bench.take(sink, bench.batch())
    assert (taken.messages, taken.offsets) == (2, {QUEUE: 6})
    assert (await bench.rows())["a"].bookings == 6
    assert await bench.rows() == bench.wanted()
    assert len(bench.folding.spans) == (0 if here_max else 2)


async def test_rows_of_another_queue_that_moved_are_looked_up_again(small: Any) -> None:
    small.book(2)
    small.book(2, aggregate="b", queue=1)
    other, sink = small.sink(), small.sink(here_max=1)
    loop = asyncio.get_running_loop()

    def meanwhile() -> None:
        other.take(small.batch(2), loop)

    small.folding.before.append(meanwhile)
    taken = await small.take(sink, small.batch(0, 2))
    assert taken.messages == 2
    assert len(small.folding.spans) == 2
    assert await small.rows() == small.wanted()


async def test_a_batch_beyond_the_stored_offsets_is_not_taken(small: Any) -> None:
    small.book(6)
    sink = small.sink()
    await small.take(sink, small.batch(0, 2))
    with pytest.raises(Behind, match="stands at 2"):
        await small.take(sink, small.batch(4))
    assert await small.offsets() == {QUEUE: 2}


@pytest.mark.parametrize("here_max", [0, 1_000])
async def test_an_event_that_cannot_be_folded_parks_its_aggregate_alone(
    small: Any, here_max: int
) -> None:
    small.book(3, aggregate="good")
    small.publish(small.ledger.stream("bad", 1, small.ledger.Noted(text="fail")))
    small.publish(small.ledger.stream("bad", 2, small.ledger.Noted(text="later")))
    small.book(3, aggregate="good", first=4)
    sink = small.sink(here_max=here_max)
    taken = await small.take(sink, small.batch())
    assert (taken.messages, taken.here) == (8, True)
    assert (await small.rows())["good"].bookings == 6
    [letter] = await Letters(small.ledger.accounts, small.read_models, small.store).all()
    assert (letter.aggregate_id, letter.version, letter.held) == ("bad", 0, 2)
    assert "this note cannot be folded" in letter.error
    # While something is parked every batch is folded where letters are known.
    small.publish(small.ledger.stream("bad", 3, small.ledger.Noted(text="later still")))
    small.book(2, aggregate="good", first=7)
    await small.take(sink, small.batch(8))
    [letter] = await Letters(small.ledger.accounts, small.read_models, small.store).all()
    assert letter.held == 3
    assert (await small.rows())["good"].bookings == 8


@pytest.mark.parametrize("here_max", [0, 1_000])
async def test_a_stream_that_does_not_decode_parks_its_aggregate_alone(
    small: Any, here_max: int, caplog: pytest.LogCaptureFixture
) -> None:
    small.book(2, aggregate="bad")
    small.book(3, aggregate="good")
    spoiled = small.topic[1].body.replace(b'"amount"', b'"lost"')
    small.topic[1] = small.topic[1]._replace(body=spoiled)
    taken = await small.take(small.sink(here_max=here_max), small.batch())
    assert (taken.messages, taken.parked, taken.here) == (5, 1, True)
    rows = await small.rows()
    assert (rows["good"].bookings, rows["bad"].bookings) == (3, 1)
    [letter] = await Letters(small.ledger.accounts, small.read_models, small.store).all()
    assert (letter.aggregate_id, letter.version) == ("bad", 1)
    assert "/0 offset 1 (aggregate bad) does not decode" in letter.error
    assert "its aggregate waits until it is retried or skipped" in caplog.text
    assert (await small.take(small.sink(here_max=here_max), small.batch())).parked == 1


async def test_more_parked_aggregates_than_may_be_end_the_job(small: Any) -> None:
    small.publish(small.ledger.stream("bad", 1, small.ledger.Noted(text="fail")))
    sink = small.sink(settings=Settings(projection_letters_max=0))
    with pytest.raises(ProjectionError, match="0 aggregates are parked already, and now: "):
        await small.take(sink, small.batch())
    assert await small.offsets() == {}


async def test_gaps_are_filled_from_the_event_store(small: Any) -> None:
    streams = [
        small.ledger.stream("a", version, small.ledger.Booked(partner="p", amount=version))
        for version in range(1, 5)
    ]
    await small.store.append(streams)
    small.publish(streams[0], streams[3], streams[1])
    taken = await small.take(small.sink(), small.batch())
    assert taken.messages == 3
    assert (await small.rows())["a"].bookings == 4


class Failing:
    """Read models whose first transactions fail as a database that is away."""

    def __init__(self, inner: ReadModels, failures: int) -> None:
        self._inner, self.failures = inner, failures

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def transact(self, work: Any) -> Any:
        if self.failures:
            self.failures -= 1
            raise OperationalError("SELECT 1", {}, ConnectionResetError("gone"))
        return await self._inner.transact(work)


async def test_an_outage_of_the_database_is_waited_out(small: Any) -> None:
    small.book(3)
    failing = Failing(small.read_models, 7)
    taken = await small.take(small.sink(read_models=failing), small.batch())
    assert (taken.messages, failing.failures) == (3, 0)
    assert await small.rows() == small.wanted()


async def test_a_job_with_an_end_gives_an_outage_up(small: Any) -> None:
    small.book(3)
    failing = Failing(small.read_models, 7)
    with pytest.raises(ProjectionError, match=r"is away, after 3 attempts: .*gone"):
        await small.take(small.sink(read_models=failing, outages_max=3), small.batch())
    assert failing.failures == 4
    assert await small.offsets() == {}


async def test_a_commit_whose_answer_was_lost_is_not_made_twice(small: Any) -> None:
    small.book(3)

    class Lost(Failing):
        async def transact(self, work: Any) -> Any:
            done = await self._inner.transact(work)
            if self.failures and not isinstance(done, tuple):
                self.failures -= 1
                raise OperationalError("COMMIT", {}, ConnectionResetError("gone"))
            return done

    lost = Lost(small.read_models, 1)
    await small.take(small.sink(read_models=lost), small.batch())
    assert lost.failures == 0
    assert await small.rows() == small.wanted()


async def test_a_paused_projection_waits_and_a_stop_ends_the_wait(small: Any) -> None:
    small.book(3)
    await small.read_models.pause("accounts")
    stop = asyncio.Event()
    sink = small.sink(stop=stop)
    taking = asyncio.create_task(small.take(sink, small.batch()))
    stop.set()
    with pytest.raises(Stopped):
        await taking
    assert await small.offsets() == {}
    await small.read_models.resume("accounts")
    assert (await small.take(small.sink(), small.batch())).messages == 3


async def test_a_newer_version_is_folded_next_to_the_live_rows_and_goes_live(small: Any) -> None:
    small.book(3)
    await small.take(small.sink(), small.batch())
    newer = copy.copy(small.ledger.accounts)
    newer.version, newer.fingerprint = 2, f"2:{newer.fingerprint}"
    sink = small.sink(projection=newer)
    assert (await sink.place()).target.generation == 2
    assert (await small.read_models.state("accounts")).generation == 1
    assert (await small.take(sink, small.batch())).messages == 3
    assert (await sink.place()).target.generation == 2
    state = await small.read_models.state("accounts")
    assert (state.generation, state.version) == (2, 2)
    assert await small.rows() == small.wanted()


async def test_a_generation_with_other_fields_is_refused(small: Any) -> None:
    small.book(1)

    def rename(connection: Any) -> None:
        connection.exec_driver_sql("UPDATE projections SET fingerprint = 'another'")

    await small.read_models.transact(rename)
    with pytest.raises(ProjectionError, match="was built with other fields than Account"):
        await small.take(small.sink(), small.batch())


async def test_an_event_is_tried_again_before_its_aggregate_is_parked(
    small: Any, caplog: pytest.LogCaptureFixture
) -> None:
    folds: list[int] = []
    settings = Settings(retry_ms_min=1, retry_ms_max=1, error_retries_max=2)

    class Counting(Failing):
        async def transact(self, work: Any) -> Any:
            try:
                return await self._inner.transact(work)
            except ProjectionError:
                folds.append(1)
                raise

    small.publish(small.ledger.stream("bad", 1, small.ledger.Noted(text="fail")))
    sink = small.sink(settings=settings, read_models=Counting(small.read_models, 0))
    assert (await small.take(sink, small.batch())).parked == 1
    assert len(folds) == 1 + settings.error_retries_max
    [letter] = await Letters(small.ledger.accounts, small.read_models, small.store).all()
    for told in (letter.traceback, caplog.text):
        assert "in noted" in told  # the fold
        assert "RuntimeError: this note cannot be folded" in told


@pytest.mark.parametrize("here_max", [1_000, 0])
async def test_a_batch_that_was_applied_when_the_stop_came_is_reported(
    small: Any, here_max: int
) -> None:
    small.book(3)
    stop = asyncio.Event()

    class StoppedAfterwards(Failing):
        async def transact(self, work: Any) -> Any:
            done = await self._inner.transact(work)
            if await small.offsets() == {QUEUE: 3}:
                stop.set()
            return done

    sink = small.sink(
        stop=stop, here_max=here_max, read_models=StoppedAfterwards(small.read_models, 0)
    )
    taken = await small.take(sink, small.batch())
    assert stop.is_set()
    assert (taken.messages, taken.rows, taken.offsets) == (3, 1, {QUEUE: 3})


async def test_a_stop_ends_the_pause_of_an_outage(small: Any) -> None:
    small.book(1)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Stopping(Failing):
        async def transact(self, work: Any) -> Any:
            loop.call_soon(stop.set)
            raise OperationalError("SELECT 1", {}, ConnectionResetError("gone"))

    patient = Settings(retry_ms_min=3_600_000, retry_ms_max=3_600_000)
    sink = small.sink(settings=patient, stop=stop, read_models=Stopping(small.read_models, 0))
    with pytest.raises(Stopped):
        await small.take(sink, small.batch())

"""Queries one after the other from where the table stands, with Spark's side replaced."""

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from structlog.testing import capture_logs

from headrace.errors import ProjectionError
from headrace.projections.tables.read_models import ReadModels
from headrace.settings import Settings
from headrace.spark.stream import continuous
from headrace.spark.stream.batch import Span
from headrace.spark.stream.continuous import follow
from headrace.transports.base import Incoming
from headrace_mq.errors import ConnectionLost
from headrace_mq.protocol.bodies import QueueRange

QUICK = Settings(retry_ms_min=1, retry_ms_max=1, error_retries_max=3)
AWAY = "Traceback …\nheadrace_mq.errors.ConnectionLost: no broker answers at 127.0.0.1:1"


class Query:
    """Runs a script: what happens between the query's start and its end."""

    def __init__(self, script: Callable[[], None]) -> None:
        self._script = script
        self.stopped = threading.Event()

    def awaitTermination(self) -> None:  # noqa: N802 - PySpark's spelling
        self._script()

    def stop(self) -> None:
        self.stopped.set()


class Session:
    """A session whose queries are scripts; its one builder answers every call of PySpark's chain."""

    sparkContext = None  # noqa: N815 - PySpark's spelling

    def __init__(self) -> None:
        self.scripts: list[Callable[[Callable[[Any], None]], None]] = []
        self.asked: list[dict[str, str]] = []
        self.triggers: list[dict[str, Any]] = []
        self.queries: list[Query] = []
        self.checkpoints: list[str] = []
        self._take: Any = None

    def __getattr__(self, name: str) -> Any:
        if name in {"conf", "dataSource", "readStream", "writeStream"}:
            return self
        if name in {"format", "load", "set", "register"}:
            return lambda *_: self
        raise AttributeError(name)

    def options(self, **given: str) -> "Session":
        self.asked.append(dict(given))
        return self

    def option(self, name: str, value: str) -> "Session":
        if name == "checkpointLocation":
            self.checkpoints.append(value)
        else:
            self.asked[-1][name] = value
        return self

    def foreachBatch(self, take: Any) -> "Session":  # noqa: N802 - PySpark's spelling
        self._take = take
        return self

    def trigger(self, **given: Any) -> "Session":
        self.triggers.append(given)
        return self

    def start(self) -> Query:
        script, take = self.scripts.pop(0), self._take
        query = Query(lambda: script(lambda frame: take(frame, 0)))
        self.queries.append(query)
        return query


class Frame:
    """A batch that is a list, and the frame that it was made of."""

    def __init__(self, messages: list[Incoming]) -> None:
        self._messages = messages
        self.persisted: list[str] = []

    def persist(self) -> None:
        self.persisted.append("persist")

    def unpersist(self) -> None:
        self.persisted.append("unpersist")

    def spans(self) -> list[Span]:
        first, last = self._messages[0], self._messages[-1]
        return [Span(queue=first.queue, start=first.offset, end=last.offset + 1)]

    def after(self, offsets: Any) -> "Frame":
        return Frame([one for one in self._messages if one.offset >= offsets.get(one.queue, 0)])

    def messages(self) -> list[Incoming]:
        return self._messages


class Bench:
    """A projection, a topic and a session to follow it with."""

    def __init__(self, ledger: Any, url: str) -> None:
        self.ledger, self.url, self.session = ledger, url, Session()

    def frame(self, first: int, last: int) -> Frame:
        booked = self.ledger.Booked(partner="p", amount=1)
        encode = self.ledger.serializer.encode_stream
        return Frame(
            [
                Incoming(("ledger.events", 0), version - 1, "a", "", {"kind": "events"},
                         encode(self.ledger.stream("a", version, booked)))
                for version in range(first, last + 1)
            ]
        )  # fmt: skip

    async def follow(self, **choices: Any) -> Any:
        given = {
            "broker": "127.0.0.1:1", "read_models_url": self.url, "settings": QUICK,
            "spark": self.session,
        }  # fmt: skip
        return await follow(self.ledger.path, "accounts", **(given | choices))


@pytest.fixture
def bench(ledger: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(continuous, "MicroBatch", lambda frame: frame)
    monkeypatch.setattr(continuous, "fetch_ranges", lambda broker, topics, **_known: [])
    return Bench(ledger, f"sqlite:///{tmp_path / 'read.db'}")


async def bookings(bench: Bench) -> int:
    read_models = ReadModels(bench.url)
    try:
        reader = read_models.reader(bench.ledger.accounts)
        return sum([row.bookings async for row in reader.rows()])
    finally:
        await read_models.aclose()


async def test_a_query_begins_where_the_table_stands(bench: Bench) -> None:
    taken: list[Any] = []
    frames = [bench.frame(1, 3), bench.frame(4, 5)]
    bench.session.scripts = [lambda take: take(frames[0]), lambda take: take(frames[1])]
    first = await bench.follow(available_now=True, batch_max=7, report=taken.append)
    second = await bench.follow(available_now=True)
    assert (first.batches, first.messages, second.messages) == (1, 3, 2)
    assert [one.messages for one in taken] == [3]
    fresh, onwards = bench.session.asked
    assert "startingOffsets" not in fresh
    assert (fresh["topic"], fresh["maxRecordsPerBatch"]) == ("ledger.events", "7")
    assert json.loads(onwards["startingOffsets"]) == {"ledger.events": {"0": 3}}
    assert bench.session.triggers == [{"availableNow": True}] * 2
    assert second.offsets == {("ledger.events", 0): 5}
    assert await bookings(bench) == 5
    assert [frame.persisted for frame in frames] == [["persist", "unpersist"]] * 2


async def test_no_checkpoint_outlives_its_query(bench: Bench) -> None:
    bench.session.scripts = [lambda take: None, lambda take: None]
    await bench.follow(available_now=True)
    await bench.follow(available_now=True)
    first, second = bench.session.checkpoints
    assert first != second
    assert not await asyncio.to_thread(Path(first.removeprefix("file://")).exists)
    assert all(query.stopped.is_set() for query in bench.session.queries)


def fail(reason: str) -> Callable[[Any], None]:
    def script(take: Any) -> None:
        raise PySparkException(reason)

    return script


BUSY = "[STREAM_FAILED] Query: Python worker failed to connect back. SQLSTATE: XXKST"


@pytest.mark.parametrize("reason", [AWAY, BUSY])
async def test_what_passes_is_waited_out(bench: Bench, reason: str) -> None:
    bench.session.scripts = [fail(reason)] * 9 + [lambda take: take(bench.frame(1, 2))]
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    with capture_logs() as logs:
        done = await bench.follow(
            stop=stop, report=lambda taken: loop.call_soon_threadsafe(stop.set)
        )
    assert (done.restarts, done.messages) == (9, 2)
    attempts = [one["attempt"] for one in logs if "will try again" in one["event"]]
    assert attempts == list(range(1, 10))
    assert await bookings(bench) == 2


async def test_a_job_with_an_end_gives_up_after_some_attempts(bench: Bench) -> None:
    bench.session.scripts = [fail(AWAY)] * 3
    with pytest.raises(ProjectionError, match="no broker answers at 127"):
        await bench.follow(available_now=True)
    assert bench.session.scripts == []


async def test_what_no_waiting_cures_ends_the_job(bench: Bench) -> None:
    bench.session.scripts = [fail("x\nheadrace_mq.errors.OffsetOutOfRange: it was deleted")]
    with pytest.raises(ProjectionError, match="streaming query failed: it was deleted"):
        await bench.follow()


async def test_a_topic_that_begins_behind_the_table_is_refused_before_it_is_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, away = 0, 0

    def held(broker: str, topics: list[str], **_known: Any) -> list[QueueRange]:
        nonlocal away
        away -= 1
        if away >= 0:
            raise ConnectionLost("no broker answers at 127.0.0.1:1")
        return [QueueRange("ledger.events", 0, first, 9, start=0)]

    monkeypatch.setattr(continuous, "fetch_ranges", held)
    bench.session.scripts = [lambda take: take(bench.frame(1, 3)), lambda take: None]
    assert (await bench.follow(available_now=True)).offsets == {("ledger.events", 0): 3}
    # What the table has passed may be gone; an outage, seen at the start or later, is waited out.
    first, away = 3, 3
    done = await bench.follow(available_now=True)
    assert (done.restarts, done.messages, bench.session.scripts) == (2, 0, [])
    first, away = 4, 2
    sentence = (
        "projection accounts: ledger.events/0 begins at offset 4, so that events from 3 on are gone"
    )
    with pytest.raises(ProjectionError, match=sentence):
        await bench.follow(available_now=True)
    # Nor does a job with an end wait for as long as it takes.
    away = 9
    with pytest.raises(ProjectionError, match="no broker answers at 127"):
        await bench.follow(available_now=True)
    assert len(bench.session.queries) == 2


async def test_a_sinks_own_error_is_raised_and_not_sparks(bench: Bench) -> None:
    def script(take: Any) -> None:
        with pytest.raises(ProjectionError):
            take(bench.frame(1, 1))
        raise PySparkException("py4j: something was raised")

    bench.session.scripts = [script]
    bad = bench.ledger.stream("a", 1, bench.ledger.Noted(text="fail"))
    frame = bench.frame(1, 1)
    frame._messages = [frame._messages[0]._replace(body=bench.ledger.serializer.encode_stream(bad))]
    bench.frame = lambda first, last: frame  # type: ignore[method-assign]  # one that cannot be folded
    with pytest.raises(ProjectionError, match="0 aggregates are parked already"):
        await bench.follow(settings=Settings(projection_letters_max=0))


async def test_a_projection_that_was_set_back_is_followed_from_there(bench: Bench) -> None:
    frames = [bench.frame(1, 3), bench.frame(6, 7), bench.frame(4, 7)]

    def beyond(take: Any) -> None:
        try:
            take(frames[1])
        finally:
            raise PySparkException("py4j: something was raised")

    bench.session.scripts = [lambda take: take(frames[0]), beyond, lambda take: take(frames[2])]
    await bench.follow(available_now=True)
    done = await bench.follow(available_now=True)
    assert (done.restarts, done.messages) == (1, 4)
    assert await bookings(bench) == 7


async def test_a_stop_lets_the_batch_under_way_end(bench: Bench) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    query_stopped = threading.Event()

    def script(take: Any) -> None:
        take(bench.frame(1, 2))
        assert bench.session.queries[-1].stopped.wait(30)
        query_stopped.set()

    bench.session.scripts = [script]
    done = await bench.follow(stop=stop, report=lambda taken: loop.call_soon_threadsafe(stop.set))
    assert query_stopped.is_set()
    assert (done.messages, await bookings(bench)) == (2, 2)
    assert bench.session.triggers == [{"processingTime": "200 milliseconds"}]


async def test_a_job_that_is_stopped_before_it_began_does_nothing(bench: Bench) -> None:
    stop = asyncio.Event()
    stop.set()
    done = await bench.follow(stop=stop)
    assert (done.batches, bench.session.queries) == (0, [])


async def test_a_connect_session_is_refused(bench: Bench) -> None:
    with pytest.raises(ProjectionError, match="Spark Connect has elsewhere; use --master"):
        await bench.follow(spark=object())


async def test_a_job_goes_back_to_where_brokers_lost_messages_and_applies_none_twice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch, lossy, changed = 3, 0, 2
    asked: list[Any] = []

    def held(broker: str, topics: list[str], known: Any = None) -> list[QueueRange]:
        # Once each job looks whether there is a topic.
        if known is None:
            return []
        asked.append(dict(known))
        lost = 0 < known.get(("ledger.events", 0), 0) < lossy
        return [QueueRange("ledger.events", 0, 0, 9, 0, epoch, changed if lost else -1)]

    monkeypatch.setattr(continuous, "fetch_ranges", held)
    bench.session.scripts = [lambda take: take(bench.frame(1, 4))]
    assert (await bench.follow(available_now=True)).offsets == {("ledger.events", 0): 4}
    # While no job runs, a broker leads that has two of the four; then it gets others.
    epoch = lossy = 5
    bench.session.scripts = [
        fail("x\nheadrace_mq.errors.OffsetOutOfRange: brokers lost its messages from 2 on"),
        lambda take: take(Frame(bench.frame(3, 5).messages())),
    ]
    done = await bench.follow(available_now=True)
    assert (done.restarts, done.offsets) == (1, {("ledger.events", 0): 5})
    queue = ("ledger.events", 0)
    assert asked == [{}, {queue: 3}, {queue: 5}]
    # A query hears in which epochs its offsets are right; the first one begins where the topic does.
    assert [each.get("startingEpochs") for each in bench.session.asked] == [
        None,
        '{"ledger.events":{"0":5}}',
        '{"ledger.events":{"0":5}}',
    ]
    # Versions 3 and 4 were there already.
    assert await bookings(bench) == 5

"""A topic whose sealed events are trimmed: who may, what goes on, and what says that events are gone."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pyspark.errors import StreamingQueryException

from headrace import Settings
from headrace._runtime.backoff import Backoff
from headrace.errors import ProjectionError
from headrace.rebuild.local.rebuild import rebuild as replay
from headrace.spark.analysis.events import read_events
from headrace.spark.analysis.export import export_events
from headrace.spark.columns.rebuild import rebuild as rebuild_columns
from headrace.spark.history.seal import seal_history, sealing, verify_history
from headrace.spark.history.trim import Trimmed, trim_history
from headrace.spark.rebuild import rebuild as rebuild_spark
from headrace.spark.stream.continuous import follow
from headrace.spark.stream.events import read_event_stream
from headrace.stores.database.schema import upgrade
from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.server import Broker
from headrace_mq.errors import TopicInUse
from headrace_mq.message import QueueRef
from headrace_mq.settings import BrokerSettings, StoreSettings
from samples.bank import app
from samples.bank.accounts import Deposit, Deposited, OpenAccount
from samples.bank.read_models import balances, daily_totals

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

APP, TOPIC = "samples.bank:app", "bank.events"
PROJECTIONS = [balances, daily_totals]
ACCOUNTS = [f"account-{number}" for number in range(8)]
GONE = "--from-export DIR"
LOOKS = Backoff(ms_min=10, ms_max=10)

T = TypeVar("T")


@pytest.fixture
async def small_segments(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker whose log is cut into small files."""
    store = StoreSettings(directory=tmp_path / "broker", segment_bytes=64 << 10)
    broker = Broker(BrokerSettings(store=store, port=0, offsets_flush_ms=20))
    await broker.start()
    yield broker
    await broker.aclose()


async def deposit(running: Any, name: str) -> None:
    """A deposit into each account, which is in the read models when this returns."""
    await asyncio.gather(
        *(
            running.bus.execute(
                Deposit(account_id=each, transaction_id=f"{name}-{each}", amount=7),
                wait_for=PROJECTIONS,
            )
            for each in ACCOUNTS
        )
    )


async def past(running: Any, work: Callable[[], Awaitable[T]]) -> T:
    """Does something once readers are far enough; each round gives them something to do."""
    async with asyncio.timeout(60):
        for number in count():
            try:
                return await work()
            except (ProjectionError, TopicInUse):
                await deposit(running, f"more-{number}")
    raise AssertionError


async def refused_without_history(
    spark: Any, choices: dict[str, Any], folder: Path, trimmed: Trimmed
) -> None:
    """All that needs the topic's begin is refused, and says what to do."""
    for rebuild in (replay, rebuild_spark):
        more = {} if rebuild is replay else {"spark": spark}
        with pytest.raises(ProjectionError, match=GONE):
            await rebuild(APP, "balances", **choices, **more)
    with pytest.raises(ProjectionError, match="--held-only"):
        await asyncio.to_thread(
            export_events,
            APP,
            folder,
            broker=choices["broker"],
            event_store_url=choices["event_store_url"],
        )
    begun = await asyncio.to_thread(
        export_events,
        APP,
        folder,
        broker=choices["broker"],
        event_store_url=choices["event_store_url"],
        held_only=True,
    )
    assert begun.start == trimmed.first
    with pytest.raises(ProjectionError, match="earlier messages were trimmed"):
        await asyncio.to_thread(read_events, spark, APP, broker=choices["broker"])


def stream_deposits(spark: Any, broker: str, folder: Path) -> None:
    """Writes the deposits that a query with a checkpoint in a folder has not written yet."""
    events = read_event_stream(spark, APP, broker=broker).of(Deposited)
    writer = events.writeStream.format("parquet").option("path", str(folder / "events"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


async def test_a_trimmed_topic_says_what_is_gone_and_history_stands_in_for_it(
    small_segments: Broker, read_models_url: str, spark: Any, tmp_path: Path
) -> None:
    broker, store = small_segments.address, f"sqlite:///{tmp_path / 'events.db'}"
    folder = tmp_path / "history"
    for url in (store, read_models_url):
        await upgrade(url)
    settings = Settings(
        broker=broker, event_store=store, read_models=read_models_url, lineage_check_ms=100
    )
    choices: dict[str, Any] = {
        "broker": broker, "read_models_url": read_models_url, "event_store_url": store,
    }  # fmt: skip

    def seal() -> Any:
        with sealing(folder):
            return seal_history(APP, folder, broker=broker, event_store_url=store)

    async def trim(**how: Any) -> Trimmed:
        return await trim_history(
            APP, folder, broker=broker, read_models_url=read_models_url, **how
        )

    async with app.run(settings) as running, AdminClient(broker) as admin:
        opened = (OpenAccount(account_id=each, owner=each) for each in ACCOUNTS)
        await asyncio.gather(*(running.bus.execute(each, wait_for=PROJECTIONS) for each in opened))
        for number in range(40):
            await deposit(running, f"t{number}")
        with pytest.raises(ProjectionError, match="holds no exported events"):
            await trim()
        assert (await asyncio.to_thread(seal)).differences == []
        await deposit(running, "tail")

        # One reader after the other that is not past what would go is named.
        ends = {one.queue_id: one.end for one in await admin.ranges([TOPIC])}
        with pytest.raises(ProjectionError, match="is sealed up to offset"):
            await trim(before=ends)
        await past(running, lambda: trim(dry_run=True))
        longest = max(ends, key=lambda queue: ends[queue])
        await admin.set_offsets("late", {QueueRef(TOPIC, longest): 1})
        with pytest.raises(ProjectionError, match="group 'late' is at offset 1"):
            await trim()
        await admin.delete_group("late")
        trimmed = await trim()
        assert trimmed.segments > 0
        assert any(trimmed.first.values())
        # Running readers go on, and so does sealing.
        await deposit(running, "behind")
        assert [each.part for each in (await asyncio.to_thread(seal)).sealed] == [2]

    found = await asyncio.to_thread(verify_history, APP, folder, event_store_url=store)
    assert (found.differences, found.sealed) == ([], 2)
    await refused_without_history(spark, choices, tmp_path / "new", trimmed)
    for name in ("balances", "daily_totals"):
        columns = await rebuild_columns(APP, name, **choices, export=folder)
        in_spark = await rebuild_spark(APP, name, **choices, export=folder, spark=spark)
        from_store = await replay(APP, name, **choices, source="store")
        for report in (columns, in_spark, from_store):
            assert (report.switched, report.mismatches, report.compared) == (True, 0, report.rows)


async def test_a_reader_that_begins_before_what_is_held_stands_still_and_says_what_to_do(
    small_segments: Broker, spark: Any, tmp_path: Path
) -> None:
    broker, store = small_segments.address, f"sqlite:///{tmp_path / 'events.db'}"
    urls = [f"sqlite:///{tmp_path / name}.db" for name in ("first", "second")]
    for url in (store, *urls):
        await upgrade(url)

    def settings(url: str) -> Settings:
        return Settings(broker=broker, event_store=store, read_models=url)

    async with app.run(settings(urls[0])) as running, AdminClient(broker) as admin:
        opened = (OpenAccount(account_id=each, owner=each) for each in ACCOUNTS)
        await asyncio.gather(*(running.bus.execute(each, wait_for=PROJECTIONS) for each in opened))
        for number in range(40):
            await deposit(running, f"t{number}")
        ends = {one.queue_id: one.end for one in await admin.ranges([TOPIC])}
        await asyncio.to_thread(stream_deposits, spark, broker, tmp_path / "begun")
        released = await past(running, lambda: admin.release(TOPIC, ends))
        assert released.segments > 0
        await deposit(running, "tail")
    # A query goes on with its checkpoint; one without needs what is gone.
    await asyncio.to_thread(stream_deposits, spark, broker, tmp_path / "begun")
    rows = spark.read.parquet(str(tmp_path / "begun" / "events"))
    assert rows.where("transaction_id like 'tail-%'").count() == len(ACCOUNTS)
    with pytest.raises(StreamingQueryException, match="earlier messages were trimmed"):
        await asyncio.to_thread(stream_deposits, spark, broker, tmp_path / "fresh")
    # Other read models, as of a new installation: no projection has read anything.
    async with app.run(settings(urls[1])) as running:
        async with asyncio.timeout(60):
            while not all(each.status.failed for each in running.projections):
                await LOOKS.pause(1)
        assert "--from-export DIR` or `--from store`" in (running.projections[0].status.error or "")
    choices: dict[str, Any] = {
        "broker": broker, "read_models_url": urls[1], "event_store_url": store,
    }  # fmt: skip
    following: dict[str, Any] = {**choices, "spark": spark, "available_now": True}
    with pytest.raises(ProjectionError, match=GONE):
        await follow(APP, "balances", **following)
    for name in app.projections:
        report = await replay(APP, name, **choices, source="store", verify=False)
        assert report.switched, report.reason
    assert (await follow(APP, "balances", **following)).batches == 0
    async with app.run(settings(urls[1])) as running:
        await deposit(running, "again")
        row = await running.read(balances).get(ACCOUNTS[1])
        assert row is not None
        assert row.balance >= 7 * 41

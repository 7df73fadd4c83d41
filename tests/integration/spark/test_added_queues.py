"""Queues that are added to the event topic, at any time, change no row and no count."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.domain.stream import EventStream
from headrace.rebuild.local.partial_rebuild import Wanted
from headrace.rebuild.local.rebuild import rebuild as replay
from headrace.spark.analysis.events import read_events
from headrace.spark.rebuild import rebuild
from headrace.stores.database.schema import upgrade
from headrace.stores.open import open_event_store
from headrace_mq.admin.client import AdminClient

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

APP = "ledger_app:app"
DECLARED = "declared_app:app"
TOPIC = "ledger.events"


async def add_queues(address: str, count: int) -> None:
    async with AdminClient(address) as admin:
        assert (await admin.add_queues(TOPIC, count)).queues == count


def without_rejections(history: list[EventStream]) -> list[EventStream]:
    return [one for one in history if one.version is not None]


def booked(events: Any) -> set[tuple[str, int, int]]:
    rows = events.select("context.*").select("aggregate_id", "version", "sequence").collect()
    found = {tuple(row) for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.fixture
def grow(broker: Any, make_history: Any, publish: Any) -> Callable[..., Awaitable[Any]]:
    """Makes a topic of 3 queues, then 8, then 13, with versions of each aggregate before and after."""

    async def make(catch_up: Callable[[], Awaitable[None]] | None = None) -> Any:
        first, second = make_history(40, 6), make_history(40, 5, first=7, seed=8)
        third = make_history(40, 4, first=12, seed=9)
        # Some stand there again, in another queue.
        again = without_rejections(first)[30:90]
        await publish(first)
        for count, wave in ((8, [*second, *again]), (13, third)):
            if catch_up:
                await catch_up()
            await add_queues(broker.address, count)
            await publish(wave)
        if catch_up:
            await catch_up()
        return SimpleNamespace(
            streams=without_rejections([*first, *second, *third]), duplicates=len(again)
        )

    return make


async def test_typed_events_come_once_and_are_counted_right(
    spark: Any, broker: Any, ledger: Any, grow: Any
) -> None:
    grown = await grow()
    events = read_events(spark, APP, broker=broker.address)
    told = events.report()
    assert told.events == sum(len(one.events) for one in grown.streams)
    assert (told.duplicates, told.filled) == (grown.duplicates, 0)
    assert (told.missing, told.gaps) == ((), 0)
    assert booked(events.of(ledger.Booked)) == {
        (context.aggregate_id, context.version, context.sequence)
        for one in grown.streams
        for event, context in one.contexts()
        if type(event) is ledger.Booked
    }


@pytest.mark.parametrize(
    ("read_models_url", "name"),
    [("sqlite", "accounts"), ("postgresql", "accounts"), ("postgresql", "partners")],
    indirect=["read_models_url"],
)
async def test_a_rebuild_equals_live(
    rows_of: Any, spark: Any, broker: Any, ledger: Any, catch_up_live: Any, publish: Any,
    make_history: Any, read_models_url: str, name: str, grow: Any,
) -> None:  # fmt: skip
    projection = ledger.app.projections[name]
    grown = await grow(lambda: catch_up_live(read_models_url, projection))
    live = await rows_of(read_models_url, projection)
    chosen = {"broker": broker.address, "read_models_url": read_models_url}
    report = await rebuild(APP, name, spark=spark, **chosen)
    assert (report.switched, report.mismatches, report.compared) == (True, 0, len(live))
    assert report.events == sum(len(one.events) for one in grown.streams)
    assert (report.duplicates, report.gaps, report.filled) == (grown.duplicates, 0, 0)
    assert report.tasks == 2
    assert len(report.queues) == len([end for end in report.end_offsets.values() if end])
    key = min(live)
    some = await rebuild(APP, name, spark=spark, wanted=Wanted(keys=frozenset({key})), **chosen)
    assert (some.mended, some.mismatches) == (0, 0)
    late = without_rejections(make_history(40, 2, first=16, seed=10))
    await publish(late)
    await catch_up_live(read_models_url, projection)
    onto = await rebuild(APP, name, spark=spark, start="offsets", **chosen)
    assert (onto.switched, onto.mismatches) == (True, 0)


@pytest.mark.parametrize("phase", ["begin", "capture", "fold", "load", "switch"])
async def test_queues_may_be_added_between_any_two_steps(
    spark: Any, broker: Any, ledger: Any, publish: Any, make_history: Any, catch_up_live: Any,
    rows_of: Any, sqlite_url: str, phase: str,
) -> None:  # fmt: skip
    await publish(make_history(20, 4))
    await catch_up_live(sqlite_url, ledger.partners)
    late = make_history(20, 3, first=5, seed=3)

    async def grow() -> None:
        await add_queues(broker.address, 7)
        await publish(late)
        await catch_up_live(sqlite_url, ledger.partners)

    report = await rebuild(
        APP, "partners", broker=broker.address, read_models_url=sqlite_url, spark=spark,
        report=meanwhile(phase, grow),
    )  # fmt: skip
    assert (report.switched, report.reason, report.mismatches) == (True, "", 0)
    assert report.caught_up == (0 if phase in {"begin", "capture"} else len(late))


async def test_a_replay_counts_each_version_once(
    broker: Any, ledger: Any, grow: Any, sqlite_url: str
) -> None:
    grown = await grow()
    store_url = sqlite_url.replace("read.db", "events.db")
    store = await open_event_store(store_url, ledger.app.serializer)
    await store.append(grown.streams)
    await store.aclose()
    await upgrade(sqlite_url)
    report = await replay(
        APP, "partners", broker=broker.address, read_models_url=sqlite_url,
        event_store_url=store_url, verify=False,
    )  # fmt: skip
    assert report.events == sum(len(one.events) for one in grown.streams)
    # What another queue has, and is read later, came from the store; each time there is one more of it.
    assert report.duplicates == grown.duplicates + report.filled
    assert report.filled > 0


def meanwhile(phase: str, work: Callable[[], Awaitable[None]]) -> Callable[[str, int], None]:
    def report(name: str, ahead: int) -> None:
        if name == phase:
            thread = threading.Thread(target=lambda: asyncio.run(work()))
            thread.start()
            thread.join()

    return report

"""Queues that are added to the event topic, at any time, or spread over two groups of brokers, change no row and no count."""

import asyncio
import random
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.domain.stream import EventStream
from headrace.projections.definition.fold import fold_streams
from headrace.rebuild.local.partial_rebuild import Wanted
from headrace.rebuild.local.rebuild import rebuild as replay
from headrace.spark.analysis.events import read_events
from headrace.spark.executor.plan import FoldPlan, module_folder
from headrace.spark.job import run_fold
from headrace.spark.native import plan_native
from headrace.spark.rebuild import rebuild
from headrace.spark.rows import RowCodec
from headrace.spark.tasks import divide
from headrace.stores.database.schema import upgrade
from headrace.stores.open import open_event_store
from headrace_mq.admin.client import AdminClient
from headrace_mq.admin.spread.division import spread_topic
from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message
from headrace_mq.settings import ProducerSettings
from headrace_mq.spark.offsets import QueueSlice, plan_slices
from headrace_mq.spark.reader import fetch_ranges, read_columns

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

APP = "ledger_app:app"
TOPIC = "ledger.events"
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)

# A name server, and two groups of one broker each, in one process.
GROUPS = """
import asyncio
from headrace_mq.broker.registration import Registrar
from headrace_mq.protocol.names.routes import ALONE, Register
from headrace_mq.testing.embedded import broker, name_server

def register(server, group, place):
    said = Register("c", group, place, ALONE, 1, [place])
    made = Registrar(server.address, lambda: said)
    made.start()
    return made

async def main():
    async with name_server() as server, broker() as one, broker() as other:
        kept = [register(server, *each) for each in (("g1", one), ("g2", other))]
        while len(server.routes("", "").brokers) < len(kept):
            await asyncio.sleep(0)
        print(f"nameserver://{server.address}/c/g1,g2", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


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
def random_app(declared: Any) -> Iterator[Any]:
    """Random projections of the events of `declared_app`, importable here and in workers."""
    import random_app

    random_app.__dict__.update(
        {name: getattr(declared, name) for name in ("Paid", "Moved", "Renamed")}
    )
    yield random_app
    sys.modules.pop("random_app")


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


@pytest.fixture
def spread_address() -> Iterator[str]:
    """The address of two groups of brokers."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", GROUPS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    try:
        assert address, process.communicate()[1]
        yield address
    finally:
        process.kill()
        process.communicate()


async def test_a_rebuild_reads_a_topic_that_is_spread_over_two_groups_of_brokers(
    spark: Any, spread_address: str, ledger: Any, make_history: Any, rows_of: Any, sqlite_url: str
) -> None:
    """Each group has half of the queues; Spark's tasks read from both."""
    history = make_history(20, 3)
    await spread_topic(spread_address, TOPIC, 4, retention="forever")
    patient = ProducerSettings(send_timeout_ms=120_000)
    async with Producer(spread_address, settings=patient) as producer:
        await producer.send_many(
            Message(
                topic=TOPIC, key=one.aggregate_id, tag=one.aggregate_type,
                headers={"kind": "rejection" if one.version is None else "events"},
                body=ledger.app.serializer.encode_stream(one),
            )
            for one in history
        )  # fmt: skip
    held = fetch_ranges(spread_address, [TOPIC])
    assert [one.queue_id for one in held] == [0, 1, 2, 3]
    assert all(sum(one.end for one in held[half : half + 2]) for half in (0, 2)), "both have some"
    await upgrade(sqlite_url)
    report = await rebuild(
        APP,
        "partners",
        broker=spread_address,
        read_models_url=sqlite_url,
        spark=spark,
        verify=False,
    )
    whole = without_rejections(history)
    assert (report.switched, report.reason, report.mismatches) == (True, "", 0)
    assert report.events == sum(len(one.events) for one in whole)
    assert (report.duplicates, report.gaps) == (0, 0)
    wanted = fold_streams(ledger.partners, {}, whole)
    found = await rows_of(sqlite_url, ledger.partners)
    assert found == {key: row for key, row in wanted.items() if row is not None}


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


@pytest.mark.parametrize("seed", [2, 3])
async def test_random_projections_are_the_same_as_sql_and_in_python_however_reading_is_divided(
    spark: Any, broker: Any, random_app: Any, seed: int
) -> None:
    chance = random.Random(seed)
    history = random_history(random_app, chance)
    late = chance.choices(history, k=30)
    cuts = [0, *sorted(chance.sample(range(1, len(history)), 2)), len(history)]
    queues = chance.randrange(1, 4)
    encode = random_app.app.serializer.encode_stream
    async with Producer(broker.address) as producer:
        await producer.create_topic(TOPIC, queues=queues, retention="forever")
        for start, end in pairwise(cuts):
            if start:
                queues += chance.randrange(1, 5)
                await add_queues(broker.address, queues)
            for one in [*history[start:end], *(late if end == len(history) else ())]:
                # One at a time, so that the broker's clock orders them between queues.
                await producer.send(
                    Message(topic=TOPIC, key=one.aggregate_id, headers={}, body=encode(one))
                )
    slices = tuple(plan_slices(fetch_ranges(broker.address, [TOPIC]), starting={}))
    # Between aggregates the order is that in which the broker stored them.
    decode = random_app.app.serializer.decode_stream
    stored: dict[tuple[str, int | None], EventStream] = {}
    for _, body in sorted(in_place(broker.address, slices)):
        one = decode(body)
        stored.setdefault((one.aggregate_id, one.version), one)
    size = dict.fromkeys((piece.queue for piece in slices), 100.0)
    for name, projection in random_app.app.projections.items():
        plan = FoldPlan(
            app="random_app:app", folder=module_folder("random_app:app"), projection=name,
            broker=broker.address, event_store=None, slices=slices,
        )  # fmt: skip
        plan = divide(plan, size, cores=chance.randrange(1, 6), task_bytes_min=2_000, together=True)
        native = plan_native(random_app.app.serializer, projection)
        made = [
            run_fold(
                spark, plan, native=way, base=None,
                keyed_by_aggregate=projection.keyed_by_aggregate,
            )
            for way in ([None] if native is None else [native, None])
        ]  # fmt: skip
        wanted = fold_streams(projection, {}, list(stored.values()))
        for folded in made:
            codec: RowCodec[Any] = RowCodec(projection)
            rows = [codec.row(row) for chunk in folded.row_chunks(1_000) for row in chunk]
            assert {projection.key_form.text_of(row): repr(row) for row in rows} == {
                key: repr(row) for key, row in wanted.items() if row is not None
            }
            assert folded.versions == {one.aggregate_id: 15 for one in history}
            assert folded.counts["events"] == sum(len(one.events) for one in history)
            assert folded.counts["duplicates"] == len(late)
            assert (folded.counts["gaps"], folded.counts["filled"]) == (0, 0)


def in_place(address: str, slices: Sequence[QueueSlice]) -> Iterator[tuple[Any, bytes]]:
    """Yields bodies with the places that order them."""
    for piece in slices:
        for header, columns, first, last in read_columns(address, piece):
            for number in range(first, last):
                place = (header.appended_at_ms, piece.queue, header.base_offset + number)
                yield place, columns.bodies[number]


def random_history(declared: Any, chance: random.Random) -> list[EventStream]:
    """Streams of several aggregates in the order in which they are published, one at a time."""

    def event() -> Any:
        if chance.random() < 0.6:
            return declared.Paid(
                partner=chance.choice([None, "p", "q", "ü'\\"]),
                amount=chance.randint(-99, 99),
                price=Decimal(chance.randint(-500, 500)).scaleb(-chance.randrange(4)),
                on=NOW.date(),
                at=chance.choice([None, NOW - timedelta(seconds=chance.randrange(99))]),
                cash=chance.random() < 0.4,
            )
        if chance.random() < 0.8:
            source, target = (chance.choice("pqr") for _ in range(2))
            return declared.Moved(source=source, target=target, amount=chance.randrange(1, 99))
        return declared.Renamed(name=f"n{chance.randrange(9)}")

    return [
        EventStream(
            aggregate_type="Ledger", aggregate_id=f"a{number}", version=version,
            command_id=f"{number}-{version}", correlation_id=f"c{chance.randrange(5)}",
            recorded_at=NOW + timedelta(minutes=version),
            events=tuple(event() for _ in range(chance.randrange(1, 4))),
        )
        for version in range(1, 16)
        for number in range(10)
    ]  # fmt: skip

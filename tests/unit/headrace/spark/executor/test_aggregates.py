"""What only the event store has is looked up by the thousand, over one connection, and counted right."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import Engine, Pool, event

from headrace.domain.stream import EventStream
from headrace.errors import ProjectionError
from headrace.projections.definition.fold import fold_streams
from headrace.spark.executor.aggregates import fold_aggregates, route_aggregates
from headrace.spark.executor.fold import (
    BASE,
    RECORD_ARROW_SCHEMA,
    STREAM,
    VERSION,
    EventPlace,
    Record,
    fold_keys,
    records_to_arrow,
    route_slices,
)
from headrace.spark.executor.slices import fold_slices
from headrace.spark.job import read_result
from headrace.spark.rows import RowCodec
from headrace.stores.database.missing_streams import PAGE_VERSIONS_MAX
from headrace.stores.database.schema import upgrade
from headrace.stores.open import open_event_store

COUNT = 1_500
ORDER = [(name, "ascending") for name in ("key", "moment", "queue", "offset", "turn")]


class Asked:
    """What databases were asked."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.connections = 0

    def before(self, *of: Any) -> None:
        self.statements.append(of[2])

    def connected(self, *_: Any) -> None:
        self.connections += 1

    @property
    def for_streams(self) -> int:
        return sum(
            "event_streams AS stored" in each or "LATERAL" in each for each in self.statements
        )


@pytest.fixture
def asked() -> Iterator[Asked]:
    asked = Asked()
    event.listen(Engine, "before_cursor_execute", asked.before)
    event.listen(Pool, "connect", asked.connected)
    yield asked
    event.remove(Engine, "before_cursor_execute", asked.before)
    event.remove(Pool, "connect", asked.connected)


@pytest.fixture
def firsts(ledger: Any) -> list[EventStream]:
    return [
        ledger.stream(f"a{number}", 1, ledger.Booked(partner=f"p{number % 7}", amount=number))
        for number in range(COUNT)
    ]


@pytest.fixture
def seconds(ledger: Any) -> list[EventStream]:
    return [
        ledger.stream(f"a{number}", 2, ledger.Booked(partner=f"p{number % 7}", amount=1))
        for number in range(COUNT)
    ]


@pytest.fixture
async def url(database_url: str, ledger: Any, firsts: list[EventStream]) -> str:
    """The event store with the first version of all."""
    await upgrade(database_url)
    store = await open_event_store(database_url, ledger.app.serializer)
    await store.append(firsts)
    await store.aclose()
    return database_url


def places(count: int) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pydict({"id": [place]}) for place in range(count)])


def shuffled(batches: Any) -> Iterator[pa.RecordBatch]:
    table = pa.Table.from_batches(batches, schema=RECORD_ARROW_SCHEMA)
    return iter(table.sort_by(ORDER).to_batches(max_chunksize=997))


def streams_in(ledger: Any, streams: list[EventStream]) -> Iterator[pa.RecordBatch]:
    encode = ledger.app.serializer.encode_stream
    return shuffled(
        [
            records_to_arrow(
                [
                    Record(STREAM, each.aggregate_id, EventPlace(1, 0, offset), 0, encode(each))
                    for offset, each in enumerate(streams)
                ]
            )
        ]
    )


def result(plan: Any, batches: Any) -> Any:
    table = pa.Table.from_batches(batches, schema=RECORD_ARROW_SCHEMA)
    return read_result(plan, table)


def rows_of(projection: Any, folded: Any) -> dict[str, Any]:
    codec: RowCodec[Any] = RowCodec(projection)
    rows = [codec.row(data) for data in folded.rows.to_pylist()]
    return {getattr(row, projection.key): row for row in rows}


def slices_folded(ledger: Any, plan: Any, seconds: list[EventStream]) -> Any:
    return fold_slices(plan, places(len(plan.slices)))


def slices_routed(ledger: Any, plan: Any, seconds: list[EventStream]) -> Any:
    return fold_keys(plan, shuffled(route_slices(plan, places(len(plan.slices)))))


def aggregates_folded(ledger: Any, plan: Any, seconds: list[EventStream]) -> Any:
    return fold_aggregates(plan, streams_in(ledger, seconds))


def aggregates_routed(ledger: Any, plan: Any, seconds: list[EventStream]) -> Any:
    return fold_keys(plan, shuffled(route_aggregates(plan, streams_in(ledger, seconds))))


@pytest.mark.parametrize(
    ("name", "fold"),
    [
        ("accounts", slices_folded),
        ("partners", slices_routed),
        ("accounts", aggregates_folded),
        ("partners", aggregates_routed),
    ],
)
async def test_a_gap_of_every_aggregate_takes_a_statement_per_thousand(
    name: str, fold: Callable[..., Any], ledger: Any, topic: Any, make_plan: Any, url: str,
    firsts: list[EventStream], seconds: list[EventStream], asked: Asked,
) -> None:  # fmt: skip
    projection = ledger.app.projection(name)
    topic.publish(*seconds)
    plan = make_plan(name, topic.slices(), event_store=url)
    folded = await asyncio.to_thread(lambda: result(plan, fold(ledger, plan, seconds)))
    wanted = fold_streams(projection, {}, [*firsts, *seconds])
    assert rows_of(projection, folded) == wanted
    assert folded.versions == {each.aggregate_id: 2 for each in seconds}
    # As a replay counts: what was folded, wherever it came from.
    assert folded.counts == {"events": 2 * COUNT, "gaps": COUNT, "filled": COUNT}
    # Pages begin anew with each of two queues.
    assert asked.for_streams <= len(topic.bodies) * -(-COUNT // PAGE_VERSIONS_MAX)
    # One of them looks at the schema.
    assert asked.connections == 2


async def test_what_the_event_store_lacks_too_is_named(
    ledger: Any, make_plan: Any, topic: Any, url: str
) -> None:
    lost = [ledger.stream("lost", 3, ledger.Ended()), ledger.stream("a1", 2, ledger.Ended())]
    topic.publish(*lost)
    plan = make_plan("accounts", topic.slices(), event_store=url)
    with pytest.raises(ProjectionError, match=r"1 aggregates lack .* has: lost versions 1 to 2"):
        await asyncio.to_thread(
            lambda: result(plan, fold_aggregates(plan, streams_in(ledger, lost)))
        )


def test_an_event_store_that_is_away_is_told_in_a_sentence(
    ledger: Any, make_plan: Any, topic: Any
) -> None:
    topic.publish(ledger.stream("a", 2, ledger.Ended()))
    away = "postgresql://nobody@127.0.0.1:1/none"
    plan = make_plan("accounts", topic.slices(), event_store=away)
    with pytest.raises(ProjectionError, match=r"what the topic lacks, cannot be read on"):
        list(fold_slices(plan, places(len(plan.slices))))


@pytest.mark.parametrize("step", [fold_aggregates, route_aggregates])
async def test_what_waits_is_folded_onto_its_own_row_and_in_order(
    step: Any, ledger: Any, make_plan: Any, topic: Any, url: str
) -> None:
    """Of three aggregates one lacks its second version, one nothing, and one is not new."""
    codec: RowCodec[Any] = RowCodec(ledger.accounts)
    row = fold_streams(
        ledger.accounts, {}, [ledger.stream("old", 1, ledger.Booked(partner="p", amount=70))]
    )["old"]
    base = [
        Record.known(BASE, "old", data=codec.encode(row)),
        Record.known(VERSION, "old", number=1),
    ]
    store = await open_event_store(url, ledger.app.serializer)
    late = [
        ledger.stream("a1", 2, ledger.Booked(partner="q", amount=20)),
        ledger.stream("old", 1, ledger.Booked(partner="p", amount=70)),
        ledger.stream("old", 2, ledger.Booked(partner="p", amount=5)),
    ]
    await store.append(late)
    await store.aclose()
    here = [
        ledger.stream("a1", 1, ledger.Booked(partner="p", amount=1)),
        ledger.stream("a1", 3, ledger.Booked(partner="p", amount=300)),
        ledger.stream("b", 1, ledger.Booked(partner="p", amount=9)),
        ledger.stream("old", 3, ledger.Booked(partner="p", amount=1)),
    ]
    topic.publish(*here)
    plan = make_plan("accounts", topic.slices(), event_store=url)
    batches = [records_to_arrow(base), *streams_in(ledger, here)]

    def made() -> list[pa.RecordBatch]:
        found = list(step(plan, shuffled(batches)))
        if step is route_aggregates:
            rows = records_to_arrow([base[0]])
            found = list(fold_keys(plan, shuffled([*found, rows])))
        return found

    folded = result(plan, await asyncio.to_thread(made))
    balances = {key: each.balance for key, each in rows_of(ledger.accounts, folded).items()}
    wanted = fold_streams(
        ledger.accounts, {"old": row}, [here[0], late[0], here[1], here[2], late[2], here[3]]
    )
    assert balances == {key: each.balance for key, each in wanted.items()}
    assert folded.versions == {"a1": 3, "b": 1, "old": 3}
    assert folded.counts["filled"] == 2

"""What executors believe: sealed streams, stored ones, and nothing else."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from headrace.errors import SchemaOutOfDate
from headrace.events.seals import Seal
from headrace.rebuild.shadow import open_truth
from headrace.spark.executor.aggregates import fold_aggregates
from headrace.spark.executor.doubts import Doubts, drop_strangers, seal_of
from headrace.spark.executor.fold import (
    QUEUE,
    STREAM,
    VERSION,
    EventPlace,
    Record,
    read_slices,
    records_to_arrow,
    route_slices,
)
from headrace.spark.executor.plan import FoldPlan
from headrace.spark.executor.slices import fold_slices
from headrace.stores.open import open_event_store


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'events.db'}"


@pytest.fixture
async def store(url: str, ledger: Any) -> Any:
    store = await open_event_store(url, ledger.serializer)
    await store.append([booked(ledger, "a", 1, 5), booked(ledger, "a", 2, 6)])
    yield store
    await store.aclose()


@pytest.fixture
async def seal(store: Any) -> Seal:
    return Seal(await store.identity())


def booked(ledger: Any, key: str, version: int, amount: int) -> Any:
    return ledger.stream(key, version, ledger.Booked(partner="p", amount=amount))


@pytest.fixture
def bodies(ledger: Any, seal: Seal) -> list[bytes]:
    """Of version 1, sealed; a forged version 2; the stored one, unsealed."""
    encode = ledger.serializer.encode_stream
    return [
        seal.put_on(encode(booked(ledger, "a", 1, 5))),
        encode(booked(ledger, "a", 2, 1_000_000)),
        encode(booked(ledger, "a", 2, 6)),
    ]


@pytest.fixture
def plan(make_plan: Callable[..., FoldPlan], topic: Any, url: str, seal: Seal) -> FoldPlan:
    return replace(make_plan("accounts", topic.slices(), event_store=url), seal=seal)


def in_order(ledger: Any, plan: FoldPlan, bodies: list[bytes]) -> pa.RecordBatch:
    places = [EventPlace(moment=1, queue=0, offset=offset) for offset in range(len(bodies))]
    return records_to_arrow(
        [Record(STREAM, "a", place, 0, body) for place, body in zip(places, bodies, strict=True)]
    )


def some_slices(count: int) -> Any:
    """What Spark hands to the first step: places in the plan's list of slices."""
    return iter([pa.RecordBatch.from_pydict({"id": [place]}) for place in range(count)])


def records(batches: Any) -> list[dict[str, Any]]:
    return [record for batch in batches for record in batch.to_pylist()]


def told(found: list[dict[str, Any]], kind: str) -> dict[str, int]:
    return {each["key"]: each["number"] for each in found if each["kind"] == kind}


def test_a_forged_event_is_left_out_and_named(
    plan: FoldPlan, ledger: Any, bodies: list[bytes]
) -> None:
    doubts = Doubts(plan, ledger.serializer)
    queue = ("ledger.events", 3)
    with capture_logs() as logs:
        found = doubts.strangers(queue, [7, 8, 9], ["a", "a", "a"], bodies)
    assert list(found) == [1]
    (line,) = [each for each in logs if "foreign" in each["event"]]
    assert (line["queue"], line["offset"], line["key"]) == ("ledger.events/3", 8, "a")


def test_keys_count_where_the_reader_goes_by_them(
    plan: FoldPlan, ledger: Any, bodies: list[bytes]
) -> None:
    queue = ("ledger.events", 0)
    plain, keyed = (Doubts(plan, ledger.serializer, keyed=each) for each in (False, True))
    assert list(plain.strangers(queue, [1], ["b"], bodies[:1])) == []
    assert list(keyed.strangers(queue, [1], ["b"], bodies[:1])) == [0]


def test_without_a_seal_or_a_store_all_is_believed(
    plan: FoldPlan, ledger: Any, bodies: list[bytes]
) -> None:
    for each in (replace(plan, seal=None), replace(plan, event_store=None)):
        doubts = Doubts(each, ledger.serializer)
        assert list(doubts.strangers(("t", 0), [1, 2, 3], ["a"] * 3, bodies)) == []


@pytest.mark.parametrize("step", [fold_slices, route_slices])
def test_a_slice_is_folded_without_what_is_foreign(
    plan: FoldPlan, topic: Any, ledger: Any, step: Any
) -> None:
    topic.publish(
        booked(ledger, "a", 1, 5), booked(ledger, "a", 2, 1_000_000), booked(ledger, "a", 2, 6),
        booked(ledger, "nobody's", 1, 1_000_000),
    )  # fmt: skip
    plan = replace(plan, slices=tuple(topic.slices()))
    found = records(step(plan, some_slices(len(plan.slices))))
    assert told(found, VERSION) == {"a": 2}
    queues = told(found, QUEUE)
    assert sum(count for name, count in queues.items() if name.endswith(" foreign")) == 2
    assert b"1000000" not in b"".join(each["data"] or b"" for each in found)


def test_streams_go_to_their_aggregates_without_what_is_foreign(
    plan: FoldPlan, topic: Any, ledger: Any
) -> None:
    topic.publish(booked(ledger, "a", 1, 5), booked(ledger, "a", 2, 1_000_000))
    plan = replace(plan, slices=tuple(topic.slices()))
    found = records(read_slices(plan, some_slices(len(plan.slices))))
    assert [each["key"] for each in found] == ["a"]


def test_a_micro_batch_is_folded_without_what_is_foreign(
    plan: FoldPlan, topic: Any, ledger: Any, bodies: list[bytes]
) -> None:
    topic.publish(booked(ledger, "a", 1, 5))
    plan = replace(plan, slices=tuple(topic.slices()))
    (kept,) = drop_strangers(plan, iter([in_order(ledger, plan, bodies)]))
    assert kept["offset"].to_pylist() == [0, 2]
    found = records(fold_aggregates(plan, iter([kept])))
    assert told(found, VERSION) == {"a": 2}
    (whole,) = drop_strangers(plan, iter([kept]))
    assert whole.equals(kept)


async def test_the_seal_is_read_on_the_driver_also_within_a_notebook(
    url: str, store: Any, ledger: Any, bodies: list[bytes], tmp_path: Path
) -> None:
    found = seal_of(url, ledger.serializer)
    assert found is not None
    assert found.broken(bodies) == [1, 2]
    async with open_truth(url, ledger.serializer) as truth:
        assert truth.seal is not None
        assert truth.seal.broken(bodies[:1]) == []
    assert seal_of(None, ledger.serializer) is None
    assert seal_of("memory://", ledger.serializer) is None
    with pytest.raises(SchemaOutOfDate):
        seal_of(f"sqlite:///{tmp_path / 'none.db'}", ledger.serializer)

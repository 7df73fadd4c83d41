"""Tasks that read the event store: each a share of the aggregates, in the order of positions."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import ProjectionError
from headrace.projections.definition.fold import fold_streams
from headrace.projections.tables.read_models import ReadModels
from headrace.spark.executor.plan import FoldPlan
from headrace.spark.executor.positions import read_share, share_slices
from headrace.spark.rebuild import rebuild
from headrace.stores.open import open_event_store


@pytest.fixture
async def stored(ledger: Any, tmp_path: Path) -> AsyncIterator[SimpleNamespace]:
    """Bookings of seven aggregates in turns, an end and a rejection, in an event store."""
    url = f"sqlite:///{tmp_path / 'events.db'}"
    store = await open_event_store(url, ledger.serializer)
    streams = [
        ledger.stream(key, version, ledger.Booked(partner=f"p{version % 2}", amount=version))
        for version in range(1, 5)
        for key in "abcdefg"
    ]
    streams += [ledger.stream("a", 5, ledger.Ended()), ledger.rejection("b")]
    await store.append(streams)
    read = f"sqlite:///{tmp_path / 'read.db'}"
    models = ReadModels(read)
    yield SimpleNamespace(url=url, streams=streams, read=read, models=models, store=store)
    await models.aclose()
    await store.aclose()


def plan(url: str, shares: int, end: int) -> FoldPlan:
    return FoldPlan(
        app="unit_ledger:app", folder=".", projection="accounts", broker="", event_store=url,
        slices=share_slices(shares, end), shares=shares,
    )  # fmt: skip


async def in_thread(work: Any) -> Any:
    return await asyncio.to_thread(work)


async def test_shares_together_are_all_that_is_stored(stored: Any) -> None:
    whole = plan(stored.url, 3, len(stored.streams) + 1)
    read = [
        await in_thread(lambda piece=piece: [b for p in read_share(whole, piece) for b in p])
        for piece in whole.slices
    ]
    assert len([share for share in read if share]) > 1
    assert sorted(body.position for share in read for body in share) == list(
        range(1, len(stored.streams) + 1)
    )
    for share in read:
        assert [body.position for body in share] == sorted(body.position for body in share)
    of = [{body.aggregate_id for body in share} for share in read]
    assert sum(map(len, of)) == len(set.union(*of)) == 7


async def test_nothing_stored_is_nothing_to_read() -> None:
    assert share_slices(4, 1) == ()


async def test_a_store_that_an_executor_does_not_reach_is_named_with_the_machine(
    stored: Any, tmp_path: Path
) -> None:
    # Another machine's file of that name, which has nothing in it.
    lost = replace(plan(stored.url, 2, 9), event_store=f"sqlite:///{tmp_path / 'elsewhere.db'}")
    with pytest.raises(ProjectionError, match="every Spark executor reads it"):
        await in_thread(lambda: list(read_share(lost, lost.slices[0])))


@pytest.mark.parametrize("name", ["accounts", "partners"])
async def test_a_rebuild_from_the_store_has_the_rows_of_one_fold(
    stored: Any, ledger: Any, spark: Any, name: str
) -> None:
    projection = ledger.app.projection(name)
    await stored.models.ensure(projection)
    report = await rebuild(
        ledger.path, name, broker=None, read_models_url=stored.read, event_store_url=stored.url,
        spark=spark, source="store", live_wait_ms=0,
    )  # fmt: skip
    events = [stream for stream in stored.streams if stream.version is not None]
    made = fold_streams(projection, {}, events)
    wanted = {key: row for key, row in made.items() if row is not None}
    reader = stored.models.reader(projection)
    assert {getattr(row, projection.key): row async for row in reader.rows()} == wanted
    assert (report.source, report.switched, report.events) == ("store", True, len(events))
    assert (report.rows, report.behind) == (len(wanted), 7)
    assert report.end_offsets == {"event store/0": len(stored.streams) + 1}


async def test_a_verification_against_the_store_needs_no_broker(
    stored: Any, ledger: Any, spark: Any
) -> None:
    await stored.models.ensure(ledger.accounts)
    choices: Any = {
        "broker": None, "read_models_url": stored.read, "event_store_url": stored.url,
        "spark": spark, "source": "store", "live_wait_ms": 0,
    }  # fmt: skip
    await rebuild(ledger.path, "accounts", **choices)
    right = await rebuild(ledger.path, "accounts", switch=False, **choices)
    assert (right.compared, right.mismatches, right.proven) == (6, 0, True)
    await stored.store.append([ledger.stream("g", 5, ledger.Booked(partner="p", amount=1))])
    behind = await rebuild(ledger.path, "accounts", switch=False, **choices)
    assert (behind.mismatches, behind.behind, behind.proven) == (1, 1, False)


async def test_an_empty_store_is_folded_into_nothing(
    ledger: Any, spark: Any, stored: Any, tmp_path: Path
) -> None:
    await stored.models.ensure(ledger.accounts)
    url = f"sqlite:///{tmp_path / 'empty.db'}"
    await (await open_event_store(url, ledger.serializer)).aclose()
    report = await rebuild(
        ledger.path, "accounts", broker=None, read_models_url=stored.read, event_store_url=url,
        spark=spark, source="store",
    )  # fmt: skip
    assert (report.switched, report.rows, report.events) == (True, 0, 0)

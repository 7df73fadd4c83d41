"""A rebuild from the event store beside a real broker, on both databases: what is rows, and what goes on."""

from typing import Any

import pytest

from headrace import EventContext, Projection
from headrace.errors import ProjectionError
from headrace.projections.batch_transaction import Batch, apply_batch
from headrace.projections.definition.fold import fold_streams
from headrace.projections.tables.contents import store_offsets
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.local import rebuild as replay_module
from headrace.rebuild.local import rows_in_memory as gathering_module
from headrace.rebuild.local.rebuild import rebuild


class Killed(BaseException):
    """Ends a rebuild without a chance to tidy up."""


@pytest.fixture
def replay(event_broker: Any, ledger: Any, database_url: str) -> Any:
    async def run(name: str = "accounts", **choices: Any) -> Any:
        asked = {"broker": event_broker.address, "live_wait_ms": 0, "messages_max": 3, **choices}
        return await rebuild(ledger.path, name, read_models_url=database_url, **asked)

    return run


async def rows(models: ReadModels, projection: Any) -> Any:
    return {getattr(row, projection.key): row async for row in models.reader(projection).rows()}


@pytest.fixture
def from_store(replay: Any, store_url: str) -> Any:
    async def run(name: str = "accounts", **choices: Any) -> Any:
        return await replay(name, source="store", event_store_url=store_url, **choices)

    return run


async def folded(projection: Any, event_store: Any) -> Any:
    """What all that is stored makes, in the order of positions."""
    stored = [each.stream for each in await event_store.read_all(limit=10_000)]
    made = fold_streams(projection, {}, [each for each in stored if each.version is not None])
    return {key: row for key, row in made.items() if row is not None}


@pytest.mark.parametrize("name", ["accounts", "partners"])
async def test_from_the_store_the_rows_are_the_live_ones_and_go_on_with_the_topic(
    name: str, from_store: Any, stored: list[Any], read_models: ReadModels, ledger: Any,
    go_live: Any, event_store: Any, event_broker: Any,
) -> None:  # fmt: skip
    projection = ledger.app.projection(name)
    await read_models.ensure(projection)
    await go_live(read_models, projection)
    report = await from_store(name)
    assert (report.source, report.switched, report.mismatches) == ("store", True, 0)
    assert (report.compared, report.events, report.behind) == (report.rows, 31, 0)
    assert await rows(read_models, projection) == await folded(projection, event_store)
    # The next ones come once, and what was in the topic before not again.
    late = [ledger.stream("a", 7, ledger.Booked(partner="p1", amount=4))]
    await event_store.append(late)
    await event_broker.publish(*stored[-3:], *late, *late)
    await go_live(read_models, projection)
    assert await rows(read_models, projection) == await folded(projection, event_store)


@pytest.mark.parametrize("topic", ["lost", "new and short"])
async def test_from_the_store_rows_are_right_again_after_the_broker_was_lost(
    topic: str, from_store: Any, event_store: Any, read_models: ReadModels, ledger: Any,
    go_live: Any, event_broker: Any, replay: Any, store_url: str,
) -> None:  # fmt: skip
    await read_models.abandon_shadow("accounts", 2, "the test")
    book = ledger.Booked(partner="p", amount=2)
    before = [ledger.stream(key, version, book) for version in (1, 2, 3) for key in "abc"]
    since = [ledger.stream(key, 4, book) for key in "ad"[:1]]
    await event_store.append([*before, *since])
    # The live rows have read far into a topic that is no more.
    async with read_models.begin() as connection:
        batch = Batch(
            streams=before,
            begin={(ledger.topic_name, 0): None},
            end={(ledger.topic_name, 0): 9_999},
        )
        target = read_models.target(ledger.accounts, 1)
        await apply_batch(connection, target, batch, missing=None)  # type: ignore[arg-type]  # nothing is
    if topic == "new and short":
        await event_broker.publish(*since)
    with pytest.raises(ProjectionError, match=r"does not hold all offsets.*--from store"):
        await replay(verify=False, event_store_url=store_url)
    report = await from_store()
    assert (report.switched, report.mismatches, report.behind) == (True, 0, 1)
    assert await rows(read_models, ledger.accounts) == await folded(ledger.accounts, event_store)
    late = [ledger.stream("b", 4, book), ledger.stream("e", 1, book)]
    await event_store.append(late)
    await event_broker.publish(*since, *late)
    await go_live(read_models, ledger.accounts)
    assert await rows(read_models, ledger.accounts) == await folded(ledger.accounts, event_store)


async def test_from_the_store_rows_of_several_aggregates_have_the_order_of_positions(
    from_store: Any, event_store: Any, read_models: ReadModels, ledger: Any
) -> None:
    await read_models.abandon_shadow("accounts", 2, "the test")
    latest = Projection("latest", row=ledger.Partner, key="partner", key_of="partner")

    @latest.fold
    def booked(row: Any, event: ledger.Booked, context: EventContext) -> Any:
        return ledger.Partner(partner=event.partner, total=event.amount)

    ledger.app.add(latest)
    await read_models.ensure(latest)
    made = [
        ledger.stream(key, version, ledger.Booked(partner="p", amount=amount))
        for amount, (key, version) in enumerate([("b", 1), ("a", 1), ("a", 2), ("b", 2)])
    ]
    await event_store.append(made)
    await from_store("latest", verify=False)
    assert (await rows(read_models, latest))["p"].total == 3


async def test_from_the_store_a_rebuild_that_was_killed_goes_on_where_it_stood(
    from_store: Any, replay: Any, stored: list[Any], read_models: ReadModels, ledger: Any,
    go_live: Any, event_store: Any, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    await go_live(read_models, ledger.accounts)
    calls = 0

    def dying(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        store_offsets(*arguments)
        if calls == 3:
            raise Killed

    # A piece is decoded and folded before it may be written.
    monkeypatch.setattr(replay_module, "_PIECE_MAX", 3)
    with monkeypatch.context() as patched:
        patched.setattr(gathering_module, "store_offsets", dying)
        with pytest.raises(Killed):
            await from_store()
    await event_store.append([ledger.stream("g", 1, ledger.Booked(partner="p", amount=1))])
    report = await from_store()
    (begun,) = report.start_offsets.values()
    assert begun > 6
    assert (report.switched, report.mismatches, report.behind) == (True, 0, 1)
    assert await rows(read_models, ledger.accounts) == await folded(ledger.accounts, event_store)
    # From the topic nobody goes on with a position of the store.
    with monkeypatch.context() as patched:
        calls = 0
        patched.setattr(gathering_module, "store_offsets", dying)
        with pytest.raises(Killed):
            await from_store()
    again = await replay(verify=False)
    assert set(again.start_offsets.values()) == {0}


async def test_from_the_store_without_a_broker_only_where_that_is_said(
    from_store: Any, stored: list[Any], read_models: ReadModels, ledger: Any, go_live: Any
) -> None:
    with pytest.raises(ProjectionError, match="use --no-broker"):
        await from_store(broker="127.0.0.1:1")
    assert (await read_models.state("accounts")).rebuild_generation is None
    report = await from_store(broker=None)
    assert (report.switched, report.caught_up_offsets) == (True, {})
    await go_live(read_models, ledger.accounts)
    assert (await read_models.offsets("accounts", report.generation)) != {}
    assert (await from_store(broker=None)).mismatches == 0

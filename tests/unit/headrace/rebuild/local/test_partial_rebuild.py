"""Rows folded anew among live ones, from a real broker, on both databases."""

import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, insert, update

from headrace import App, Projection
from headrace.errors import ProjectionError
from headrace.projections.tables.contents import store_offsets, store_rows, store_versions
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.event_topic import EventTopic
from headrace.rebuild.local import partial_rebuild as mending_module
from headrace.rebuild.local.partial_rebuild import Wanted
from headrace.rebuild.local.rebuild import rebuild
from headrace.stores.database.parked import new_row
from headrace.stores.database.tables import parked_rows
from headrace.stores.open import open_event_store


@pytest.fixture
def replay(event_broker: Any, ledger: Any, database_url: str) -> Any:
    async def run(name: str = "accounts", **choices: Any) -> Any:
        return await rebuild(
            ledger.path,
            name,
            broker=event_broker.address,
            read_models_url=database_url,
            **{"live_wait_ms": 0, **choices},
        )

    return run


@pytest.fixture
async def live(
    history: Any, read_models: ReadModels, ledger: Any, go_live: Any
) -> Callable[..., Awaitable[dict[str, Any]]]:
    """Two live projections that have all of the history; returns the rows of one of them."""
    for projection in (ledger.accounts, ledger.partners):
        await read_models.ensure(projection)
        await go_live(read_models, projection)

    async def rows(projection: Any) -> dict[str, Any]:
        reader = read_models.reader(projection)
        return {getattr(row, projection.key): row async for row in reader.rows()}

    return rows


@pytest.fixture
def damage(read_models: ReadModels) -> Any:
    """Writes into live rows what no fold made; None: the row is gone."""

    async def write(projection: Any, key: str, values: dict[str, Any] | None) -> None:
        generation = await read_models.generation(projection.name)
        table = read_models.table_for(projection, generation)
        row = table.c[projection.key] == key
        async with read_models.begin() as connection:
            if values is None:
                await connection.execute(delete(table).where(row))
            else:
                await connection.execute(update(table).where(row).values(values))

    return write


def keys(*wanted: str) -> Wanted:
    return Wanted(keys=frozenset(wanted))


@pytest.mark.parametrize(
    ("name", "wrong", "asked"),
    [
        ("accounts", {"a": {"balance": -1}, "b": None, "c": {"note": "?"}}, "abe"),
        ("partners", {"p0": {"total": -1}, "p1": {"total": 5}}, ("p0",)),
    ],
)
async def test_rows_that_are_wrong_are_healed_and_others_stay_as_they_are(
    name: str, wrong: Any, asked: Any, replay: Any, live: Any, damage: Any, ledger: Any
) -> None:
    projection = ledger.app.projection(name)
    right = await live(projection)
    for key, values in wrong.items():
        await damage(projection, key, values)
    damaged = await live(projection)
    report = await replay(name, wanted=keys(*asked))
    healed = await live(projection)
    assert healed == damaged | {key: right[key] for key in asked if key in right}
    assert (report.switched, report.mismatches, report.reason) == (True, 0, "")
    assert (report.start, report.keys) == ("keys", len(asked))
    assert report.mended == len(set(wrong) & set(asked))
    # What nobody asked for is still wrong, and a rebuild of everything finds it, and nothing else.
    whole = await replay(name)
    assert {key for key, _, _ in whole.differences} == wrong.keys() - set(asked)
    assert await replay(name, verify=False)
    assert await live(projection) == right


async def test_a_row_that_no_event_makes_is_taken_away(
    replay: Any, live: Any, read_models: ReadModels, ledger: Any
) -> None:
    right = await live(ledger.accounts)
    ghost = right["a"].model_copy(update={"account_id": "ghost"})
    target = read_models.target(ledger.accounts, 1)
    await read_models.transact(partial(store_rows, target=target, changes={"ghost": ghost}))
    report = await replay(wanted=keys("ghost", "e"))
    assert (report.switched, report.mended) == (True, 1)
    assert await live(ledger.accounts) == right


@pytest.mark.parametrize("name", ["accounts", "partners"])
async def test_events_that_come_in_meanwhile_are_in_the_rows(
    name: str, replay: Any, live: Any, damage: Any, ledger: Any, read_models: ReadModels,
    event_broker: Any, go_live: Any, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    projection = ledger.app.projection(name)
    wrong, values = {"accounts": ("a", {"balance": 7}), "partners": ("p1", {"total": 7})}[name]
    await damage(projection, wrong, values)
    exchange = mending_module.Mending._exchange

    async def meanwhile(self: Any, *given: Any) -> None:
        # Live goes on between the copy and the switch, with the wrong row and with new ones.
        await event_broker.publish(
            ledger.stream("a", 7, ledger.Booked(partner="p1", amount=70)),
            ledger.stream("new", 1, ledger.Booked(partner="p1", amount=3)),
        )
        await go_live(read_models, projection)
        await exchange(self, *given)

    monkeypatch.setattr(mending_module.Mending, "_exchange", meanwhile)
    report = await replay(name, wanted=keys(wrong))
    assert (report.switched, report.mended, report.caught_up) == (True, 1, 2)
    whole = await replay(name)
    assert (whole.switched, whole.mismatches) == (True, 0)


@pytest.mark.parametrize("name", ["accounts", "partners"])
async def test_since_a_time_the_rows_that_events_touched_are_folded_anew(
    name: str, replay: Any, live: Any, damage: Any, ledger: Any, read_models: ReadModels,
    event_broker: Any, go_live: Any, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    projection = ledger.app.projection(name)
    topic = EventTopic(event_broker.address, ledger.topic_name, messages_max=100)
    before = {queue: end for queue, (_, end) in (await topic.ranges()).items()}
    await event_broker.publish(
        ledger.stream("a", 7, ledger.Booked(partner="p9", amount=70)), ledger.rejection("c")
    )
    await go_live(read_models, projection)
    asked: list[int] = []

    async def offsets_at(self: Any, time_ms: int) -> Any:
        asked.append(time_ms)
        return before

    monkeypatch.setattr(EventTopic, "offsets_at", offsets_at)
    right = await live(projection)
    touched, other, values = {
        "accounts": ("a", "c", {"balance": 7}), "partners": ("p9", "p1", {"total": 7}),
    }[name]  # fmt: skip
    await damage(projection, touched, values)
    await damage(projection, other, values)
    report = await replay(name, wanted=Wanted(since_ms=123))
    assert asked == [123]
    assert (report.start, report.keys, report.mended) == ("time", 1, 1)
    healed = await live(projection)
    assert healed[touched] == right[touched]
    assert {key for key in right if healed[key] != right[key]} == {other}


async def test_a_time_behind_all_events_changes_nothing_and_says_so(
    replay: Any, live: Any, read_models: ReadModels
) -> None:
    with pytest.raises(ProjectionError, match="was stored since then"):
        await replay(wanted=Wanted(since_ms=1 << 50))
    state = await read_models.state("accounts")
    assert (state.generation, state.rebuild_generation) == (1, None)


async def test_what_a_retry_has_applied_ahead_of_the_topic_is_in_the_rows(
    replay: Any, live: Any, damage: Any, ledger: Any, read_models: ReadModels, tmp_path: Path,
    event_broker: Any, go_live: Any,
) -> None:  # fmt: skip
    # Taken up from the event store: the live row has version 7, whose message comes later.
    late = ledger.stream("a", 7, ledger.Booked(partner="p1", amount=70))
    target = read_models.target(ledger.accounts, 1)
    await read_models.transact(partial(store_versions, target=target, versions={"a": 7}))
    url = f"sqlite:///{tmp_path / 'events.db'}"
    with pytest.raises(ProjectionError, match="versions 7 to 7 of aggregate a did not come"):
        await replay(wanted=keys("a"))
    store = await open_event_store(url, ledger.serializer)
    for version in range(1, 7):
        event = ledger.Booked(partner=f"p{version % 2}", amount=version)
        await store.append([ledger.stream("a", version, event)])
    await store.append([late])
    await store.aclose()
    assert (await replay(wanted=keys("a"), event_store_url=url)).switched
    await event_broker.publish(late)
    await go_live(read_models, ledger.accounts)
    whole = await replay()
    assert (whole.switched, whole.mismatches) == (True, 0)


async def test_live_versions_behind_the_topic_are_refused(
    replay: Any, live: Any, ledger: Any, read_models: ReadModels
) -> None:
    target = read_models.target(ledger.accounts, 1)
    await read_models.transact(partial(store_versions, target=target, versions={"a": 2}))
    with pytest.raises(ProjectionError, match=r"version 2 of aggregate a.* at 6; rebuild all"):
        await replay(wanted=keys("a"))
    assert (await read_models.state("accounts")).rebuild_generation is None


async def test_rows_that_wait_for_parked_events_are_not_built_upon(
    replay: Any, live: Any, ledger: Any, read_models: ReadModels
) -> None:
    letter = {
        "name": "accounts", "generation": 1, "aggregate_id": "a", "topic": "t", "queue_id": 0,
        "message_offset": 0, "parked_at": ledger.now, **new_row(ValueError("no")),
    }  # fmt: skip
    async with read_models.begin() as connection:
        await connection.execute(insert(parked_rows), letter)
    for choices in ({"wanted": keys("b")}, {"start": "offsets"}):
        with pytest.raises(ProjectionError, match="1 aggregates are parked"):
            await replay(**choices)
        assert (await read_models.state("accounts")).rebuild_generation is None


@pytest.fixture
async def skipped(
    live: Any, ledger: Any, read_models: ReadModels, event_broker: Any, believing: Any
) -> None:
    """Version 7 of an aggregate does not decode; live has skipped it and gone on to version 8."""
    topic = EventTopic(event_broker.address, ledger.topic_name, messages_max=100)
    streams = [believing.stream("a", version, version) for version in (7, 8)]
    await believing.publish(*streams, seal=None, spoil=("a", 7))
    ends = {queue: end for queue, (_, end) in (await topic.ranges()).items()}
    for projection in (ledger.accounts, ledger.partners):
        target = read_models.target(projection, 1)
        await read_models.transact(partial(store_versions, target=target, versions={"a": 8}))
        await read_models.transact(partial(store_offsets, target=target, offsets=ends))


@pytest.mark.parametrize(
    "wanted", [keys("a", "b"), Wanted(since_ms=0)], ids=["only-keys", "from a time"]
)
async def test_the_row_of_a_stream_that_does_not_decode_stays_and_others_are_healed(
    wanted: Wanted, replay: Any, live: Any, skipped: None, damage: Any, ledger: Any,
    event_broker: Any, go_live: Any, read_models: ReadModels,
) -> None:  # fmt: skip
    await damage(ledger.accounts, "a", {"balance": 29})
    before = await live(ledger.accounts)
    await damage(ledger.accounts, "b", {"balance": -1})
    report = await replay(wanted=wanted)
    assert (report.switched, report.mended, report.mismatches) == (True, 1, 0)
    (sentence,) = report.left_out
    assert "(aggregate a) does not decode" in sentence
    assert f"{ledger.topic_name}/" in sentence
    assert " offset " in sentence
    assert await live(ledger.accounts) == before
    # What comes later is applied to it as before.
    await event_broker.publish(ledger.stream("a", 9, ledger.Booked(partner="p1", amount=1)))
    await go_live(read_models, ledger.accounts)
    assert (await live(ledger.accounts))["a"].balance == 3 * 29 + 1


@pytest.mark.parametrize("wanted", [keys("p1"), Wanted(since_ms=0)], ids=["only-keys", "time"])
async def test_which_rows_of_several_aggregates_it_touched_is_not_known(
    wanted: Wanted, replay: Any, skipped: None, live: Any, ledger: Any, read_models: ReadModels
) -> None:
    before = await live(ledger.partners)
    with pytest.raises(ProjectionError, match=r"nothing tells .* \(aggregate a\) does not"):
        await replay("partners", wanted=wanted)
    assert await live(ledger.partners) == before
    assert (await read_models.state("partners")).rebuild_generation is None


async def test_too_many_keys_are_refused(
    replay: Any, live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mending_module, "KEYS_MAX", 1)
    with pytest.raises(ProjectionError, match="more than 1 rows to rebuild"):
        await replay(wanted=keys("a", "b"))
    with pytest.raises(ProjectionError, match="more than 1 rows to rebuild"):
        await replay(wanted=Wanted(since_ms=0))


async def test_rows_of_other_fields_are_not_built_upon(
    replay: Any, live: Any, ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = App("ledger")
    changed.add(Projection("accounts", row=ledger.Partner, key="partner"))
    monkeypatch.setattr(sys.modules["unit_ledger"], "app", changed)
    with pytest.raises(ProjectionError, match="other fields than Partner"):
        await replay(wanted=keys("a"))


async def test_each_phase_is_announced(replay: Any, live: Any, history: Any) -> None:
    said: list[tuple[str, int]] = []
    await replay(wanted=keys("a", "b"), report=lambda name, ahead: said.append((name, ahead)))
    assert said == [
        ("begin", 0), ("base", 0), ("capture", 0), ("fold", len(history)), ("load", 2),
        ("switch", 0),
    ]  # fmt: skip

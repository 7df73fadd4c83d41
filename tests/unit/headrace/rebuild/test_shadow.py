"""The shadow of a rebuild: begun once, gone on with after a death, given up, finished."""

import copy
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ProjectionError, RebuildRunning, SchemaOutOfDate
from headrace.lineage.generation_epochs import GenerationEpochs
from headrace.lineage.marks import note_epochs, read_epochs
from headrace.projections.definition.projection import Projection
from headrace.projections.tables import generations
from headrace.projections.tables.contents import write_offsets
from headrace.projections.tables.generation_tables import find_all
from headrace.projections.tables.read_models import ReadModels
from headrace.projections.tables.succession import take_own
from headrace.rebuild.shadow import Building, open_read_models, open_truth
from headrace.rebuild.switch import RebuildOutcome, Shadow
from headrace.stores.open import open_event_store
from headrace.transports.base import TopicLineage


@pytest.fixture
def building(read_models: ReadModels, ledger: Any) -> Building:
    return Building(read_models, ledger.accounts)


async def test_a_rebuild_that_runs_refuses_the_next_one_unless_that_takes_over(
    building: Building, read_models: ReadModels
) -> None:
    with pytest.raises(RebuildRunning):
        await building.begin(take_over=False)
    shadow = await building.begin(take_over=True)
    state = await read_models.state("accounts")
    assert (state.rebuild_generation, state.rebuild_owner) == (shadow.generation, shadow.owner)


async def test_what_a_dead_rebuild_built_is_gone_on_with_or_dropped(
    building: Building, read_models: ReadModels
) -> None:
    adopted = await building.begin(take_over=True, adopt=True)
    assert adopted.generation == 2
    assert (await read_models.state("accounts")).rebuild_owner == adopted.owner
    with pytest.raises(RebuildRunning, match="has been rebuilding it since"):
        await building.begin(take_over=False)
    await read_models.locks.aclose()
    fresh = await building.begin(take_over=False)
    assert fresh.generation != 2 or fresh.owner != adopted.owner


async def test_a_failure_like_a_kill_leaves_the_shadow_to_the_next_rebuild(
    building: Building, read_models: ReadModels
) -> None:
    begun = await building.begin(take_over=True)
    with pytest.raises(OSError, match="away"):
        async with building.given_up_on_failure(begun, unless=(OSError,)):
            raise OSError("away")
    adopted = await building.begin(take_over=False, adopt=True)
    assert adopted.generation == begun.generation
    with pytest.raises(ValueError, match="wrong"):
        async with building.given_up_on_failure(adopted, unless=(OSError,)):
            raise ValueError("wrong")
    assert (await read_models.state("accounts")).rebuild_owner is None


async def test_what_may_hold_copied_rows_is_not_gone_on_with(
    building: Building, read_models: ReadModels
) -> None:
    await building.begin("copy", take_over=True)
    await read_models.locks.aclose()
    fresh = await building.begin("copy", take_over=False, adopt=True)
    assert (await read_models.state("accounts")).rebuild_owner == fresh.owner
    copied = await building.begin("copy", take_over=True)
    assert await building.copy_live(copied) == {}


async def test_a_copy_of_the_live_rows_has_the_epochs_in_which_those_were_read(
    building: Building, read_models: ReadModels
) -> None:
    async def ask(_known: Any, *, patient: bool) -> TopicLineage:
        assert not patient
        return TopicLineage(identity="", ranges={}, epochs={0: 5, 1: 5})

    live = ("accounts", 1)
    await read_models.transact(partial(note_epochs, reader=live, epochs={0: 3}))
    epochs = GenerationEpochs(topic="ledger.events", ask=ask)
    shadow = await building.begin("copy", take_over=True, epochs=epochs)
    await building.copy_live(shadow)
    noted = partial(read_epochs, reader=("accounts", shadow.generation))
    assert await read_models.transact(noted) == {0: 3, 1: 5}


@pytest.mark.parametrize("kind", ["topic", "store"])
async def test_what_was_filled_from_elsewhere_is_not_gone_on_with(
    building: Building, read_models: ReadModels, kind: Any
) -> None:
    begun = await building.begin(kind, take_over=True)
    await read_models.locks.aclose()
    same = await building.begin(kind, take_over=False, adopt=True)
    assert same.generation == begun.generation
    async with read_models.begin() as connection:
        target = read_models.target(same.projection, same.generation)
        await write_offsets(connection, target, {("ledger.events", 0): 5})
    await read_models.locks.aclose()
    other = await building.begin(
        "store" if kind == "topic" else "topic", take_over=False, adopt=True
    )
    assert await read_models.offsets("accounts", other.generation) == {}


async def test_only_a_finished_shadow_is_taken_up_again_and_by_one(
    building: Building, read_models: ReadModels
) -> None:
    with pytest.raises(RebuildRunning, match="not finished"):
        await building.reopen(take_over=True)
    shadow = await building.begin(take_over=True)
    await building.finish(shadow, RebuildOutcome(offsets={}))
    again = await building.reopen(take_over=False)
    assert again.generation == shadow.generation
    with pytest.raises(RebuildRunning):
        await building.reopen(take_over=False)
    assert (await building.reopen(take_over=True)).generation == shadow.generation
    await read_models.locks.aclose()
    last = await building.reopen(take_over=False)
    await building.give_up(last)
    with pytest.raises(ProjectionError, match="no rebuilt table that was kept"):
        await building.reopen(take_over=False)


async def test_the_last_finished_shadow_is_kept_next_to_the_newest(
    building: Building, read_models: ReadModels
) -> None:
    found = []
    for _ in range(3):
        shadow = await building.begin(take_over=True, keep_finished=True)
        await building.finish(shadow, RebuildOutcome(offsets={}))
        found.append(shadow.generation)
        async with read_models.begin() as connection:
            tables = sorted(await find_all(connection, "accounts"))
        # The live one, the newest, and the one before it.
        assert tables == [1, *found[-2:]]
    begun = await building.begin(take_over=True)
    async with read_models.begin() as connection:
        tables = sorted(await find_all(connection, "accounts"))
    assert tables == [1, begun.generation]


async def test_the_table_from_before_a_switch_is_none_that_a_rebuild_has_kept(
    building: Building, read_models: ReadModels, ledger: Any
) -> None:
    shadow = await building.begin(take_over=True)
    async with read_models.begin() as connection:
        await generations.switch(connection, ledger.accounts, shadow.generation, shadow.owner)
    await building.finish(shadow, RebuildOutcome(offsets={}, switched=True))
    await read_models.rollback(ledger.accounts)
    with pytest.raises(ProjectionError, match="no rebuilt table that was kept"):
        await building.reopen(take_over=False)


async def test_a_finished_shadow_with_other_columns_is_not_taken_up(
    building: Building, read_models: ReadModels, ledger: Any
) -> None:
    shadow = await building.begin(take_over=True)
    await building.finish(shadow, RebuildOutcome(offsets={}))
    changed = Projection("accounts", row=ledger.Partner, key="partner")
    with pytest.raises(ProjectionError, match="does not have the fields of Partner"):
        await Building(read_models, changed).reopen(take_over=False)


async def test_a_shadow_with_other_columns_is_not_gone_on_with(
    read_models: ReadModels, ledger: Any
) -> None:
    await Building(read_models, ledger.accounts).begin(take_over=True)
    await read_models.locks.aclose()
    changed = Projection("accounts", row=ledger.Partner, key="partner")
    shadow = await Building(read_models, changed).begin(take_over=False, adopt=True)
    async with read_models.begin() as connection:
        state = await Building.check_owner(connection, shadow)
    assert state.rebuild_generation == shadow.generation
    assert await read_models.reader(changed, generation=shadow.generation).count() == 0


async def test_a_shadow_that_is_given_up_is_gone_and_failing_to_is_only_logged(
    building: Building, read_models: ReadModels, ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shadow = Shadow(projection=ledger.accounts, generation=2, owner="the test")
    await building.give_up(shadow)
    assert (await read_models.state("accounts")).rebuild_generation is None

    async def fail(*_: object) -> None:
        raise OSError("the database is away")

    monkeypatch.setattr(read_models, "abandon_shadow", fail)
    await building.give_up(shadow)


async def test_finishing_without_a_switch_keeps_the_table_and_lets_the_next_one_begin(
    building: Building, read_models: ReadModels, ledger: Any
) -> None:
    shadow = Shadow(projection=ledger.accounts, generation=2, owner="the test")
    await building.finish(shadow, RebuildOutcome(offsets={}))
    assert await read_models.reader(ledger.accounts, generation=2).count() == 0
    await building.begin(take_over=False)


async def test_only_the_owner_passes(read_models: ReadModels, ledger: Any) -> None:
    other = Shadow(projection=ledger.accounts, generation=2, owner="somebody else")
    with pytest.raises(ProjectionError, match="no longer the shadow that somebody else builds"):
        async with read_models.begin() as connection:
            await Building.check_owner(connection, other)


async def test_changed_columns_do_not_keep_a_rebuild_from_opening_the_database(
    ledger: Any, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'read.db'}"
    async with open_read_models(url, ledger.accounts):
        pass
    changed = Projection("accounts", row=ledger.Partner, key="partner")
    async with open_read_models(url, changed) as opened:
        assert (await opened.state("accounts")).generation == 1


async def test_gaps_are_filled_from_the_event_store_or_stay(ledger: Any, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'events.db'}"
    store = await open_event_store(url, ledger.serializer)
    await store.append([ledger.stream("a", 1, ledger.Booked(partner="p", amount=1))])
    await store.aclose()
    async with open_truth(url, ledger.serializer) as truth:
        assert [each.version for each in await truth.missing("a", 0, 1)] == [1]
    async with open_truth(None, ledger.serializer) as nothing:
        assert list(await nothing.missing("a", 0, 1)) == []
        assert (nothing.belief, nothing.seal) == (None, None)


async def test_a_store_that_is_not_there_is_not_made(ledger: Any, tmp_path: Path) -> None:
    """It would know none of the topic's events, and every one would be foreign."""
    with pytest.raises(SchemaOutOfDate, match="there is no database"):
        async with open_truth(f"sqlite:///{tmp_path / 'mistyped.db'}", ledger.serializer):
            pass
    assert not (tmp_path / "mistyped.db").exists()


async def test_rows_of_a_newer_version_are_put_in_place_and_kept_if_that_fails(
    building: Building, read_models: ReadModels, ledger: Any
) -> None:
    await building.give_up(await building.begin(take_over=True))
    newer = copy.copy(ledger.accounts)
    newer.version, newer.fingerprint = 2, f"2:{ledger.accounts.fingerprint}"
    async with read_models.begin() as connection:
        own = await take_own(connection, newer)
    taken = Building(read_models, newer)
    # A service of its version goes on while the command works, and after it has failed.
    for end in (taken.give_up, None):
        shadow = await taken.reopen(take_over=False)
        async with read_models.begin() as connection:
            assert (shadow.generation, await take_own(connection, newer)) == (own, own)
        if end is not None:
            await end(shadow)
    await read_models.locks.aclose()
    # A rebuild of the live version leaves it alone.
    other = await building.begin(take_over=False)
    async with read_models.begin() as connection:
        assert set(await find_all(connection, "accounts")) >= {1, own, other.generation}

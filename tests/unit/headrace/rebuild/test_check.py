"""A check tells which live rows are not what the events make, and leaves nothing behind."""

from typing import Any

import pytest

from headrace import Projection
from headrace.errors import ProjectionError, ProjectionNotFound
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.check import check


@pytest.fixture
def checked(event_broker: Any, ledger: Any, database_url: str) -> Any:
    async def run(*names: str, **choices: Any) -> Any:
        return await check(
            ledger.path,
            names,
            read_models_url=database_url,
            live_wait_ms=0,
            **{"against": "topic", "broker": event_broker.address, **choices},
        )

    return run


async def test_what_differs_is_told_of_each_and_nothing_is_left_behind(
    checked: Any, history: Any, read_models: ReadModels, ledger: Any, go_live: Any
) -> None:
    names = ["accounts", "partners"]
    projections = [ledger.app.projection(name) for name in names]
    for projection in projections:
        await read_models.ensure(projection)
    assert {found.compared for found in (await checked(*names)).values()} == {None}
    for projection in projections:
        await go_live(read_models, projection)
    equal = await checked(*names)
    assert list(equal) == names
    assert [(found.compared, found.mismatches) for found in equal.values()] == [(4, 0), (2, 0)]
    table = read_models.table_for(ledger.accounts, await read_models.generation("accounts"))
    async with read_models.begin() as connection:
        await connection.execute(table.update().where(table.c.account_id == "a").values(balance=-1))
    wrong = await checked(*names)
    ((key, live, rebuilt),) = wrong["accounts"].differences
    assert (key, live["balance"], rebuilt["balance"] > 0) == ("a", -1, True)
    assert (wrong["accounts"].mismatches, wrong["partners"].mismatches) == (1, 0)
    assert "not switched" not in wrong["accounts"].reason
    for projection in projections:
        assert await read_models.generation(projection.name) == 1
        generation = wrong[projection.name].generation
        assert await read_models.offsets(projection.name, generation) == {}
        assert (await read_models.state(projection.name)).rebuild_generation is None


async def test_a_live_projection_that_is_behind_is_not_compared_and_the_reason_is_told(
    checked: Any, history: Any, read_models: ReadModels
) -> None:
    found = (await checked("accounts"))["accounts"]
    assert found.compared is None
    assert "has not caught up" in found.reason


async def test_a_projection_that_cannot_be_folded_costs_the_others_nothing(
    checked: Any, history: Any, read_models: ReadModels, ledger: Any, go_live: Any
) -> None:
    broken = Projection("broken", row=ledger.Partner, key="partner")

    @broken.fold
    def noted(row: Any, event: ledger.Booked, context: Any) -> Any:
        raise RuntimeError("no")

    ledger.app.add(broken)
    await go_live(read_models, ledger.accounts)
    found = await checked("broken", "accounts")
    assert isinstance(found["broken"], ProjectionError)
    assert (found["accounts"].compared, found["accounts"].mismatches) == (4, 0)


async def test_a_name_that_is_none_begins_nothing(checked: Any, read_models: ReadModels) -> None:
    with pytest.raises(ProjectionNotFound):
        await checked("partners", "nobody")
    with pytest.raises(ProjectionNotFound):
        await read_models.state("partners")


async def test_the_store_is_what_rows_are_compared_with_unless_told_otherwise(
    event_broker: Any, stored: list[Any], read_models: ReadModels, ledger: Any, go_live: Any,
    database_url: str, store_url: str, event_store: Any,
) -> None:  # fmt: skip
    async def found(**choices: Any) -> Any:
        outcomes = await check(
            ledger.path,
            ["accounts"],
            broker=None,
            read_models_url=database_url,
            event_store_url=store_url,
            live_wait_ms=0,
            **choices,
        )
        return outcomes["accounts"]

    await go_live(read_models, ledger.accounts)
    equal = await found()
    assert (equal.proven, equal.compared, equal.mismatches) == (True, 4, 0)
    assert (equal.source, equal.switched, equal.reason) == ("store", False, "")
    assert await read_models.offsets("accounts", equal.generation) == {}
    # What the topic never had is of no account to it, and of much to the store.
    await event_store.append([ledger.stream("a", 7, ledger.Booked(partner="p", amount=1))])
    behind = await found()
    assert (behind.proven, behind.behind, behind.mismatches) == (False, 1, 1)
    with pytest.raises(ProjectionError, match="name the broker"):
        await found(against="topic")


async def test_rows_of_another_store_are_not_proven(
    checked: Any, history: Any, read_models: ReadModels, ledger: Any, go_live: Any,
    event_store: Any, store_url: str,
) -> None:  # fmt: skip
    await go_live(read_models, ledger.accounts)
    choices = {"against": "store", "broker": None, "event_store_url": store_url}
    empty = (await checked("accounts", **choices))["accounts"]
    # The fifth account has ended, and so has no row to differ.
    assert (empty.compared, empty.mismatches, empty.ahead, empty.proven) == (4, 4, 5, False)
    await event_store.append([ledger.stream("a", 1, ledger.Booked(partner="p", amount=9))])
    other = (await checked("accounts", **choices))["accounts"]
    assert (other.mismatches, other.ahead) == (4, 5)
    (wrong, *_) = other.differences
    assert (wrong[0], wrong[2]["bookings"]) == ("a", 1)

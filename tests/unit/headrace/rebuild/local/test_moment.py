"""What a queue holds before a moment, and rows as of one."""

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ProjectionError
from headrace.projections.tables.generation_tables import find_all
from headrace.projections.tables.generations import find_finished
from headrace.projections.tables.origins import lock_state
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.event_topic import EventTopic
from headrace.rebuild.local.moment import Moment, ranges_before
from headrace.rebuild.local.part import Part
from headrace.rebuild.local.rebuild import rebuild
from headrace.rebuild.shadow import Building


class Killed(BaseException):
    """The end of a process, as far as a test can have one without its end."""


@pytest.fixture
def replay(event_broker: Any, ledger: Any, database_url: str) -> Any:
    async def run(**choices: Any) -> Any:
        given = {"broker": event_broker.address, "read_models_url": database_url, "live_wait_ms": 0}
        return await rebuild(ledger.path, "accounts", **given | choices)

    return run


async def rows(models: ReadModels, projection: Any, generation: int) -> Any:
    reader = models.reader(projection, generation=generation)
    return {row.account_id: row async for row in reader.rows()}


RANGES = {("t", 0): (0, 10), ("t", 1): (3, 7)}


class Topic:
    """Knows which offsets were the first ones at a time or later."""

    def __init__(self, later: dict[Any, int]) -> None:
        self._later = later

    async def offsets_at(self, time_ms: int) -> dict[Any, int]:
        assert time_ms == 5
        return self._later


@given(first=st.integers(0, 20), size=st.integers(0, 20), later=st.none() | st.integers(0, 60))
async def test_a_time_leaves_out_what_was_stored_at_it_or_later(
    first: int, size: int, later: int | None
) -> None:
    end, queue = first + size, ("t", 0)
    topic = cast("EventTopic", Topic({} if later is None else {queue: later}))
    before = await ranges_before(topic, Moment(text="then", at_ms=5), {queue: (first, end)})
    held = range(first, end)
    assert list(range(*before[queue])) == [each for each in held if later is None or each < later]


async def test_offsets_are_of_every_queue_and_within_it() -> None:
    topic = cast("EventTopic", Topic({}))
    exact = Moment(text="x", offsets={0: 10, 1: 3})
    assert await ranges_before(topic, exact, RANGES) == {("t", 0): (0, 10), ("t", 1): (3, 3)}
    for offsets, said in (
        ({0: 4}, "name an offset of every queue of the event topic; it has the queues 0, 1"),
        ({0: 4, 1: 4, 2: 4}, "name an offset of every queue"),
        ({0: 11, 1: 3}, "as of x: queue 0 has the offsets from 0 to 10"),
        ({0: 1, 1: 2}, "as of x: queue 1 has the offsets from 3 to 7"),
    ):
        with pytest.raises(ProjectionError, match=said):
            await ranges_before(topic, Moment(text="x", offsets=offsets), RANGES)


async def test_rows_as_of_a_moment_stay_next_to_all_others_and_never_go_live(
    replay: Any, history: list[Any], read_models: ReadModels, ledger: Any, go_live: Any
) -> None:
    await go_live(read_models, ledger.accounts)
    kept = await replay(switch=False)
    ends = {0: 3, 1: 2}
    moment = Moment(text="0:3,1:2", offsets=ends)
    report = await replay(as_of=moment)
    assert (report.switched, report.compared) == (False, None)
    assert (sum(report.messages.values()), report.generation) == (5, kept.generation + 1)
    number = report.generation
    assert f"as of 0:3,1:2; they stay until `headrace projection drop accounts {number}`" in (
        report.reason
    )
    held = await rows(read_models, ledger.accounts, number)
    assert sum(row.bookings for row in held.values()) == 5
    # The table that a rebuild had finished is still the one to be put in place.
    async with read_models.begin() as connection:
        state = await lock_state(connection, "accounts")
        assert await find_finished(connection, state, 1) == kept.generation
    # Neither a switch nor another rebuild drops it, and nothing puts it in place.
    assert (await replay()).switched
    assert await rows(read_models, ledger.accounts, number) == held
    with pytest.raises(ProjectionError, match="there is no rebuilt table that was kept"):
        await Building(read_models, ledger.accounts).reopen(take_over=False)
    await read_models.drop_generation("accounts", number)
    async with read_models.begin() as connection:
        assert number not in await find_all(connection, "accounts")


async def test_a_table_begun_as_of_a_moment_is_not_gone_on_with(
    replay: Any, history: list[Any], read_models: ReadModels, ledger: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    async def dying(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Part, "write", dying)
        with pytest.raises(Killed):
            await replay(as_of=Moment(text="0:1,1:1", offsets={0: 1, 1: 1}))
    report = await replay(verify=False)
    assert (report.switched, report.start) == (True, "zero")
    async with read_models.begin() as connection:
        found = await find_all(connection, "accounts")
    assert all(origin.as_of is None for origin in found.values())

"""A rebuild in this process, from a real broker, on both databases."""

from typing import Any

import pytest

from headrace._projecting.applying import apply_batch, decode_batch, store_offsets
from headrace._projecting.read_models import ReadModels
from headrace.errors import ProjectionError, RebuildRunning
from headrace.rebuilding import building as building_module
from headrace.rebuilding import gathering as gathering_module
from headrace.rebuilding.replay import check, rebuild
from headrace.rebuilding.topic import EventTopic


@pytest.fixture
def replay(event_broker: Any, ledger: Any, database_url: str) -> Any:
    async def run(name: str = "accounts", **choices: Any) -> Any:
        return await rebuild(
            ledger.path,
            name,
            broker=event_broker.address,
            read_models_url=database_url,
            **{"live_wait_ms": 0, "messages_max": 3, **choices},
        )

    return run


@pytest.fixture
def go_live(event_broker: Any, ledger: Any) -> Any:
    """Lets the live generation apply all that the topic holds."""

    async def find_nothing(*_: object) -> list[Any]:
        return []

    async def run(models: ReadModels, projection: Any) -> None:
        generation = await models.generation(projection.name)
        offsets = await models.offsets(projection.name, generation)
        topic = EventTopic(event_broker.address, ledger.topic_name, messages_max=100)
        for queue, (_, end) in (await topic.ranges()).items():
            async for messages in topic.read(queue, offsets.get(queue, 0), end):
                batch = decode_batch(messages, offsets, ledger.serializer)
                async with models.begin() as connection:
                    await apply_batch(
                        connection, models.target(projection, generation), batch,
                        missing=find_nothing,
                    )  # fmt: skip

    return run


@pytest.fixture
async def history(event_broker: Any, ledger: Any, read_models: ReadModels) -> list[Any]:
    """Bookings of five aggregates with deletions and duplicates, in the topic; no shadow."""
    await read_models.abandon_shadow("accounts", 2, "the test")
    streams = []
    for key in "abcde":
        for version in range(1, 7):
            event = ledger.Booked(partner=f"p{version % 2}", amount=version)
            streams.append(ledger.stream(key, version, event))
    streams += [ledger.stream("e", 7, ledger.Ended()), *streams[3:9], ledger.rejection("a")]
    await event_broker.publish(*streams)
    return streams


async def rows(models: ReadModels, projection: Any, generation: int | None = None) -> Any:
    reader = models.reader(projection, generation=generation)
    return {getattr(row, projection.key): row async for row in reader.rows()}


@pytest.mark.parametrize("name", ["accounts", "partners"])
async def test_the_rebuilt_rows_are_the_live_ones_and_are_switched_to(
    name: str, replay: Any, history: Any, read_models: ReadModels, ledger: Any, go_live: Any
) -> None:
    projection = ledger.app.projection(name)
    await read_models.ensure(projection)
    await go_live(read_models, projection)
    before = await rows(read_models, projection)
    report = await replay(name)
    assert (report.switched, report.mismatches, report.reason) == (True, 0, "")
    assert report.compared == len(before) == report.rows
    assert report.events == 37
    assert sum(report.end_offsets.values()) == len(history)
    assert await rows(read_models, projection) == before
    assert await read_models.generation(name) == report.generation


async def test_a_wrong_live_row_is_found_and_nothing_is_switched(
    replay: Any, history: Any, read_models: ReadModels, ledger: Any, go_live: Any
) -> None:
    await go_live(read_models, ledger.accounts)
    table = read_models.table_for(ledger.accounts, 1)
    async with read_models.begin() as connection:
        await connection.execute(table.update().where(table.c.account_id == "b").values(balance=1))
    report = await replay()
    assert (report.switched, report.mismatches) == (False, 1)
    assert [key for key, _, _ in report.differences] == ["b"]
    assert await read_models.generation("accounts") == 1


async def test_a_rebuild_that_was_killed_goes_on_where_it_stood(
    replay: Any, history: Any, read_models: ReadModels, ledger: Any, go_live: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    await go_live(read_models, ledger.accounts)

    class Killed(BaseException):
        """Ends the rebuild without a chance to tidy up."""

    calls = 0

    def dying(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        store_offsets(*arguments)
        if calls == 5:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(gathering_module, "store_offsets", dying)
        with pytest.raises(Killed):
            await replay()
    monkeypatch.setattr(building_module, "is_gone", lambda owner: True)
    report = await replay()
    assert sum(report.start_offsets.values()) == 12
    assert (report.switched, report.mismatches) == (True, 0)
    assert sum(report.end_offsets.values()) == len(history)


async def test_a_fold_that_fails_leaves_the_live_rows_and_no_shadow(
    replay: Any, history: Any, event_broker: Any, read_models: ReadModels, ledger: Any
) -> None:
    await event_broker.publish(ledger.stream("z", 1, ledger.Noted(text="fail")))
    with pytest.raises(ProjectionError, match="cannot fold"):
        await replay()
    state = await read_models.state("accounts")
    assert (state.generation, state.rebuild_generation) == (1, None)


async def test_two_rebuilds_at_once_are_refused(
    replay: Any, event_broker: Any, read_models: ReadModels
) -> None:
    with pytest.raises(RebuildRunning):
        await replay()


async def test_each_phase_is_announced(replay: Any, history: Any, read_models: ReadModels) -> None:
    said: list[tuple[str, int]] = []
    await replay(verify=False, report=lambda name, ahead: said.append((name, ahead)))
    assert said == [("begin", 0), ("capture", 0), ("fold", len(history)), ("switch", 0)]


async def test_a_check_tells_what_differs_and_leaves_nothing_behind(
    event_broker: Any, history: Any, read_models: ReadModels, ledger: Any, go_live: Any,
    database_url: str,
) -> None:  # fmt: skip
    async def run() -> Any:
        return await check(
            ledger.path,
            "accounts",
            broker=event_broker.address,
            read_models_url=database_url,
            live_wait_ms=0,
        )

    accounts = ledger.app.projection("accounts")
    await read_models.ensure(accounts)
    behind = await run()
    assert behind.compared is None
    assert "has not caught up" in behind.reason
    await go_live(read_models, accounts)
    assert ((await run()).compared, (await run()).mismatches) == (4, 0)
    live = await read_models.generation("accounts")
    table = read_models.table_for(accounts, live)
    async with read_models.begin() as connection:
        await connection.execute(table.update().where(table.c.account_id == "a").values(balance=-1))
    wrong = await run()
    assert [key for key, _, _ in wrong.differences] == ["a"]
    assert await read_models.generation("accounts") == live
    assert await read_models.offsets("accounts", wrong.generation) == {}

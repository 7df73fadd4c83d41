"""The live loop: exactly once through duplicates, crashes, zombies, switches and outages."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from headrace.errors import ProjectionError
from headrace.projections.definition.projection import Projection
from headrace.projections.runner import ProjectionRunner
from headrace.subscriptions.status import ReaderState

WAIT_MS = 100_000


@pytest.fixture
def make_runner(
    totals: Any, sqlite_models: Any, store: Any, transport: Any, serializer: Any, settings: Any
) -> Callable[..., ProjectionRunner[Any]]:
    def make(**changes: Any) -> ProjectionRunner[Any]:
        parts = {
            "projection": totals,
            "app_name": "shop",
            "read_models": sqlite_models,
            "store": store,
            "transport": transport,
            "serializer": serializer,
            "settings": settings,
            "switch_check_ms": 5,
        }
        return ProjectionRunner(**(parts | changes))

    return make


@asynccontextmanager
async def running(*runners: ProjectionRunner[Any]) -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks = [asyncio.create_task(runner.run()) for runner in runners]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
def rows(sqlite_models: Any, totals: Any) -> Callable[[], Awaitable[dict[str, tuple[int, int]]]]:
    async def read() -> dict[str, tuple[int, int]]:
        reader = sqlite_models.reader(totals)
        return {row.counter_id: (row.total, row.folded) async for row in reader.rows()}

    return read


async def until(condition: Callable[[], Any]) -> None:
    """Lets the others run until the condition holds; the test's own timeout is the bound."""
    while not condition():
        await asyncio.sleep(0)


async def test_events_reach_the_rows_and_are_acknowledged(
    make_runner: Any, transport: Any, domain: Any, rows: Any
) -> None:
    for version in range(1, 8):
        transport.put(domain.stream("a", version))
        transport.put(domain.stream("b", version))
    runner = make_runner()
    async with running(runner):
        await runner.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
        assert await rows() == {"a": (28, 7), "b": (28, 7)}
        await transport.parked.wait()
    (subscription,) = transport.subscriptions
    assert transport.groups == ["shop.projection.totals"]
    assert len(subscription.acked) == 14
    assert subscription.closed
    assert runner.status.state is ReaderState.RUNNING
    assert runner.progress() == transport.ends()


async def test_a_small_batch_puts_the_next_one_off_and_a_full_one_does_not(
    make_runner: Any, transport: Any, domain: Any, rows: Any, settings: Any
) -> None:
    full = settings.model_copy(update={"projection_batch_max": 1})
    for version in (1, 2, 3):
        transport.put(domain.stream("a", version))
    # Longer than the test may last.
    patient = make_runner(settings=full, batch_interval_ms=1_000_000)
    async with running(patient):
        await patient.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
        assert await rows() == {"a": (6, 3)}
    hesitant = make_runner(batch_interval_ms=1_000_000)
    async with running(hesitant):
        await transport.parked.wait()
        transport.put(domain.stream("a", 4))
        reached = transport.ends()
        await until(lambda: hesitant.progress() == reached)
        transport.put(domain.stream("a", 5))
        for _ in range(100):
            await asyncio.sleep(0)
        assert hesitant.progress() == reached


async def test_rejections_move_only_the_offset(
    make_runner: Any, transport: Any, domain: Any, rows: Any
) -> None:
    transport.put(domain.rejection("a", "c"))
    transport.put(domain.stream("a", 1))
    runner = make_runner()
    async with running(runner):
        await runner.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
    assert await rows() == {"a": (1, 1)}


async def test_events_published_again_are_not_folded_again(
    make_runner: Any, transport: Any, domain: Any, rows: Any
) -> None:
    for version in [1, 2, 1, 2, 3, 2]:
        transport.put(domain.stream("a", version))
    runner = make_runner()
    async with running(runner):
        await runner.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
    assert await rows() == {"a": (6, 3)}


async def test_a_missing_version_is_filled_from_the_event_store(
    make_runner: Any, transport: Any, domain: Any, rows: Any, store: Any
) -> None:
    store.streams = [domain.stream("a", version) for version in range(1, 4)]
    transport.put(domain.stream("a", 3))
    runner = make_runner()
    async with running(runner):
        await runner.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
    assert await rows() == {"a": (6, 3)}


async def test_a_restart_goes_on_from_the_stored_offsets(
    make_runner: Any, transport: Any, domain: Any, rows: Any
) -> None:
    for version in range(1, 4):
        transport.put(domain.stream("a", version))
        runner = make_runner()
        async with running(runner):
            await runner.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
            # The offsets are seen in the database a moment before the runner acknowledges them.
            await transport.parked.wait()
    assert await rows() == {"a": (6, 3)}
    assert [len(subscription.acked) for subscription in transport.subscriptions] == [1, 1, 1]


async def test_a_crash_between_commit_and_acknowledgement_applies_nothing_twice(
    make_runner: Any, transport: Any, domain: Any, rows: Any, monkeypatch: Any
) -> None:
    transport.put(domain.stream("a", 1))
    first = make_runner()
    committed = asyncio.Event()

    async def stop_after_commit(batch: Any, generation: int, positions: Any) -> Any:
        await apply(batch, generation, positions)
        committed.set()
        await asyncio.Event().wait()

    apply = first._apply
    monkeypatch.setattr(first, "_apply", stop_after_commit)
    async with running(first):
        await committed.wait()
    assert transport.subscriptions[0].acked == []
    transport.put(domain.stream("a", 2))
    second = make_runner()
    async with running(second):
        await second.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
    assert await rows() == {"a": (3, 2)}


async def test_a_commit_whose_answer_was_lost_is_not_repeated(
    make_runner: Any, transport: Any, domain: Any, rows: Any, sqlite_models: Any, monkeypatch: Any
) -> None:
    transact, lost = sqlite_models.transact, [True]

    async def transact_and_lose(work: Any) -> Any:
        outcome = await transact(work)
        if lost:
            lost.clear()
            raise OperationalError("commit", {}, ConnectionResetError())
        return outcome

    runner = make_runner()
    async with running(runner):
        await transport.parked.wait()
        monkeypatch.setattr(sqlite_models, "transact", transact_and_lose)
        transport.put(domain.stream("a", 1))
        await runner.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
        await until(lambda: transport.subscriptions[0].seeks)
        transport.put(domain.stream("a", 2))
        await runner.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
    assert lost == []
    assert await rows() == {"a": (3, 2)}


async def test_two_runners_on_the_same_queues_apply_everything_once(
    make_runner: Any, transport: Any, domain: Any, rows: Any
) -> None:
    runners = [make_runner(), make_runner()]
    async with running(*runners):
        for version in range(1, 31):
            transport.put(domain.stream("a", version))
            transport.put(domain.stream("b", version))
            await asyncio.sleep(0)
        for runner in runners:
            await runner.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
        await until(lambda: all(runner.progress() == transport.ends() for runner in runners))
    assert await rows() == {"a": (465, 30), "b": (465, 30)}


async def test_a_zombie_that_wakes_up_with_an_old_batch_changes_nothing(
    make_runner: Any, transport: Any, domain: Any, rows: Any, monkeypatch: Any
) -> None:
    asleep, wake = asyncio.Event(), asyncio.Event()
    zombie = make_runner()
    apply = zombie._apply

    async def sleep_first(batch: Any, generation: int, positions: Any) -> Any:
        asleep.set()
        await wake.wait()
        return await apply(batch, generation, positions)

    monkeypatch.setattr(zombie, "_apply", sleep_first)
    transport.put(domain.stream("a", 1))
    owner = make_runner()
    async with running(zombie):
        await asleep.wait()
        async with running(owner):
            transport.put(domain.stream("a", 2))
            await owner.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
        wake.set()
        await until(lambda: transport.subscriptions[0].seeks)
        assert await rows() == {"a": (3, 2)}
        transport.put(domain.stream("a", 3))
        await zombie.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
    assert await rows() == {"a": (6, 3)}


async def test_a_runner_that_is_stopped_finishes_the_batch_it_is_applying(
    make_runner: Any, transport: Any, domain: Any, rows: Any, sqlite_models: Any, monkeypatch: Any
) -> None:
    transact, inside, go_on = sqlite_models.transact, asyncio.Event(), asyncio.Event()

    async def wait_and_transact(work: Any) -> Any:
        inside.set()
        await go_on.wait()
        return await transact(work)

    transport.put(domain.stream("a", 1))
    task = asyncio.create_task(make_runner().run())
    await transport.parked.wait()
    monkeypatch.setattr(sqlite_models, "transact", wait_and_transact)
    transport.put(domain.stream("a", 2))
    await inside.wait()
    task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert await rows() == {"a": (3, 2)}
    assert transport.subscriptions[0].closed


async def shadow_with_everything(transport: Any, make_runner: Any, models: Any, totals: Any) -> int:
    generation: int = await models.begin_shadow(totals, "me")
    await make_runner(shadow=generation).run_until(transport.ends(), timeout_ms=WAIT_MS)
    return generation


async def test_a_shadow_is_caught_up_by_the_same_code(
    make_runner: Any, transport: Any, domain: Any, rows: Any, sqlite_models: Any, totals: Any
) -> None:
    await sqlite_models.ensure(totals)
    for version in [1, 2, 2, 3]:
        transport.put(domain.stream("a", version))
    generation = await shadow_with_everything(transport, make_runner, sqlite_models, totals)
    assert transport.groups == ["shop.projection.totals.2"]
    assert await rows() == {}
    await sqlite_models.switch(totals, generation, "me")
    assert await rows() == {"a": (6, 3)}


async def test_a_switch_during_a_batch_sends_the_batch_to_the_new_generation_once(
    make_runner: Any,
    transport: Any,
    domain: Any,
    rows: Any,
    sqlite_models: Any,
    totals: Any,
    monkeypatch: Any,
) -> None:
    transact, switched = sqlite_models.transact, []

    async def switch_first(work: Any) -> Any:
        # Between taking the batch and locking the projection's row.
        monkeypatch.setattr(sqlite_models, "transact", transact)
        await sqlite_models.switch(totals, 2, "me")
        switched.append(True)
        return await transact(work)

    for version in (1, 2):
        transport.put(domain.stream("a", version))
    runner = make_runner()
    async with running(runner):
        await runner.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
        await shadow_with_everything(transport, make_runner, sqlite_models, totals)
        monkeypatch.setattr(sqlite_models, "transact", switch_first)
        transport.put(domain.stream("a", 3))
        await until(lambda: switched)
        await runner.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
    assert await sqlite_models.generation("totals") == 2
    assert await rows() == {"a": (6, 3)}
    old = sqlite_models.reader(totals, generation=1)
    assert (await old.get("a")).folded == 2


async def test_an_idle_runner_catches_up_a_generation_that_was_switched_to_and_is_behind(
    make_runner: Any, transport: Any, domain: Any, rows: Any, sqlite_models: Any, totals: Any
) -> None:
    runner = make_runner()
    async with running(runner):
        transport.put(domain.stream("a", 1))
        await runner.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
        await sqlite_models.begin_shadow(totals, "me")
        await sqlite_models.switch(totals, 2, "me")
        await runner.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
        assert await rows() == {"a": (1, 1)}
        await sqlite_models.rollback(totals)
        transport.put(domain.stream("a", 2))
        await runner.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
    assert await rows() == {"a": (3, 2)}


async def test_a_shadow_that_was_given_up_ends_its_runner(
    make_runner: Any, transport: Any, domain: Any, sqlite_models: Any, totals: Any, logs: Any
) -> None:
    await sqlite_models.ensure(totals)
    transport.put(domain.stream("a", 1))
    with pytest.raises(ProjectionError, match="no longer the shadow of a rebuild"):
        await make_runner(shadow=2).run_until(transport.ends(), timeout_ms=WAIT_MS)


async def test_an_outage_of_the_database_is_waited_out(
    make_runner: Any,
    transport: Any,
    domain: Any,
    rows: Any,
    sqlite_models: Any,
    monkeypatch: Any,
    logs: Any,
) -> None:
    transact, away = sqlite_models.transact, [True] * 10

    async def transact_or_fail(work: Any) -> Any:
        if away:
            away.pop()
            raise OperationalError("begin", {}, ConnectionRefusedError())
        return await transact(work)

    monkeypatch.setattr(sqlite_models, "transact", transact_or_fail)
    transport.put(domain.stream("a", 1))
    runner = make_runner()
    async with running(runner):
        await until(lambda: runner.status.state is ReaderState.RETRYING)
        await until(lambda: not away)
        await until(lambda: runner.progress() == transport.ends())
    assert await rows() == {"a": (1, 1)}
    assert runner.status.state is ReaderState.RUNNING
    assert [entry["attempt"] for entry in logs if "attempt" in entry][-1] == 10


async def test_a_poison_event_parks_its_aggregate_after_the_retries_and_nothing_else(
    make_runner: Any, transport: Any, domain: Any, rows: Any, letters: Any, logs: Any
) -> None:
    transport.put(domain.stream("a", 1))
    transport.put(domain.stream("a", 2, domain.Added(amount=666)))
    transport.put(domain.stream("c", 1))
    transport.put(domain.stream("a", 3))
    transport.put(domain.stream("b", 1))
    runner = make_runner()
    async with running(runner):
        await runner.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
        assert runner.status.state is ReaderState.RUNNING
    assert await rows() == {"a": (1, 1), "b": (1, 1), "c": (1, 1)}
    (letter,) = await letters.all()
    assert (letter.aggregate_id, letter.version, letter.held) == ("a", 1, 2)
    assert (letter.queue, letter.offset) == ((domain.topic, 1), 1)
    assert "cannot fold Added a/2/1" in letter.error
    parked = [entry for entry in logs if entry["log_level"] == "error"]
    assert [(entry["projection"], entry["aggregate_id"]) for entry in parked] == [("totals", "a")]
    # As often as the settings say: the event alone, not its batch.
    assert len([entry for entry in logs if entry["log_level"] == "warning"]) == 2


async def test_undecodable_and_waiting_events_are_not_retried(
    make_runner: Any, transport: Any, domain: Any, rows: Any, letters: Any, logs: Any
) -> None:
    transport.put_raw((domain.topic, 0), "a", b'{"aggregate_id": "a"}')
    async with running(runner := make_runner()):
        await until(lambda: runner.progress() == transport.ends())
        transport.put_raw((domain.topic, 0), "a", b'{"aggregate_id": "a"}')
        await until(lambda: runner.progress() == transport.ends())
    assert f"{domain.topic}/0 offset 0" in (await letters.all())[0].error
    assert (await letters.all())[0].held == 2
    told = [entry["log_level"] for entry in logs if entry["log_level"] in {"warning", "error"}]
    assert told == ["error", "error"]


async def test_too_many_letters_fail_the_projection_and_leave_others_running(
    make_runner: Any, transport: Any, domain: Any, sqlite_models: Any, settings: Any, logs: Any
) -> None:
    other = domain.make_totals("others")
    domain.deploy(
        other, domain.Added, lambda _: lambda *got: domain.Total(counter_id=got[2].aggregate_id)
    )
    for aggregate_id in "abc":
        transport.put(domain.stream(aggregate_id, 1, domain.Added(amount=666)))
    few = settings.model_copy(update={"projection_letters_max": 2})
    failing, healthy = make_runner(settings=few), make_runner(projection=other)
    async with running(failing, healthy) as (task, _):
        await until(lambda: failing.status.state is ReaderState.FAILED)
        await healthy.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
        with pytest.raises(ProjectionError, match="has failed: 2 aggregates are parked already"):
            await failing.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
        assert not task.done()
    assert await sqlite_models.reader(other).count() == 3
    assert transport.subscriptions[0].closed


async def test_the_shadow_of_a_rebuild_parks_nothing_and_fails(
    make_runner: Any, transport: Any, domain: Any, sqlite_models: Any, totals: Any, logs: Any
) -> None:
    transport.put(domain.stream("a", 1, domain.Added(amount=666)))
    await sqlite_models.ensure(totals)
    shadow = await sqlite_models.begin_shadow(totals, "test")
    async with running(runner := make_runner(shadow=shadow)):
        await until(lambda: runner.status.state is ReaderState.FAILED)
    assert "cannot fold Added a/1/1" in (runner.status.error or "")


async def test_changed_fields_fail_the_projection_before_it_reads_anything(
    make_runner: Any, transport: Any, domain: Any, sqlite_models: Any, totals: Any, logs: Any
) -> None:
    await sqlite_models.ensure(Projection("totals", row=domain.StatementLine, key="line_id"))
    runner = make_runner()
    async with running(runner):
        await until(lambda: runner.status.state is ReaderState.FAILED)
    assert "headrace projection rebuild totals" in (runner.status.error or "")
    assert transport.subscriptions == []


async def test_a_broken_subscription_is_replaced(
    make_runner: Any, transport: Any, domain: Any, rows: Any, logs: Any
) -> None:
    transport.broken = ["connection lost"] * 5
    transport.put(domain.stream("a", 1))
    runner = make_runner()
    async with running(runner):
        await until(lambda: len(transport.subscriptions) == 6)
        await runner.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
    assert await rows() == {"a": (1, 1)}
    assert [subscription.closed for subscription in transport.subscriptions] == [True] * 6


async def test_queues_that_were_taken_away_are_not_sought(
    make_runner: Any, transport: Any, domain: Any, rows: Any, sqlite_models: Any, totals: Any
) -> None:
    runner = make_runner()
    async with running(runner):
        transport.put(domain.stream("a", 1), queue=0)
        await runner.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
        transport.subscriptions[0].taken.add((domain.topic, 1))
        await sqlite_models.begin_shadow(totals, "me")
        await sqlite_models.switch(totals, 2, "me")
        await runner.wait_for_offsets(transport.ends(), timeout_ms=WAIT_MS)
    assert len(transport.subscriptions) == 1
    assert await rows() == {"a": (1, 1)}


async def test_a_hole_in_the_topic_is_asked_for_again_then_passed_with_an_error_in_the_log(
    make_runner: Any, transport: Any, domain: Any, rows: Any, store: Any, logs: Any
) -> None:
    store.streams = [domain.stream("a", version) for version in range(1, 4)]
    for version in (1, 2, 3):
        transport.put(domain.stream("a", version), queue=0)
    del transport.logs[domain.topic, 0][1]
    runner = make_runner()
    async with running(runner):
        await runner.wait_for_offsets({(domain.topic, 0): 3}, timeout_ms=WAIT_MS)
    assert transport.subscriptions[0].seeks == [((domain.topic, 0), 1)]
    assert await rows() == {"a": (6, 3)}
    (entry,) = [entry for entry in logs if entry["log_level"] == "error"]
    assert (entry["first_offset"], entry["last_offset"]) == (1, 1)

"""How far projections are behind, measured from the topic's newest message."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from headrace.errors import ProjectionError
from headrace.lineage.marks import write_marks
from headrace.projections.tables.contents import write_offsets
from headrace.projections.tables.succession import take_own
from headrace.stores.database.parked import new_row
from headrace.stores.database.tables import parked_rows
from headrace.transports.base import Outgoing
from headrace.transports.local import LocalTransport
from headrace.watch.lag import GenerationLag, Lags, ParkedKey


@pytest.fixture
async def topic(clock: Any, domain: Any) -> LocalTransport:
    transport = LocalTransport(clock)
    await transport.ensure_topic(domain.topic, queues=2, forever=True)
    return transport


@pytest.fixture
async def lags(totals: Any, sqlite_models: Any, topic: LocalTransport, clock: Any) -> Lags:
    await sqlite_models.ensure(totals)
    return Lags(
        app_name="shop",
        projections={"totals": totals},
        read_models=sqlite_models,
        transport=topic,
        clock=clock,
    )


@pytest.fixture
def put(topic: LocalTransport, domain: Any) -> Callable[..., Any]:
    """Publishes a message; returns its place."""

    async def publish(key: str) -> tuple[int, int]:
        return await topic.publish(Outgoing(topic=domain.topic, key=key, body=b""))

    return publish


@pytest.fixture
def advance(sqlite_models: Any, totals: Any, domain: Any) -> Callable[..., Any]:
    async def run(queue: int, offset: int) -> None:
        target = sqlite_models.target(totals, await sqlite_models.generation("totals"))
        async with sqlite_models.begin() as connection:
            await write_offsets(connection, target, {(domain.topic, queue): offset})

    return run


async def test_the_lag_is_what_lies_between_the_stored_offset_and_the_end(
    lags: Lags, put: Any, advance: Any, clock: Any
) -> None:
    [before] = await lags.measure()
    assert (before.messages, before.age_ms) == (0, 0)
    places = []
    for _ in range(3):
        places.append(await put("a"))
        clock.advance(1_000)
    queue = places[0][0]
    [lag] = await lags.measure()
    assert (lag.messages, lag.age_ms) == (3, 3_000)
    await advance(queue, 2)
    [lag] = await lags.measure()
    behind = next(each for each in lag.queues if each.queue[1] == queue)
    assert (behind.next_offset, behind.end, behind.messages, behind.age_ms) == (2, 3, 1, 1_000)
    assert len(lag.queues) == 2
    await advance(queue, 3)
    [lag] = await lags.measure()
    assert (lag.messages, lag.age_ms) == (0, 0)


async def test_a_projection_without_a_runner_falls_behind_as_time_goes_by(
    lags: Lags, put: Any, clock: Any
) -> None:
    await put("a")
    await lags.check(messages_max=1, ms_max=1_000)
    clock.advance(1_001)
    with pytest.raises(ProjectionError, match=r"totals is 1 messages and 1\.0 s behind"):
        await lags.check(messages_max=1, ms_max=1_000)
    with pytest.raises(ProjectionError, match="totals is 1 messages"):
        await lags.check(messages_max=0, ms_max=60_000)


async def test_a_paused_projection_is_behind_and_no_reason_not_to_be_ready(
    lags: Lags, put: Any, clock: Any, sqlite_models: Any
) -> None:
    await put("a")
    clock.advance(10_000)
    await sqlite_models.pause("totals")
    await lags.check(messages_max=0, ms_max=1)
    [lag] = await lags.measure()
    assert (lag.messages, lag.paused_at is None) == (1, False)


async def test_a_projection_whose_group_an_operator_paused_says_so_and_is_behind_on_purpose(
    lags: Lags, put: Any, clock: Any, topic: LocalTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    async def paused(groups: Any) -> list[str]:
        asked.append(groups)
        return ["shop.projection.totals"]

    await put("a")
    clock.advance(10_000)
    monkeypatch.setattr(topic, "paused", paused)
    await lags.check(messages_max=0, ms_max=1)
    [lag] = await lags.measure()
    assert (lag.messages, lag.group_paused) == (1, "shop.projection.totals")
    assert asked == [["shop.projection.totals"]] * 2


async def test_parked_keys_tell_how_far_they_are_behind(
    lags: Lags, sqlite_models: Any, clock: Any, domain: Any
) -> None:
    async with sqlite_models.begin() as connection:
        await connection.execute(
            parked_rows.insert().values(
                name="totals",
                generation=1,
                aggregate_id="a",
                topic=domain.topic,
                queue_id=0,
                message_offset=0,
                parked_at=clock.now(),
                **new_row(ValueError("no")) | {"held": 7},
            )
        )
    clock.advance(5_000)
    [lag] = await lags.measure()
    assert lag.parked == (ParkedKey(aggregate_id="a", messages=7, age_ms=5_000),)


async def test_offsets_beyond_the_end_are_no_lag_of_0(lags: Lags, put: Any, advance: Any) -> None:
    queue, offset = await put("a")
    await advance(queue, offset + 2)
    [lag] = await lags.measure()
    assert lag.elsewhere == "stands beyond the end of the event topic, which lost messages"
    assert lag.messages == 1
    with pytest.raises(ProjectionError, match="projection totals stands beyond the end"):
        await lags.check(messages_max=1_000, ms_max=1_000_000)


async def test_offsets_of_another_topic_say_nothing_about_this_one(
    lags: Lags, put: Any, advance: Any, sqlite_models: Any, totals: Any
) -> None:
    queue, offset = await put("a")
    await advance(queue, offset + 1)
    generation = await sqlite_models.generation("totals")
    write = partial(
        write_marks, readers={("totals", generation): {}}, topic="another", store="store"
    )
    await sqlite_models.transact(write)
    [lag] = await lags.measure()
    assert lag.elsewhere == "belongs to another event topic"
    assert lag.messages == 1


async def test_a_newer_version_tells_how_far_it_is_behind_the_topic_and_the_live_rows(
    lags: Lags, put: Any, advance: Any, sqlite_models: Any, domain: Any
) -> None:
    newer = domain.make_totals(version=2)
    async with sqlite_models.begin() as connection:
        assert await take_own(connection, newer) == 2
        built = sqlite_models.target(newer, 2)
        places = [await put("a") for _ in range(5)]
        queue = places[0][0]
        await write_offsets(connection, built, {(domain.topic, queue): 1})
    await advance(queue, 3)
    (lag,) = await lags.measure()
    assert (lag.generation, lag.messages, lag.obstacle) == (1, 2, None)
    assert lag.other_versions == (
        GenerationLag(generation=2, version=2, messages=4, behind_live=2, by_command=False),
    )

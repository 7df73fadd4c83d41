"""Letters: what waits is applied in order, once, whatever fails or arrives meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from sqlalchemy.exc import OperationalError

from headrace.errors import LetterNotFound, ProjectionError
from headrace.projections.letters import Letters
from headrace.projections.runner import ProjectionRunner
from headrace.projections.tables.read_models import ReadModels
from headrace.stores.database.parked import ERROR_CHARACTERS_MAX

WAIT_MS = 100_000


@pytest.fixture
def apply(
    totals: Any, store: Any, transport: Any, serializer: Any, settings: Any
) -> Callable[..., Awaitable[None]]:
    """Lets a live projection apply all that the topic and the store hold."""

    async def run(models: ReadModels, *streams: Any) -> None:
        for stream in streams:
            store.streams.append(stream)
            transport.put(stream)
        runner = ProjectionRunner(
            projection=totals,
            app_name="shop",
            read_models=models,
            store=store,
            transport=transport,
            serializer=serializer,
            settings=settings,
            batch_interval_ms=0,
        )
        await runner.run_until(transport.ends(), timeout_ms=WAIT_MS)

    return run


def poison(domain: Any, aggregate_id: str, version: int) -> Any:
    return domain.stream(aggregate_id, version, domain.Added(amount=666))


def mend(totals: Any, domain: Any) -> None:
    """Deploys a fold that can do it."""
    domain.deploy(
        totals,
        domain.Added,
        lambda fold: (
            lambda row, event, context: fold(
                row, domain.Added(amount=0) if event.amount == 666 else event, context
            )
        ),
    )


async def rows(models: ReadModels, totals: Any) -> dict[str, tuple[int, int]]:
    return {row.counter_id: (row.total, row.folded) async for row in models.reader(totals).rows()}


async def test_a_retry_after_a_mended_fold_applies_what_waits_in_order_and_once(
    read_models: ReadModels, totals: Any, store: Any, domain: Any, apply: Any, logs: Any
) -> None:
    letters = Letters(totals, read_models, store)
    await apply(read_models, domain.stream("a", 1), poison(domain, "a", 2), domain.stream("a", 3))
    (letter,) = await letters.all()
    assert (letter.version, letter.held, letter.retries) == (1, 2, 0)
    again = await letters.retry("a")
    assert again is not None
    assert (again.version, again.held, again.retries) == (1, 2, 1)
    mend(totals, domain)
    assert await letters.retry("a") is None
    assert await letters.all() == []
    assert await rows(read_models, totals) == {"a": (4, 3)}
    await apply(read_models, domain.stream("a", 4))
    assert await rows(read_models, totals) == {"a": (8, 4)}


async def test_a_skip_passes_over_one_stream_and_applies_the_rest(
    read_models: ReadModels, totals: Any, store: Any, domain: Any, apply: Any, logs: Any
) -> None:
    letters = Letters(totals, read_models, store)
    await apply(
        read_models,
        domain.stream("a", 1),
        poison(domain, "a", 2),
        domain.stream("a", 3),
        poison(domain, "a", 4),
        domain.stream("a", 5),
    )
    left = await letters.skip("a")
    assert left is not None
    assert (left.version, left.retries) == (3, 1)
    assert "a/4/1" in left.error
    assert await rows(read_models, totals) == {"a": (4, 2)}
    assert await letters.skip("a") is None
    assert await rows(read_models, totals) == {"a": (9, 3)}


async def test_an_event_that_arrives_while_a_letter_is_taken_up_is_not_left_behind(
    sqlite_models: ReadModels, totals: Any, store: Any, domain: Any, apply: Any, logs: Any
) -> None:
    await apply(sqlite_models, poison(domain, "a", 1))
    mend(totals, domain)

    class Arriving:
        """A store whose answer is out of date as soon as it is given, once."""

        async def read_stream(self, *args: Any, **bounds: Any) -> list[Any]:
            found: list[Any] = await store.read_stream(*args, **bounds)
            if len(store.streams) == 1:
                await apply(sqlite_models, domain.stream("a", 2))
            return found

    assert await Letters(totals, sqlite_models, Arriving()).retry("a") is None  # type: ignore[arg-type]  # as much of a store as letters need
    assert await rows(sqlite_models, totals) == {"a": (2, 2)}


async def test_an_aggregate_that_never_stands_still_is_given_up_with_nothing_lost(
    sqlite_models: ReadModels, totals: Any, store: Any, domain: Any, apply: Any, logs: Any
) -> None:
    await apply(sqlite_models, poison(domain, "a", 1))
    mend(totals, domain)

    class Busy:
        """A store that has one event more after every look."""

        async def read_stream(self, *args: Any, **bounds: Any) -> list[Any]:
            found: list[Any] = await store.read_stream(*args, **bounds)
            await apply(sqlite_models, domain.stream("a", len(store.streams) + 1))
            return found

    with pytest.raises(ProjectionError, match="keep coming faster"):
        await Letters(totals, sqlite_models, Busy()).retry("a")  # type: ignore[arg-type]  # as much of a store as letters need
    assert await Letters(totals, sqlite_models, store).retry("a") is None
    (row,) = (await rows(sqlite_models, totals)).values()
    assert row[1] == len(store.streams)


async def test_a_stream_that_does_not_decode_is_skipped_by_its_place(
    sqlite_models: ReadModels, totals: Any, letters: Letters, transport: Any, domain: Any,
    store: Any, apply: Any, logs: Any,
) -> None:  # fmt: skip
    transport.put_raw((domain.topic, 1), "a", b'{"aggregate_id": "a"}')
    await apply(sqlite_models, domain.stream("a", 2))

    class Undecodable:
        """A store whose first version cannot be read."""

        async def read_stream(self, aggregate_id: str, *, after_version: int = 0, **_: Any) -> Any:
            if after_version == 0:
                raise ValueError("no such event type")
            return await store.read_stream(aggregate_id, after_version=after_version)

    broken = Letters(totals, sqlite_models, Undecodable())  # type: ignore[arg-type]  # as much of a store as letters need
    failed = await broken.retry("a")
    assert failed is not None
    assert failed.error == "no such event type"
    assert await broken.skip("a") is None
    assert await rows(sqlite_models, totals) == {"a": (2, 1)}


async def test_an_outage_changes_nothing_and_is_raised(
    sqlite_models: ReadModels, totals: Any, letters: Letters, domain: Any, apply: Any, logs: Any
) -> None:
    await apply(sqlite_models, poison(domain, "a", 1))
    before = await letters.all()

    class Away:
        async def read_stream(self, *_: Any, **__: Any) -> Any:
            raise OperationalError("select", {}, OSError("gone"), connection_invalidated=True)

    with pytest.raises(OperationalError):
        await Letters(totals, sqlite_models, Away()).skip("a")  # type: ignore[arg-type]  # as much of a store as letters need
    assert await letters.all() == before


async def test_an_aggregate_that_is_not_parked_is_said_so(
    sqlite_models: ReadModels, totals: Any, letters: Letters, domain: Any, apply: Any
) -> None:
    await apply(sqlite_models, domain.stream("a", 1))
    for action in (letters.retry, letters.skip):
        with pytest.raises(
            LetterNotFound, match="headrace parked list --processor projection:totals"
        ):
            await action("a")


async def test_a_switch_ends_the_letters_of_the_generation_before(
    sqlite_models: ReadModels, totals: Any, letters: Letters, domain: Any, apply: Any, logs: Any
) -> None:
    await apply(sqlite_models, poison(domain, "a", 1))
    shadow = await sqlite_models.begin_shadow(totals, "me")
    await sqlite_models.switch(totals, shadow, "me")
    assert await letters.all() == []
    await sqlite_models.rollback(totals)
    assert [letter.aggregate_id for letter in await letters.all()] == ["a"]
    await sqlite_models.drop_generation("totals", shadow)
    shadow = await sqlite_models.begin_shadow(totals, "me")
    await sqlite_models.switch(totals, shadow, "me")
    await sqlite_models.drop_generation("totals", 1)
    assert await letters.all() == []


async def test_a_long_error_is_cut(
    sqlite_models: ReadModels, totals: Any, letters: Letters, domain: Any, apply: Any, logs: Any
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("x" * 10_000)

    domain.deploy(totals, domain.Added, lambda _: fail)
    await apply(sqlite_models, domain.stream("a", 1))
    assert len((await letters.all())[0].error) == ERROR_CHARACTERS_MAX


@hypothesis_settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    history=st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), min_size=1, max_size=25),
    batch=st.integers(1, 8),
)
def test_rows_after_all_retries_equal_those_of_a_fold_that_never_failed(
    history: list[tuple[str, bool]], batch: int, domain: Any, serializer: Any, settings: Any,
    tmp_path_factory: pytest.TempPathFactory, make_parts: Any, logs: Any,
) -> None:  # fmt: skip
    async def scenario() -> None:
        file = tmp_path_factory.mktemp("letters") / "read.db"
        models = ReadModels(f"sqlite:///{file}")
        totals, store, transport = make_parts()
        versions: dict[str, int] = {}
        expected: dict[str, tuple[int, int]] = {}
        for aggregate_id, bad in history:
            version = versions[aggregate_id] = versions.get(aggregate_id, 0) + 1
            stream = domain.stream(
                aggregate_id, version, domain.Added(amount=666 if bad else version)
            )
            store.streams.append(stream)
            transport.put(stream)
            total, folded = expected.get(aggregate_id, (0, 0))
            expected[aggregate_id] = (total + (0 if bad else version), folded + 1)
        runner = ProjectionRunner(
            projection=totals, app_name="shop", read_models=models, store=store,
            transport=transport, serializer=serializer, batch_interval_ms=0,
            settings=settings.model_copy(update={"projection_batch_max": batch}),
        )  # fmt: skip
        try:
            await runner.run_until(transport.ends(), timeout_ms=WAIT_MS)
            letters = Letters(totals, models, store)
            parked = {letter.aggregate_id for letter in await letters.all()}
            assert parked == {aggregate_id for aggregate_id, bad in history if bad}
            mend(totals, domain)
            for aggregate_id in parked:
                assert await letters.retry(aggregate_id) is None
            assert await rows(models, totals) == expected
        finally:
            await models.aclose()

    asyncio.run(scenario())

"""One batch in one transaction: rows, versions and offsets together, or nothing."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import delete, insert, select, text, update

from headrace.errors import ProjectionError
from headrace.projections import batch_transaction as applying
from headrace.projections.batch_transaction import (
    Applied,
    Batch,
    apply_batch,
    apply_through,
    decode_batch,
)
from headrace.projections.tables.contents import Moved, Switched, read_offsets
from headrace.projections.tables.generations import lock_state
from headrace.projections.written_cache import Recall
from headrace.stores.database.parked import new_row
from headrace.stores.database.tables import parked_rows, projection_versions, projections
from headrace.transports.base import Incoming

Q0, Q1 = ("t", 0), ("t", 1)


@pytest.fixture
async def models(read_models: Any, totals: Any) -> Any:
    """Read models with the projection set up."""
    await read_models.ensure(totals)
    return read_models


@pytest.fixture
def apply(models: Any, totals: Any, store: Any) -> Any:
    """Applies streams as the messages of queue 0 from an offset on."""

    async def missing(aggregate_id: str, after: int, to: int) -> Any:
        return await store.read_stream(aggregate_id, after_version=after, to_version=to)

    async def run(begin: int | None, *streams: Any, generation: int = 1, end: int = 0) -> Any:
        end = end or (begin or 0) + len(streams)
        batch = Batch(streams=streams, begin={Q0: begin}, end={Q0: end})
        async with models.begin() as connection:
            return await apply_batch(
                connection, models.target(totals, generation), batch, missing=missing
            )

    return run


@pytest.fixture
def follow(models: Any, store: Any) -> Any:
    """Applies streams as a runner does, which recalls what it wrote."""

    async def missing(aggregate_id: str, after: int, to: int) -> Any:
        return await store.read_stream(aggregate_id, after_version=after, to_version=to)

    async def run(
        recall: Recall[Any], projection: Any, begin: int | None, *streams: Any, queue: Any = Q0
    ) -> Any:
        end = (begin or 0) + len(streams)
        batch = Batch(streams=streams, begin={queue: begin}, end={queue: end})
        return await apply_through(
            models.transact,
            models.target(projection, 1),
            batch,
            missing=missing,
            recall=recall,
            alone=models.run_alone if models.engine.dialect.name == "postgresql" else None,
        )

    return run


async def versions(models: Any, generation: int = 1) -> dict[str, int]:
    columns = projection_versions.c
    async with models.begin() as connection:
        found = await connection.execute(
            select(columns.aggregate_id, columns.version).where(columns.generation == generation)
        )
        return dict(found.all())


async def rows(models: Any, totals: Any, generation: int | None = None) -> dict[str, Any]:
    reader = models.reader(totals, generation=generation)
    return {row.counter_id: (row.total, row.folded) async for row in reader.rows()}


async def test_rows_versions_and_offsets_are_written_together(
    models: Any, totals: Any, apply: Any, domain: Any
) -> None:
    outcome = await apply(None, domain.stream("a", 1), domain.stream("a", 2), domain.stream("b", 1))
    assert outcome == Applied(rows=2)
    assert await rows(models, totals) == {"a": (3, 2), "b": (1, 1)}
    assert await versions(models) == {"a": 2, "b": 1}
    assert await models.offsets("totals", 1) == {Q0: 3}


async def test_the_next_batch_goes_on_from_there(
    models: Any, totals: Any, apply: Any, domain: Any
) -> None:
    await apply(None, domain.stream("a", 1), domain.stream("b", 1))
    assert await apply(2, domain.stream("a", 2), domain.stream("b", 2, domain.Cleared())) == (
        Applied(rows=2)
    )
    assert await rows(models, totals) == {"a": (3, 2)}
    assert await versions(models) == {"a": 2, "b": 2}


async def test_versions_seen_before_are_skipped_and_their_offsets_passed(
    models: Any, totals: Any, apply: Any, domain: Any
) -> None:
    await apply(None, domain.stream("a", 1), domain.stream("a", 2))
    outcome = await apply(2, domain.stream("a", 2), domain.stream("a", 1), domain.stream("a", 2))
    assert outcome == Applied(rows=0)
    assert await rows(models, totals) == {"a": (3, 2)}
    assert await models.offsets("totals", 1) == {Q0: 5}


async def test_a_gap_is_filled_from_the_event_store(
    models: Any, totals: Any, apply: Any, domain: Any, store: Any
) -> None:
    store.streams = [domain.stream("a", version) for version in range(1, 6)]
    await apply(None, domain.stream("a", 1))
    await apply(1, domain.stream("a", 4), domain.stream("a", 3), domain.stream("a", 5))
    assert store.asked == [("a", 1, 3)]
    assert await rows(models, totals) == {"a": (15, 5)}


async def test_an_aggregate_never_seen_is_filled_from_version_1(
    models: Any, totals: Any, apply: Any, domain: Any, store: Any
) -> None:
    store.streams = [domain.stream("a", version) for version in range(1, 4)]
    await apply(None, domain.stream("a", 3))
    assert await rows(models, totals) == {"a": (6, 3)}


async def test_a_gap_that_the_store_cannot_fill_is_an_error_and_nothing_is_written(
    models: Any, totals: Any, apply: Any, domain: Any, store: Any
) -> None:
    store.streams = [domain.stream("a", 1)]
    with pytest.raises(ProjectionError, match="versions 1 to 2 of aggregate a did not come"):
        await apply(None, domain.stream("b", 1), domain.stream("a", 3))
    assert await rows(models, totals) == {}
    assert await models.offsets("totals", 1) == {}


async def test_a_fold_that_raises_leaves_nothing_written(
    models: Any, totals: Any, apply: Any, domain: Any
) -> None:
    with pytest.raises(ProjectionError, match="cannot fold Added b/1/1"):
        await apply(None, domain.stream("a", 1), domain.stream("b", 1, domain.Added(amount=666)))
    assert await rows(models, totals) == {}
    assert await versions(models) == {}


@pytest.mark.parametrize("begin", [None, 0, 1, 3])
async def test_a_batch_that_does_not_begin_where_the_offsets_stand_changes_nothing(
    models: Any, totals: Any, apply: Any, domain: Any, begin: int | None
) -> None:
    await apply(None, domain.stream("a", 1), domain.stream("a", 2))
    assert await apply(begin, domain.stream("a", 3)) == Moved(offsets={Q0: 2})
    assert await rows(models, totals) == {"a": (3, 2)}


async def test_a_batch_of_a_generation_that_is_live_no_more_changes_nothing(
    models: Any, totals: Any, apply: Any, domain: Any
) -> None:
    await models.begin_shadow(totals, "me")
    await models.switch(totals, 2, "me")
    assert await apply(None, domain.stream("a", 1)) == Switched(generation=2)
    assert await rows(models, totals, 1) == {}


async def test_a_shadow_takes_batches_independently_of_the_live_generation(
    models: Any, totals: Any, apply: Any, domain: Any
) -> None:
    await models.begin_shadow(totals, "me")
    assert await apply(None, domain.stream("a", 1), generation=2) == Applied(rows=1)
    assert await rows(models, totals) == {}
    assert await rows(models, totals, 2) == {"a": (1, 1)}
    assert await models.offsets("totals", 1) == {}
    await models.abandon_shadow("totals", 2, "me")
    assert await apply(1, domain.stream("a", 2), generation=2) == Switched(generation=1)


async def test_code_with_other_fields_than_the_live_generation_is_refused(
    models: Any, totals: Any, apply: Any, domain: Any
) -> None:
    async with models.begin() as connection:
        await connection.execute(update(projections).values(fingerprint="other"))
    with pytest.raises(ProjectionError, match="built with other fields"):
        await apply(None, domain.stream("a", 1))


async def test_code_of_another_version_than_the_live_generation_writes_nothing(
    models: Any, totals: Any, apply: Any, domain: Any
) -> None:
    await apply(None, domain.stream("a", 1))
    other = f"2:{totals.fingerprint}"[:64]
    async with models.begin() as connection:
        await connection.execute(update(projections).values(fingerprint=other))
    assert await apply(1, domain.stream("a", 2)) == Switched(generation=1)
    assert await rows(models, totals) == {"a": (1, 1)}


async def test_more_aggregates_and_rows_than_one_list_binds(
    models: Any, totals: Any, apply: Any, domain: Any
) -> None:
    first = [domain.stream(f"{n:05}", 1) for n in range(2_500)]
    second = [domain.stream(f"{n:05}", 2) for n in range(2_500)]
    await apply(None, *first)
    assert await apply(2_500, *second) == Applied(rows=2_500)
    assert set((await rows(models, totals)).values()) == {(3, 2)}


async def test_rows_lost_behind_our_back_do_not_hide_a_seen_version(
    models: Any, totals: Any, apply: Any, domain: Any
) -> None:
    await apply(None, domain.stream("a", 1))
    async with models.begin() as connection:
        await connection.execute(delete(models.table_for(totals, 1)))
    await apply(1, domain.stream("a", 1))
    assert await rows(models, totals) == {}


async def test_rows_that_a_runner_wrote_are_not_read_again(
    models: Any, totals: Any, follow: Any, domain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    recall: Recall[Any] = Recall()
    await follow(recall, totals, None, domain.stream("a", 1), domain.stream("b", 1))
    asked: list[Any] = []
    for name in ("find_rows", "find_versions"):
        find = getattr(applying, name)
        monkeypatch.setattr(
            applying, name, lambda c, t, some, find=find: asked.extend(some) or find(c, t, some)
        )
    await follow(recall, totals, 2, domain.stream("a", 1), domain.stream("a", 2))
    assert asked == []
    await follow(recall, totals, 4, domain.stream("b", 2), domain.stream("c", 1))
    assert asked == ["c", "c"]
    assert await rows(models, totals) == {"a": (3, 2), "b": (3, 2), "c": (1, 1)}


async def test_rows_of_another_writer_replace_those_in_a_runners_cache(
    models: Any, totals: Any, follow: Any, apply: Any, domain: Any
) -> None:
    # As after more queues were given to the topic: an aggregate's later streams are in another one.
    one, other = Recall[Any](), Recall[Any]()
    await follow(one, totals, None, domain.stream("a", 1), domain.stream("b", 1))
    await follow(other, totals, None, domain.stream("a", 2), domain.stream("a", 3), queue=Q1)
    await follow(one, totals, 2, domain.stream("a", 2), domain.stream("a", 4))
    await follow(other, totals, 2, domain.stream("a", 4), domain.stream("a", 5), queue=Q1)
    await apply(4, domain.stream("b", 2))
    await follow(one, totals, 5, domain.stream("b", 2), domain.stream("b", 3))
    assert await rows(models, totals) == {"a": (15, 5), "b": (6, 3)}
    assert await versions(models) == {"a": 5, "b": 3}


async def test_a_transaction_that_did_not_end_well_is_not_recalled(
    models: Any, totals: Any, follow: Any, domain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    recall: Recall[Any] = Recall()
    await follow(recall, totals, None, domain.stream("a", 1))

    def fail(*_: Any) -> None:
        raise OSError("the database is away")

    with monkeypatch.context() as patched:
        patched.setattr(applying, "store_offsets", fail)
        patched.setattr(applying, "replace_offsets", fail)
        with pytest.raises(OSError, match="away"):
            await follow(recall, totals, 1, domain.stream("a", 2))
    assert await rows(models, totals) == {"a": (1, 1)}
    await follow(recall, totals, 1, domain.stream("a", 2), domain.stream("a", 3))
    assert await rows(models, totals) == {"a": (6, 3)}


async def test_a_row_that_a_fold_changed_before_another_failed_is_read_again(
    models: Any, totals: Any, follow: Any, domain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    recall: Recall[Any] = Recall()
    await follow(recall, totals, None, domain.stream("a", 1))

    def spoil(projection: Any, rows: Any, facts: Any) -> Any:
        rows["a"].total = 1_000
        raise ProjectionError("a fold failed")

    with monkeypatch.context() as patched:
        patched.setattr(applying, "fold_facts", spoil)
        with pytest.raises(ProjectionError, match="a fold failed"):
            await follow(recall, totals, 1, domain.stream("a", 2))
    await follow(recall, totals, 1, domain.stream("a", 2))
    assert await rows(models, totals) == {"a": (3, 2)}


async def test_a_fold_that_fails_on_what_was_recalled_is_tried_on_what_is_stored(
    models: Any, totals: Any, follow: Any, domain: Any
) -> None:
    one, other = Recall[Any](), Recall[Any]()
    await follow(one, totals, None, domain.stream("a", 1), domain.stream("b", 1))
    # The version that the fold cannot take was applied by other code, in another queue.
    domain.deploy(totals, domain.Added, lambda _: lambda *_: domain.Total(counter_id="a", total=9))
    await follow(other, totals, None, domain.stream("a", 2), queue=Q1)
    domain.deploy(totals, domain.Added, lambda _: fail_to_fold)
    outcome = await follow(one, totals, 2, domain.stream("a", 2))
    assert outcome == Applied(rows=0)
    assert await rows(models, totals) == {"a": (9, 0), "b": (1, 1)}
    assert await models.offsets("totals", 1) == {Q0: 3, Q1: 1}


async def test_a_row_that_goes_is_deleted_by_a_runner_that_recalls_it(
    models: Any, totals: Any, follow: Any, domain: Any
) -> None:
    recall: Recall[Any] = Recall()
    await follow(recall, totals, None, domain.stream("a", 1), domain.stream("b", 1))
    await follow(recall, totals, 2, domain.stream("a", 2, domain.Cleared()))
    await follow(recall, totals, 3, domain.stream("b", 2))
    assert await rows(models, totals) == {"b": (3, 2)}
    assert await models.offsets("totals", 1) == {Q0: 4}
    assert await versions(models) == {"a": 2, "b": 2}


@pytest.fixture
async def held(models: Any, totals: Any) -> AsyncIterator[Any]:
    """Another transaction, which takes the projection's lock and is not committed."""
    async with models.engine.connect() as connection:

        async def hold() -> Any:
            await lock_state(connection, totals.name)
            return connection

        yield hold


async def wait_for_waiter(models: Any, task: asyncio.Task[Any]) -> None:
    """Returns when a statement waits for a lock."""
    waits = text(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    async with models.engine.connect() as connection:
        while not (await connection.execute(waits)).scalar_one():
            await connection.rollback()
            assert not task.done(), task


# On SQLite there is one writer at a time.
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_a_write_while_the_one_statement_waits_is_noticed(
    models: Any, totals: Any, follow: Any, domain: Any, held: Any
) -> None:
    recall: Recall[Any] = Recall()
    await follow(recall, totals, None, domain.stream("a", 1), domain.stream("b", 1))
    # As after more queues were given to the topic: nothing that the statement can see was changed.
    target = models.target(totals, 1)
    late = Batch(
        streams=[domain.stream("a", 2), domain.stream("a", 3)], begin={Q1: None}, end={Q1: 2}
    )
    other = await held()
    task = asyncio.create_task(follow(recall, totals, 2, domain.stream("a", 2)))
    await wait_for_waiter(models, task)
    await apply_batch(other, target, late, missing=fail_to_fold)
    await other.commit()
    assert await task == Applied(rows=0)
    assert await rows(models, totals) == {"a": (6, 3), "b": (1, 1)}
    assert await versions(models) == {"a": 3, "b": 1}
    assert await models.offsets("totals", 1) == {Q0: 3, Q1: 2}


# On SQLite there is one writer at a time.
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_a_switch_while_the_one_statement_waits_is_found_out(
    models: Any, totals: Any, follow: Any, domain: Any, held: Any
) -> None:
    recall: Recall[Any] = Recall()
    await follow(recall, totals, None, domain.stream("a", 1))
    other = await held()
    task = asyncio.create_task(follow(recall, totals, 1, domain.stream("a", 2)))
    await wait_for_waiter(models, task)
    await other.execute(update(projections).values(generation=2))
    await other.commit()
    assert await task == Switched(generation=2)
    assert await versions(models) == {"a": 1}


async def test_a_pause_ends_what_one_statement_would_write(
    models: Any, totals: Any, follow: Any, domain: Any
) -> None:
    recall: Recall[Any] = Recall()
    await follow(recall, totals, None, domain.stream("a", 1))
    await models.pause(totals.name)
    assert await follow(recall, totals, 1, domain.stream("a", 2)) == Switched(generation=1)
    await models.resume(totals.name)
    assert await follow(recall, totals, 1, domain.stream("a", 2)) == Applied(rows=1)
    assert await rows(models, totals) == {"a": (3, 2)}


async def test_a_batch_with_a_parked_aggregate_is_counted_behind_its_letter(
    models: Any, totals: Any, follow: Any, domain: Any
) -> None:
    recall: Recall[Any] = Recall()
    await follow(recall, totals, None, domain.stream("a", 1), domain.stream("b", 1))
    async with models.begin() as connection:
        await connection.execute(
            insert(parked_rows).values(
                name="totals", generation=1, aggregate_id="c", topic="t", queue_id=0,
                message_offset=1, parked_at=datetime(2026, 1, 1, tzinfo=UTC),
                **new_row(ValueError("no")),
            )
        )  # fmt: skip
    outcome = await follow(recall, totals, 2, domain.stream("c", 2), domain.stream("a", 2))
    assert outcome == Applied(rows=1)
    await follow(recall, totals, 4, domain.stream("a", 3), domain.stream("c", 3))
    async with models.begin() as connection:
        assert (await connection.execute(select(parked_rows.c.held))).scalars().all() == [3]
    assert await rows(models, totals) == {"a": (6, 3), "b": (1, 1)}


def fail_to_fold(*_: Any) -> Any:
    raise RuntimeError("nobody folds this twice")


async def test_offsets_of_other_generations_and_queues_stay(
    models: Any, totals: Any, apply: Any, domain: Any
) -> None:
    await models.begin_shadow(totals, "me")
    await apply(None, domain.stream("a", 1))
    await apply(None, domain.stream("a", 1), domain.stream("a", 2), generation=2)
    async with models.begin() as connection:
        assert await read_offsets(connection, "totals", 1) == {Q0: 1}
        assert await read_offsets(connection, "totals", 2) == {Q0: 2}


def incoming(queue: Any, offset: int, body: bytes, kind: str = "events") -> Incoming:
    return Incoming(queue=queue, offset=offset, key="a", tag="", headers={"kind": kind}, body=body)


def test_decoding_keeps_order_and_notes_where_each_queue_ends(domain: Any, serializer: Any) -> None:
    streams = [domain.stream("a", 1), domain.stream("b", 1), domain.stream("a", 2)]
    bodies = [serializer.encode_stream(stream) for stream in streams]
    batch = decode_batch(
        [incoming(Q0, 4, bodies[0]), incoming(Q1, 0, bodies[1]), incoming(Q0, 5, bodies[2])],
        {Q0: 4, ("t", 9): 1},
        serializer,
    )
    assert batch.streams == streams
    assert batch.begin == {Q0: 4, Q1: None}
    assert batch.end == {Q0: 6, Q1: 1}


def test_rejections_only_move_the_offset(domain: Any, serializer: Any) -> None:
    body = serializer.encode_stream(domain.rejection("a", "c"))
    for kind in ("rejection", ""):
        batch = decode_batch([incoming(Q0, 4, body, kind)], {Q0: 4}, serializer)
        assert (batch.streams, batch.end) == ([], {Q0: 5})


def test_a_message_that_does_not_decode_is_an_error_that_names_its_place(serializer: Any) -> None:
    with pytest.raises(ProjectionError, match=r"at t/0 offset 4 \(aggregate a\) does not decode"):
        decode_batch([incoming(Q0, 4, b'{"aggregate_id": "a"}')], {}, serializer)


def test_a_message_without_events_moves_only_the_offset(serializer) -> None:
    batch = decode_batch([incoming(Q0, 4, b"junk"), incoming(Q0, 5, b"")], {Q0: 4}, serializer)
    assert (batch.streams, batch.end) == ([], {Q0: 6})

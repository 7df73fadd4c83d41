"""A handler writes in the transaction of the rows, or not at all."""

from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, String, Table, func, insert, select
from sqlalchemy.orm import Session

from headrace.domain.message import EventContext
from headrace.errors import ProjectionError
from headrace.projections.batch_transaction import Batch, apply_batch

Q0 = ("t", 0)
notes = Table(
    "notes", MetaData(), Column("event_id", String(300), primary_key=True), Column("n", Integer)
)


@pytest.fixture
async def models(read_models: Any, totals: Any, domain: Any) -> Any:
    """Read models with the projection set up, a table of one's own and a handler that fills it."""

    @totals.with_session
    def note(session: Session, event: domain.Added, context: EventContext) -> None:
        session.execute(insert(notes).values(event_id=context.event_id, n=event.amount))
        session.commit()
        if event.amount == 13:
            raise RuntimeError("no notes of this")

    await read_models.ensure(totals)
    async with read_models.begin() as connection:
        await connection.run_sync(notes.create)
    return read_models


@pytest.fixture
def apply(models: Any, totals: Any) -> Any:
    """Applies streams as the messages of queue 0 from an offset on."""

    async def run(begin: int | None, *streams: Any) -> Any:
        end = (begin or 0) + len(streams)
        batch = Batch(streams=streams, begin={Q0: begin}, end={Q0: end})
        async with models.begin() as connection:
            target = models.target(totals, 1)
            return await apply_batch(connection, target, batch, missing=None)

    return run


async def count_notes(models: Any) -> Any:
    async with models.begin() as connection:
        found = await connection.execute(select(func.count(), func.sum(notes.c.n)))
        return tuple(found.one())


async def test_what_it_wrote_stays_with_the_rows_and_comes_once(
    models: Any, apply: Any, domain: Any, totals: Any
) -> None:
    await apply(None, domain.stream("a", 1), domain.stream("a", 2), domain.stream("a", 1))
    await apply(3, domain.stream("a", 2), domain.stream("b", 1, domain.Cleared()))
    assert await count_notes(models) == (2, 3)
    assert (await models.reader(totals).get("a")).folded == 2


async def test_one_that_raises_undoes_the_batch_and_names_the_event(
    models: Any, apply: Any, domain: Any, totals: Any
) -> None:
    with pytest.raises(ProjectionError, match=r"cannot fold Added a/2/1: RuntimeError: no notes"):
        await apply(None, domain.stream("a", 1), domain.stream("a", 2, domain.Added(amount=13)))
    assert await count_notes(models) == (0, None)
    assert await models.reader(totals).count() == 0


async def test_a_projection_with_handlers_is_not_rebuilt(models: Any, totals: Any) -> None:
    with pytest.raises(ProjectionError, match="writes to tables of your own"):
        await models.begin_shadow(totals, "me")

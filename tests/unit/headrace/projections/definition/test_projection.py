"""A projection is checked where it is defined."""

from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, create_model
from sqlalchemy import Column, Integer, MetaData, String, Table, func, insert, select
from sqlalchemy.orm import Session

from headrace.domain.message import EventContext
from headrace.errors import DefinitionError, ProjectionError
from headrace.projections.batch_transaction import Batch, apply_batch
from headrace.projections.definition.fold import fold_streams
from headrace.projections.definition.projection import Projection, version_of
from headrace.projections.definition.summaries import count, sum_

Q0 = ("t", 0)
notes = Table(
    "notes", MetaData(), Column("event_id", String(300), primary_key=True), Column("n", Integer)
)


@pytest.mark.parametrize("name", ["balances", "a", "a1_b", "x" * 40])
def test_names_that_every_database_takes_unquoted_are_fine(domain: Any, name: str) -> None:
    assert Projection(name, row=domain.Total, key="counter_id").name == name


@pytest.mark.parametrize("name", ["", "Balances", "1a", "_a", "a__1", "a-b", "größe", "x" * 41])
def test_other_names_are_refused(domain: Any, name: str) -> None:
    with pytest.raises(DefinitionError, match="use lower-case letters"):
        Projection(name, row=domain.Total, key="counter_id")


@pytest.mark.parametrize("version", [0, -1, 1_000, "2", True, 1.0])
def test_versions_are_numbers_from_1_to_999(domain: Any, version: Any) -> None:
    with pytest.raises(DefinitionError, match="must be a number from 1 to 999"):
        Projection("p", row=domain.Total, key="counter_id", version=version)


@pytest.mark.parametrize("version", [1, 2, 999])
def test_a_fingerprint_tells_the_version_and_the_columns(domain: Any, version: int) -> None:
    projection = Projection("p", row=domain.Total, key="counter_id", version=version)
    assert (version_of(projection.fingerprint), len(projection.fingerprint)) == (version, 64)
    first = Projection("p", row=domain.Total, key="counter_id")
    assert first.fingerprint == first.shape.fingerprint
    assert first.has_columns_of(projection.fingerprint)
    assert projection.has_columns_of(first.fingerprint)
    other = Projection("p", row=create_model("Other", key=(str, ...)), key="key", version=version)
    assert not other.has_columns_of(projection.fingerprint)


@pytest.mark.parametrize("key", ["nothing", (), ("counter_id", "counter_id"), "ratio", "note"])
def test_the_key_is_fields_of_the_row_that_can_be_a_key(key: Any) -> None:
    class Row(BaseModel):
        counter_id: str
        ratio: float
        note: str | None

    with pytest.raises(DefinitionError, match=r"projection p: .*key"):
        Projection("p", row=Row, key=key)


def test_a_key_of_several_fields_is_part_of_the_fingerprint() -> None:
    row = create_model("Row", one=(str, ...), two=(int, ...), three=(UUID, ...))
    one, *others = [
        Projection("p", row=row, key=key).fingerprint
        for key in ("one", "three", ("one", "two"), ("two", "one"))
    ]
    assert one == others[0]
    assert len({one, *others}) == 3


def test_a_key_of_several_fields_has_to_be_said(domain: Any) -> None:
    row = create_model("Row", one=(str, ...), two=(int, ...), total=(int, 0))
    pairs = Projection("pairs", row=row, key=("one", "two"))
    with pytest.raises(DefinitionError, match="projection pairs: the key has the fields one, two"):
        pairs.on(domain.Added, total=count())
    pairs.on(domain.Added, key=("context.aggregate_id", "amount"), total=count())
    assert not pairs.keyed_by_aggregate


def test_a_field_that_no_column_holds_is_refused_at_once() -> None:
    class Listing(BaseModel):
        key: str
        tags: set[str]

    with pytest.raises(DefinitionError, match=r"field Listing\.tags"):
        Projection("p", row=Listing, key="key")


def test_a_fold_is_found_by_the_annotation_of_its_event(domain: Any, totals: Any) -> None:
    assert totals.event_types == {domain.Added, domain.Cleared}
    assert totals.folds(domain.Added(amount=1))
    assert not totals.folds(domain.Noted(text=""))


def test_a_second_fold_for_an_event_is_refused(domain: Any, totals: Any) -> None:
    def again(row: Any, event: domain.Added, context: EventContext) -> Any:
        return row

    with pytest.raises(DefinitionError, match="folds Added twice; remove again or added"):
        totals.fold(again)


@pytest.mark.parametrize(
    "function",
    [lambda row, event, context: row, lambda row: row],
)
def test_a_fold_without_an_event_type_is_refused(totals: Any, function: Any) -> None:
    with pytest.raises(DefinitionError, match="annotates event with a DomainEvent class"):
        totals.fold(function)


def test_an_async_fold_is_refused(domain: Any, totals: Any) -> None:
    async def asks(row: Any, event: domain.Added, context: EventContext) -> Any: ...

    for register in (totals.fold, totals.with_session):
        with pytest.raises(DefinitionError, match="asks is async; write `def`"):
            register(asks)


def test_a_row_that_is_no_model_is_refused() -> None:
    class Plain:
        counter_id: str

    for row in (Plain, dict, "Total"):
        with pytest.raises(DefinitionError, match=r"derived from pydantic\.BaseModel"):
            Projection("p", row=row, key="counter_id")  # type: ignore[type-var,arg-type]  # the mistake


def test_keys_are_the_aggregates_unless_said_otherwise(domain: Any, totals: Any) -> None:
    assert totals.keyed_by_aggregate
    other = Projection("p", row=domain.Total, key="counter_id", key_of=lambda e, c: f"{c.version}")
    other.on(domain.Added, folded=count())
    assert not other.keyed_by_aggregate
    totals.on(domain.Noted, key="text", folded=count())
    assert not totals.keyed_by_aggregate


def test_a_fold_for_several_event_types_serves_each(domain: Any) -> None:
    both = Projection("both", row=domain.Total, key="counter_id")

    @both.fold
    def any_of(row: Any, event: domain.Added | domain.Noted, context: EventContext) -> Any:
        return domain.Total(counter_id=context.aggregate_id)

    assert both.event_types == {domain.Added, domain.Noted}
    assert not both.folds(domain.Cleared())


def test_a_base_class_serves_its_subclasses_that_have_nothing_of_their_own(domain: Any) -> None:
    class AddedMore(domain.Added):  # type: ignore[name-defined]  # a class of the fixture
        pass

    class AddedMost(AddedMore):
        pass

    counts = Projection("counts", row=domain.Total, key="counter_id")
    counts.on(domain.Added, folded=count())
    counts.on(AddedMost, total=count())
    streams = [
        domain.stream("a", version, kind(amount=5))
        for version, kind in enumerate((domain.Added, AddedMore, AddedMost), start=1)
    ]
    assert fold_streams(counts, {}, streams)["a"] == (
        domain.Total(counter_id="a", folded=2, total=1)
    )


def test_a_projection_tells_what_was_declared_unless_a_fold_takes_part(
    domain: Any, totals: Any
) -> None:
    counts = Projection("counts", row=domain.Total, key="counter_id")
    counts.on(domain.Added, domain.Cleared, folded=count())
    counts.on(domain.Added, total=sum_("amount"))
    assert counts.summary_rules is not None
    assert [set(rule.columns) for rule in counts.summary_rules] == [{"folded"}, {"total"}]
    assert totals.summary_rules is None


def test_a_handler_takes_session_event_and_context(domain: Any, totals: Any) -> None:
    def handler(session: Any, event: domain.Added, context: EventContext) -> None:
        raise AssertionError

    assert totals.with_session(handler) is handler
    assert totals.handlers_for(domain.Added) == [handler]
    assert totals.handlers_for(domain.Noted) == ()
    with pytest.raises(DefinitionError, match=r"handler .* takes \(session, event, context\)"):
        totals.with_session(lambda event: None)


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


async def test_writes_of_a_session_handler_commit_once_with_the_rows(
    models: Any, apply: Any, domain: Any, totals: Any
) -> None:
    await apply(None, domain.stream("a", 1), domain.stream("a", 2), domain.stream("a", 1))
    await apply(3, domain.stream("a", 2), domain.stream("b", 1, domain.Cleared()))
    assert await count_notes(models) == (2, 3)
    assert (await models.reader(totals).get("a")).folded == 2


async def test_a_session_handler_that_raises_undoes_the_batch_and_names_the_event(
    models: Any, apply: Any, domain: Any, totals: Any
) -> None:
    with pytest.raises(ProjectionError, match=r"cannot fold Added a/2/1: RuntimeError: no notes"):
        await apply(None, domain.stream("a", 1), domain.stream("a", 2, domain.Added(amount=13)))
    assert await count_notes(models) == (0, None)
    assert await models.reader(totals).count() == 0


async def test_a_projection_with_session_handlers_is_not_rebuilt(models: Any, totals: Any) -> None:
    with pytest.raises(ProjectionError, match="writes to tables of your own"):
        await models.begin_shadow(totals, "me")

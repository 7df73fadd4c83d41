"""One reading for several projections makes for each of them what a reading of its own makes."""

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from headrace.errors import ProjectionError
from headrace.folds import count, sum_
from headrace.projections.definition.fold import fold_streams
from headrace.projections.definition.projection import Projection
from headrace.spark.executor import slices as slices_module
from headrace.spark.job import Folded, run_fold, run_fold_of
from headrace.spark.rows import RowCodec
from headrace.spark.several import fold as several_module
from headrace.spark.several.one_pass import OnePass
from headrace.spark.tasks import divide

NAMES = ("accounts", "counts")


class Bookings(BaseModel):
    account_id: str
    bookings: int = 0
    turnover: int = 0


@pytest.fixture
def ledger(ledger: Any) -> Any:
    """The ledger with a second table that has a row per account, which is declared."""
    counts = Projection("counts", row=Bookings, key="account_id")
    counts.on(ledger.Booked, bookings=count(), turnover=sum_("amount"))
    ledger.app.add(counts)
    return ledger


def rows_of(projection: Any, folded: Folded) -> dict[str, Any]:
    codec: RowCodec[Any] = RowCodec(projection)
    rows = [codec.row(data) for chunk in folded.row_chunks(2) for data in chunk]
    return {getattr(row, projection.key): row for row in rows}


def meet() -> OnePass:
    shared = OnePass(NAMES)
    for name in NAMES:
        shared.arrive(name)
    return shared


def read_together(spark: Any, plans: dict[str, Any], shared: OnePass) -> dict[str, Folded]:
    return {name: run_fold_of(shared.records(spark, plan), plan) for name, plan in plans.items()}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    seed=st.integers(0, 1 << 30),
    doubled=st.integers(0, 5),
    held_bytes=st.sampled_from([0, 5_000, 1 << 30]),
    anywhere=st.booleans(),
)
def test_each_gets_what_it_would_read_by_itself(
    ledger: Any, topic: Any, make_plan: Any, spark: Any,
    lengths: list[int], seed: int, doubled: int, held_bytes: int, anywhere: bool,
) -> None:  # fmt: skip
    chance = random.Random(seed)
    whole = [
        ledger.stream(
            f"a{number}",
            version,
            ledger.Booked(partner=chance.choice("pqr"), amount=chance.randint(-3, 3)),
            *([ledger.Ended()] if chance.random() < 0.2 else []),
        )
        for number, length in enumerate(lengths)
        for version in range(1, length + 1)
    ]
    arrived = [*whole, *chance.choices(whole, k=doubled), ledger.rejection("a0")]
    chance.shuffle(arrived)
    for queue in topic.bodies:
        topic.bodies[queue].clear()
    for one in arrived:
        topic.publish(one, queue=chance.randrange(2) if anywhere else None)
    plans = {name: make_plan(name, topic.slices()) for name in NAMES}
    if anywhere:
        sizes = dict.fromkeys((piece.queue for piece in topic.slices()), 10.0)
        plans = {
            name: divide(plan, sizes, cores=3, task_bytes_min=20, together=True)
            for name, plan in plans.items()
        }
    with pytest.MonkeyPatch.context() as patched:
        for module in (slices_module, several_module):
            patched.setattr(module, "STATE_BYTES_MAX", held_bytes)
        patched.setattr(slices_module, "_CHECK_BYTES", 1 if held_bytes < 1 << 30 else 1 << 30)
        together = read_together(spark, plans, meet())
    for name in NAMES:
        projection = ledger.app.projections[name]
        alone = run_fold(spark, plans[name], keyed_by_aggregate=True, base=None)
        own = together[name]
        assert rows_of(projection, own) == rows_of(projection, alone)
        assert (own.versions, own.counts) == (alone.versions, alone.counts)
        assert {queue: each["messages"] for queue, each in own.queues.items()} == {
            queue: each["messages"] for queue, each in alone.queues.items()
        }
        wanted = {key: row for key, row in fold_streams(projection, {}, whole).items() if row}
        assert rows_of(projection, own) == wanted


def test_the_topic_is_read_once(
    ledger: Any, topic: Any, make_plan: Any, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.publish(
        *(ledger.stream(f"a{n}", 1, ledger.Booked(partner="p", amount=n)) for n in range(9))
    )
    read: list[int] = []

    def counted(address: str, wanted: Any, **named: object) -> Any:
        for part in topic.read(address, wanted, **named):
            read.append(part[0].count)
            yield part

    monkeypatch.setattr("headrace.spark.executor.fold.read_columns", counted)
    plans = {name: make_plan(name, topic.slices()) for name in NAMES}
    together = read_together(spark, plans, meet())
    assert sum(read) == 9
    assert [each.counts["events"] for each in together.values()] == [9, 9]


@pytest.mark.parametrize("anywhere", [False, True])
def test_a_fold_that_refuses_an_event_ends_its_projection_alone(
    ledger: Any, topic: Any, make_plan: Any, spark: Any, anywhere: bool
) -> None:
    topic.publish(
        *(ledger.stream(f"a{n}", 1, ledger.Booked(partner="p", amount=n)) for n in range(9)),
        ledger.stream("a0", 2, ledger.Noted(text="fail")),
    )
    plans = {name: make_plan(name, topic.slices()) for name in NAMES}
    if anywhere:
        sizes = dict.fromkeys((piece.queue for piece in topic.slices()), 10.0)
        plans = {
            name: divide(plan, sizes, cores=3, task_bytes_min=20, together=True)
            for name, plan in plans.items()
        }
    shared = meet()
    with pytest.raises(ProjectionError, match="this note cannot be folded"):
        read_together(spark, {"accounts": plans["accounts"]}, shared)
    own = read_together(spark, {"counts": plans["counts"]}, shared)["counts"]
    assert (own.counts["events"], len(own.rows)) == (10, 9)

"""The steps in their order, run by a Spark that is made of tables."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException

from headrace.errors import ProjectionError
from headrace.projections.definition.fold import fold_streams
from headrace.spark.executor.fold import (
    BASE,
    MISSING,
    RECORD_ARROW_SCHEMA,
    ROW,
    TALLY,
    VERSION,
    Record,
    records_to_arrow,
)
from headrace.spark.job import Folded, read_result, run_fold
from headrace.spark.result import copy as copying_module
from headrace.spark.result import output as ending
from headrace.spark.result import parts
from headrace.spark.result.copy import LEFT_OUT, Copying
from headrace.spark.result.disk import Stored, store
from headrace.spark.result.parts import Spool
from headrace.spark.rows import RowCodec
from headrace.spark.tasks import divide


def rows_of(projection: Any, folded: Folded) -> dict[str, Any]:
    codec: RowCodec[Any] = RowCodec(projection)
    rows = [codec.row(data) for chunk in folded.row_chunks(2) for data in chunk]
    return {getattr(row, projection.key): row for row in rows}


async def in_turn(batches: dict[str, pa.RecordBatch]) -> AsyncIterator[tuple[str, pa.RecordBatch]]:
    for each in batches.items():
        yield each


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    seed=st.integers(0, 1 << 30),
    doubled=st.integers(0, 5),
    from_offsets=st.booleans(),
    on_disk=st.booleans(),
    anywhere=st.booleans(),
)
def test_the_job_makes_what_a_plain_loop_makes(
    ledger: Any, topic: Any, make_plan: Any, spark: Any, tmp_path: Path,
    lengths: list[int], seed: int, doubled: int, from_offsets: bool, on_disk: bool, anywhere: bool,
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
    cut = chance.randint(0, len(whole)) if from_offsets else 0
    before, tail = whole[:cut], whole[cut:]
    arrived = [*tail, *chance.choices(whole, k=doubled), ledger.rejection("a0")]
    chance.shuffle(arrived)
    for queue in topic.bodies:
        topic.bodies[queue].clear()
    for one in arrived:
        # An aggregate may stand in two queues, each of which several tasks read.
        topic.publish(one, queue=chance.randrange(2) if anywhere else None)
    for name in ("accounts", "partners"):
        projection = ledger.app.projections[name]
        codec: RowCodec[Any] = RowCodec(projection)
        known = {key: row for key, row in fold_streams(projection, {}, before).items() if row}
        versions = {one.aggregate_id: one.version for one in before}
        begin = {
            BASE: [Record.known(BASE, key, data=codec.encode(row)) for key, row in known.items()],
            VERSION: [Record.known(VERSION, key, number=at) for key, at in versions.items()],
        }
        batches = {kind: records_to_arrow(records) for kind, records in begin.items() if records}
        base: pa.Table | Stored = (
            asyncio.run(store(str(tmp_path), in_turn(batches)))
            if on_disk
            else pa.Table.from_batches(batches.values(), schema=RECORD_ARROW_SCHEMA)
        )
        plan = make_plan(name, topic.slices())
        if anywhere:
            sizes = dict.fromkeys((piece.queue for piece in plan.slices), 10.0)
            plan = divide(plan, sizes, cores=3, task_bytes_min=20, together=True)
        folded = run_fold(
            spark,
            plan,
            keyed_by_aggregate=projection.keyed_by_aggregate,
            base=base if from_offsets else None,
        )
        rows = known | rows_of(projection, folded)
        for key in folded.deleted:
            rows.pop(key, None)
        wanted = {key: row for key, row in fold_streams(projection, {}, whole).items() if row}
        assert rows == wanted
        assert versions | folded.versions == {one.aggregate_id: one.version for one in whole}
        assert folded.counts["events"] == sum(len(one.events) for one in tail)


@pytest.mark.parametrize("name", ["accounts", "partners"])
@pytest.mark.parametrize("part_bytes", [None, 200, 1 << 20])
def test_a_spool_gets_in_files_or_in_parts_what_otherwise_comes_at_once(
    ledger: Any, topic: Any, make_plan: Any, spark: Any, monkeypatch: pytest.MonkeyPatch,
    name: str, part_bytes: int | None, tmp_path: Path,
) -> None:  # fmt: skip
    tasks = iter(range(9))
    context = SimpleNamespace(get=lambda: SimpleNamespace(partitionId=lambda: next(tasks)))
    monkeypatch.setattr(ending, "TaskContext", context)
    monkeypatch.setattr(parts, "_PART_BYTES", part_bytes)
    topic.publish(
        *(ledger.stream(f"a{n}", 1, ledger.Booked(partner=f"p{n}", amount=n + 1)) for n in range(9))
    )
    plan = make_plan(name, topic.slices())
    alone = ledger.app.projections[name].keyed_by_aggregate
    whole = run_fold(spark, plan, base=None, keyed_by_aggregate=alone)
    with closing(Spool(str(tmp_path) if part_bytes is None else None)) as spool:
        told = run_fold(spark, plan, base=None, keyed_by_aggregate=alone, into=spool)
        rows = [row for found in spool.read(ROW) for row in found["data"]]
        versions = {
            key: number
            for found in spool.read(VERSION)
            for key, number in zip(found["key"], found["number"], strict=True)
        }
        assert spool.rows == 9
    assert sorted(rows) == sorted(whole.rows.to_pylist())
    assert versions == whole.versions
    assert (len(told.rows), told.versions, told.counts) == (0, {}, whole.counts)
    measured = {queue: found["messages"] for queue, found in told.queues.items()}
    assert measured == {queue: found["messages"] for queue, found in whole.queues.items()}


def test_without_anything_to_read_spark_is_not_asked(make_plan: Any) -> None:
    folded = run_fold(
        object(),  # type: ignore[arg-type]  # would fail if it were used
        make_plan("accounts", ()),
        keyed_by_aggregate=True,
        base=None,
    )
    assert (len(folded.rows), folded.deleted, folded.versions) == (0, [], {})


def test_missing_versions_end_the_rebuild_and_some_are_named(
    ledger: Any, topic: Any, make_plan: Any, spark: Any
) -> None:
    topic.publish(*(ledger.stream(f"a{n}", 3, ledger.Ended()) for n in range(7)))
    with pytest.raises(ProjectionError) as raised:
        run_fold(
            spark,
            make_plan("accounts", topic.slices(), event_store=None),
            keyed_by_aggregate=True,
            base=None,
        )
    sentence = str(raised.value)
    assert "7 aggregates lack events that neither the topic nor an event store" in sentence
    assert "a0 versions 1 to 2; a1 versions 1 to 2" in sentence
    assert "a5" not in sentence


def test_sentences_that_tasks_kept_to_themselves_are_counted(make_plan: Any) -> None:
    told = [
        Record.known(MISSING, "a", data=b"a versions 1 to 2"),
        Record.known(TALLY, LEFT_OUT, number=8),
    ]
    records = pa.Table.from_batches([records_to_arrow(told)])
    with pytest.raises(ProjectionError, match=r"9 aggregates lack events .* a versions 1 to 2"):
        read_result(make_plan("accounts", ()), records)


@pytest.mark.parametrize("name", ["accounts", "partners"])
@pytest.mark.parametrize("from_offsets", [False, True])
def test_the_last_fold_of_a_job_copies_what_it_yields_as_its_tasks_share(
    ledger: Any, topic: Any, make_plan: Any, spark: Any, monkeypatch: pytest.MonkeyPatch,
    name: str, from_offsets: bool,
) -> None:  # fmt: skip
    tasks = iter(range(9))
    given: list[tuple[Copying, int]] = []

    def copy_out(copying: Copying, plan: Any, share: int, batches: Any) -> Any:
        given.append((copying, share))
        for batch in batches:
            yield batch.filter(pc.equal(batch["kind"], TALLY))

    monkeypatch.setattr(copying_module, "copy_out", copy_out)
    context = SimpleNamespace(get=lambda: SimpleNamespace(partitionId=lambda: next(tasks)))
    monkeypatch.setattr(ending, "TaskContext", context)
    topic.publish(
        *(ledger.stream(f"a{n}", 1, ledger.Booked(partner="p", amount=1)) for n in range(4))
    )
    copying = Copying(url="postgresql://db/read", table="accounts__2", owner="me")
    base = pa.Table.from_batches([records_to_arrow([])]) if from_offsets else None
    folded = run_fold(
        spark, make_plan(name, topic.slices()), base=base, into=copying,
        keyed_by_aggregate=ledger.app.projections[name].keyed_by_aggregate,
    )  # fmt: skip
    assert {each for each, _ in given} == {copying}
    assert [share for _, share in given] == list(range(len(given)))
    assert (len(folded.rows), folded.versions, folded.counts["events"]) == (0, {}, 4)


def test_an_aggregate_in_two_queues_is_refused(
    ledger: Any, topic: Any, make_plan: Any, spark: Any
) -> None:
    for queue in (0, 1):
        topic.publish(ledger.stream("a", 1, ledger.Ended()), queue=queue)
    with pytest.raises(ProjectionError, match="events of aggregate a stand in more than one queue"):
        run_fold(spark, make_plan("accounts", topic.slices()), keyed_by_aggregate=True, base=None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "An exception:\n  File 'x.py', line 1\nheadrace.errors.ProjectionError: cannot: no\n SQLST",
            "cannot: no",
        ),
        (
            "[X]\na.b.ConnectionLost: no broker\n SQLSTATE: 1\n=== Streaming Query ===\nIdentifier: [id]",
            "a.b.ConnectionLost: no broker",
        ),
        ("the cluster is gone", "the cluster is gone"),
    ],
)
def test_an_error_of_spark_keeps_the_executors_own_sentence(
    ledger: Any, topic: Any, make_plan: Any, spark: Any, monkeypatch: pytest.MonkeyPatch,
    text: str, reason: str,
) -> None:  # fmt: skip
    topic.publish(ledger.stream("a", 1, ledger.Ended()))
    frame = type(spark.range(0, 1, 1, 1))

    def fail(self: Any) -> None:
        raise PySparkException(text)

    monkeypatch.setattr(frame, "toArrow", fail)
    with pytest.raises(ProjectionError) as raised:
        run_fold(spark, make_plan("accounts", topic.slices()), keyed_by_aggregate=True, base=None)
    assert str(raised.value) == f"projection accounts: the Spark job failed: {reason}"

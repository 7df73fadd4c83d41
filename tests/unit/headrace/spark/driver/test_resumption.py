"""What a killed rebuild has copied: which of it is of use, what is left, and what there is to tell of it."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.events.seals import Seal
from headrace.spark.driver.resumption import SharePlan, fold_left, left_of, resumed
from headrace.spark.executor.fold import QUEUE, RECORD_ARROW_SCHEMA, TALLY, UNREAD, Record, batched
from headrace.spark.executor.plan import FoldPlan
from headrace.spark.job import Folded
from headrace.spark.result.copy import Copying
from headrace.stores.base import StoreIdentity
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import QueueRange
from headrace_mq.spark.offsets import QueueSlice

PLAN = FoldPlan(
    app="a:app", folder="", projection="accounts", broker="b:1", event_store=None,
    slices=tuple(QueueSlice(queue=QueueRef("t", n), start=0, end=10 * n) for n in (1, 2, 3)),
)  # fmt: skip
DIVIDED = replace(PLAN, groups=((2,), (0, 1)))
HELD = [QueueRange("t", n, 0, 99) for n in range(4)]
MARKS = ("topic-1", "v1")
NOW = datetime(2026, 1, 31, tzinfo=UTC)
SEAL = Seal(StoreIdentity(id="0-1-2-123456789abc", seal_key=b"k" * 32, made_at=NOW))


def written(plan: FoldPlan = DIVIDED, **other: Any) -> str:
    return msgspec.structs.replace(SharePlan.of(plan, *MARKS), **other).to_text()


def test_a_plan_is_gone_on_with_at_its_own_ends_however_far_the_topic_has_come() -> None:
    now = replace(PLAN, slices=(QueueSlice(queue=QueueRef("t", 0), start=0, end=99),))
    plan, why = resumed(now, HELD, *MARKS, before=written())
    assert (plan, why) == (DIVIDED, "")
    # What is written of it is the same text: by that the tables are known.
    assert SharePlan.of(plan, *MARKS).to_text() == written()


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ("{}", "another version of Headrace"),
        (written(identity="topic-2"), "the event topic is another one"),
        (written(projection="v2"), "the projection has another version or other fields"),
        (written(replace(DIVIDED, seal=SEAL)), "another event store, or one of the two has none"),
        (written(slices=((1, 0, 100),), groups=((0,),)), "ends before what was folded"),
        (written(slices=((7, 0, 1),), groups=((0,),)), "ends before what was folded"),
    ],
)
def test_what_does_not_fit_is_folded_again(before: str, why: str) -> None:
    plan, said = resumed(PLAN, HELD, *MARKS, before=before)
    assert plan is PLAN
    assert why in said


def test_a_broker_that_does_not_know_its_topic_lets_nobody_go_on() -> None:
    assert resumed(PLAN, HELD, "", "v1", before=written(identity=""))[0] is PLAN


@given(data=st.data(), counts=st.lists(st.integers(1, 3), min_size=1, max_size=5))
def test_each_slice_is_read_by_the_task_of_its_share_or_was(
    data: st.DataObject, counts: list[int]
) -> None:
    slices = tuple(
        QueueSlice(queue=QueueRef("t", n), start=0, end=n + 1) for n in range(sum(counts))
    )
    places = iter(data.draw(st.permutations(range(len(slices)))))
    groups = tuple(tuple(next(places) for _ in range(count)) for count in counts)
    plan = replace(PLAN, slices=slices, groups=groups)
    noted = data.draw(st.sets(st.integers(0, len(counts) - 1)))
    left, shares = left_of(plan, noted)
    assert set(shares) | noted == set(range(len(counts)))
    assert not set(shares) & noted
    read = {
        share: [left.slices[place] for place in group]
        for share, group in zip(shares, left.tasks, strict=True)
    }
    assert read == {share: [slices[place] for place in groups[share]] for share in shares}


def note(*records: Record) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, RECORD_ARROW_SCHEMA) as made:
        for batch in batched(records):
            made.write_batch(batch)
    return bytes(sink.getvalue())


async def test_what_tasks_told_before_the_kill_is_part_of_what_is_told() -> None:
    asked: list[tuple[FoldPlan, Copying]] = []
    made = Folded(
        rows=pa.chunked_array([], pa.binary()), deleted=[], versions={}, tasks=1,
        counts=Counter(events=2, shares=1), queues={"t/1": {"messages": 2}},
        left_out=(("b", 5, "b does not decode"),),
    )  # fmt: skip

    async def fold(plan: FoldPlan, *, into: Copying) -> Folded:
        asked.append((plan, into))
        return made

    into = Copying(url="postgresql://db/read", table="accounts__2", owner="me")
    assert await fold_left(fold, DIVIDED, {}, into) is made
    told = note(
        Record.known(TALLY, "events", number=3),
        Record.known(TALLY, "shares", number=1),
        Record.known(QUEUE, "t/3 messages", number=4),
        Record.known(UNREAD, "a", number=7, data=b"a does not decode"),
    )
    folded = await fold_left(fold, DIVIDED, {0: told}, into)
    assert [given for _, given in asked] == [into, replace(into, places=(1,))]
    assert asked[1][0].slices == DIVIDED.slices[:2]
    assert folded.counts == {"events": 5, "shares": 2, "reused": 1}
    assert folded.queues == {"t/1": {"messages": 2}, "t/3": {"messages": 4}}
    assert [each[:2] for each in folded.left_out] == [("a", 7), ("b", 5)]

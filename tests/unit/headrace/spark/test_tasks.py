"""What is read is divided among tasks: all of it, once, and about alike."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.spark import tasks as tasks_module
from headrace.spark.executor.plan import FoldPlan
from headrace.spark.tasks import divide, divide_plan
from headrace_mq.message import QueueRef
from headrace_mq.protocol.keys import queue_for_key
from headrace_mq.spark.offsets import QueueSlice

MIB = 1 << 20


def plan_of(*records: int) -> FoldPlan:
    return FoldPlan(
        app="a:app", folder=".", projection="p", broker="b", event_store=None,
        slices=tuple(
            QueueSlice(queue=QueueRef("t", number), start=5, end=5 + count)
            for number, count in enumerate(records)
        ),
    )  # fmt: skip


def sized(plan: FoldPlan, size: float) -> dict[QueueRef, float]:
    return {piece.queue: size for piece in plan.slices}


@given(
    records=st.lists(st.integers(1, 10_000), min_size=1, max_size=40),
    size=st.floats(0.0, 1e5),
    cores=st.integers(1, 50),
    task_bytes_min=st.integers(1, 64 * MIB),
    together=st.booleans(),
)
def test_everything_is_read_once_by_at_most_so_many_tasks_as_there_are_cores(
    records: list[int], size: float, cores: int, task_bytes_min: int, together: bool
) -> None:
    plan = plan_of(*records)
    divided = divide(
        plan, sized(plan, size), cores=cores, task_bytes_min=task_bytes_min, together=together
    )
    assert sorted(place for task in divided.tasks for place in task) == list(
        range(len(divided.slices))
    )
    assert len(divided.tasks) <= cores
    for whole in plan.slices:
        pieces = [piece for piece in divided.slices if piece.queue == whole.queue]
        assert [piece.start for piece in pieces] == [whole.start, *(p.end for p in pieces[:-1])]
        assert pieces[-1].end == whole.end
    assert divided.together or divided.slices == plan.slices
    assert divided.together or not together


@pytest.mark.parametrize(
    ("records", "cores", "tasks", "together"),
    [
        # Small queues share tasks.
        ([100] * 200, 2, 2, False),
        # As many tasks as queues is what reading them whole is good for.
        ([1_000_000] * 4, 4, 4, False),
        ([1_000_000] * 4, 50, 30, True),
        # On two cores nothing is gained by dividing one queue: bringing together costs as much.
        ([1_000_000], 2, 1, False),
        ([1_000_000], 8, 8, True),
        # One queue has nearly everything.
        ([4_000_000, 10, 10, 10], 16, 16, True),
        # Too little for a second task.
        ([1_000], 8, 1, False),
    ],
)
def test_queues_are_divided_where_that_is_sooner_done(
    records: list[int], cores: int, tasks: int, together: bool
) -> None:
    plan = plan_of(*records)
    divided = divide(plan, sized(plan, 500.0), cores=cores)
    assert (len(divided.tasks), divided.together) == (tasks, together)


def test_tasks_have_about_the_same_to_read() -> None:
    plan = plan_of(9_000_000, 1_000, 3_000_000, 200_000)
    divided = divide(plan, sized(plan, 500.0), cores=8, together=True)
    read = [sum(divided.slices[place].records for place in task) for task in divided.tasks]
    assert len(read) == 8
    assert max(read) < 1.2 * sum(read) / len(read)


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("moved", [True, False])
def test_keys_are_looked_at_where_the_broker_does_not_know(
    ledger: Any, topic: Any, make_plan: Any, spark: Any, settled: bool, moved: bool
) -> None:
    topic.settled = settled
    for number in range(20):
        key = f"k{number}"
        queue = queue_for_key(key, 2)
        topic.publish(ledger.stream(key, 1, ledger.Ended()), queue=1 - queue if moved else queue)
    divided = divide_plan(spark, make_plan("accounts", topic.slices()))
    assert divided.together == (moved and not settled)


def test_what_is_folded_onto_rows_is_brought_together_without_looking(
    ledger: Any, topic: Any, make_plan: Any, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks_module, "fetch_settled", pytest.fail)
    topic.publish(ledger.stream("a", 1, ledger.Ended()), queue=0)
    assert divide_plan(spark, make_plan("accounts", topic.slices()), onto=True).together
    nothing = make_plan("accounts", [])
    assert divide_plan(spark, nothing) is nothing


def test_behind_spark_connect_shuffles_tell_how_many_tasks_there_are(
    topic: Any, ledger: Any, make_plan: Any, spark: Any
) -> None:
    class Remote:
        def __init__(self) -> None:
            self.conf = {"spark.sql.shuffle.partitions": "3"}

    remote: Any = Remote()
    topic.publish(*(ledger.stream(f"a{n}", 1, ledger.Ended()) for n in range(9)))
    plan = make_plan("accounts", topic.slices())
    assert len(divide_plan(remote, plan, task_bytes_min=1, onto=True).tasks) == 3

"""Touches behind labels become a row per label, in batches of any size."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.errors import ProjectionError
from headrace.spark.executor.fold import RECORD_ARROW_SCHEMA, Record, route_slices
from headrace.spark.executor.fold import records_to_arrow as to_arrow
from headrace.spark.lake.features import _EPOCH, fold_as_of

US = timedelta(microseconds=1)
ORDER = [(name, "ascending") for name in ("key", "moment", "queue", "offset", "turn")]


def folded(plan: Any, labels: Sequence[tuple[str, datetime]], size: int = 2) -> list[Any]:
    """Returns what the job makes of a plan's events: routed, sorted, and folded behind the labels."""
    tasks = iter([pa.RecordBatch.from_pydict({"id": list(range(len(plan.tasks)))})])
    routed = pa.Table.from_batches(route_slices(plan, tasks), RECORD_ARROW_SCHEMA)
    touches = routed.filter(pa.array([kind == "touch" for kind in routed["kind"].to_pylist()]))
    told = to_arrow([Record.known("label", key, number=(at - _EPOCH) // US) for key, at in labels])
    together = pa.concat_tables([touches, pa.Table.from_batches([told])]).sort_by(ORDER)
    batches = iter(together.to_batches(max_chunksize=size))
    return [row for batch in fold_as_of(plan, batches) for row in batch.to_pylist()]


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    events=st.lists(st.tuples(st.integers(0, 9), st.integers(-5, 5)), max_size=8),
    later=st.lists(st.tuples(st.integers(0, 9), st.integers(-5, 5)), max_size=4),
    at=st.integers(0, 9),
    size=st.integers(1, 5),
)
def test_a_label_sees_what_was_recorded_before_it_and_nothing_that_follows(
    ledger: Any, topic_of: Any, make_plan: Any, monkeypatch: pytest.MonkeyPatch,
    events: list[tuple[int, int]], later: list[tuple[int, int]], at: int, size: int,
) -> None:  # fmt: skip
    time = ledger.now + timedelta(minutes=at)

    def told(history: Sequence[tuple[int, int]]) -> Any:
        topic = topic_of(ledger.serializer)
        monkeypatch.setattr("headrace.spark.executor.fold.read_columns", topic.read)
        for version, (minute, amount) in enumerate(history, start=1):
            made = ledger.stream("a", version, ledger.Booked(partner="p", amount=amount))
            recorded = ledger.now + timedelta(minutes=minute)
            topic.publish(made.__class__(**{**_fields(made), "recorded_at": recorded}))
        if not history:
            return None
        [row] = folded(make_plan("accounts", topic.slices()), [("a", time)], size)
        return row

    seen = [(minute, amount) for minute, amount in events if minute < at]
    row = told(events)
    if row is not None:
        assert row["as_of"] == time
        balance = None
        for _, amount in seen:
            balance = (balance or 0) * 3 + amount
        assert (row["balance"], row["bookings"]) == (balance, len(seen) or None)
        assert row == told([*events, *((min(at + minute, 9), amount) for minute, amount in later)])
        assert row["account_id"] == "a"


def _fields(made: Any) -> dict[str, Any]:
    names = getattr(made, "__dataclass_fields__", None) or made.__struct_fields__
    return {name: getattr(made, name) for name in names}


def test_a_fold_that_fails_names_the_event(ledger: Any, topic: Any, make_plan: Any) -> None:
    topic.publish(ledger.stream("a", 1, ledger.Booked(partner="p", amount=1), ledger.Noted(text="fail")))  # fmt: skip
    plan = make_plan("accounts", topic.slices())
    with pytest.raises(ProjectionError, match="accounts cannot fold Noted"):
        folded(plan, [("a", ledger.now + timedelta(1))])
    # What happens later does not matter to a label.
    [row] = folded(plan, [("a", ledger.now)])
    assert row["balance"] is None

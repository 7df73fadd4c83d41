"""A row as of a time comes from what was recorded before it, whatever comes later."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from headrace.spark.lake.as_of import RowsAsOf

TIMES = st.integers(0, 12)
Event = tuple[int, int]
EVENTS = st.lists(st.tuples(TIMES, st.integers(-3, 3)), max_size=12)


class Row(BaseModel):
    value: int


def fold(row: Row | None, amount: int) -> Row | None:
    """Depends on the order, deletes, and sometimes changes the row that it is given."""
    if amount == 0:
        return None
    if row is None:
        return Row(value=amount)
    if amount > 1:
        row.value = row.value * 3 + amount
        return row
    return Row(value=row.value * 5 + amount)


def as_of(events: Sequence[Event], times: Sequence[int]) -> dict[int, int | None]:
    rows: RowsAsOf[Row] = RowsAsOf(times)
    for at, amount in events:
        rows.take(at, lambda row, amount=amount: fold(row, amount))  # type: ignore[misc]  # a default binds it
    return {time: row and row.value for time, row in rows.rows()}


def naive(events: Sequence[Event], time: int) -> int | None:
    row: Row | None = None
    for at, amount in events:
        if at < time:
            row = fold(row, amount)
    return row and row.value


@given(EVENTS, st.lists(TIMES, max_size=6))
def test_each_time_has_what_a_fold_of_the_events_before_it_makes(
    events: list[Event], times: list[int]
) -> None:
    assert as_of(events, times) == {time: naive(events, time) for time in times}


@given(EVENTS, EVENTS, TIMES, st.data())
def test_what_is_recorded_at_a_time_or_later_changes_nothing_for_it(
    events: list[Event], later: list[Event], time: int, data: st.DataObject
) -> None:
    times = [time, *data.draw(st.lists(TIMES, max_size=3))]
    changed = [event for event in events if event[0] < time]
    for at, amount in later:
        place = data.draw(st.integers(0, len(changed)))
        changed.insert(place, (time + at, amount))
    assert as_of(changed, times)[time] == as_of(events, times)[time]


def test_events_in_order_are_folded_once_however_many_times_there_are() -> None:
    folded: list[int] = []
    rows: RowsAsOf[Row] = RowsAsOf(range(1, 1_000))
    for at in range(1_000):
        rows.take(at, lambda row, at=at: folded.append(at) or Row(value=at))  # type: ignore[misc, func-returns-value]  # a default binds it
    assert folded == list(range(999))
    assert [row and row.value for _, row in rows.rows()] == list(range(999))

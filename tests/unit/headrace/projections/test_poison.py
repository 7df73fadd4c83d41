"""Messages are applied in order, and those that cannot be are found alone, with few attempts."""

import asyncio
from collections.abc import Sequence
from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ProjectionError, SerializationError
from headrace.projections.batch_transaction import Applied
from headrace.projections.poison import (
    Halved,
    Poisoned,
    TooManyParked,
    apply_in_halves,
    may_be_parked,
)
from headrace.projections.tables.contents import Moved, OtherFields, Switched
from headrace.transports.base import Incoming

QUEUE = ("ledger.events", 0)


def messages(count: int) -> list[Incoming]:
    return [Incoming(QUEUE, offset, "a", "", {}, b"") for offset in range(count)]


class Table:
    """Takes batches without a bad message, and a bad message that comes alone, which it parks."""

    def __init__(self, bad: set[int], moved_at: int | None = None) -> None:
        self.bad, self.moved_at = bad, moved_at
        self.attempts: list[list[int]] = []
        self.applied: list[int] = []
        self.parked: list[int] = []

    async def apply(self, batch: Sequence[Incoming]) -> Applied | Moved | Switched | Poisoned:
        offsets = [each.offset for each in batch]
        self.attempts.append(offsets)
        if self.moved_at in offsets:
            return Moved(offsets={})
        if self.bad.intersection(offsets):
            if len(batch) > 1:
                return Poisoned()
            self.parked += offsets
            return Applied(rows=0)
        return Applied(rows=len(batch))

    def note(self, batch: Sequence[Incoming]) -> None:
        self.applied += [each.offset for each in batch]

    def take(self, count: int, batch_max: int) -> Halved:
        return asyncio.run(
            apply_in_halves(messages(count), self.apply, batch_max=batch_max, applied=self.note)
        )


@given(st.integers(0, 60), st.integers(1, 20), st.sets(st.integers(0, 59), max_size=4))
def test_bad_messages_alone_are_parked_and_all_others_are_applied_in_order(
    count: int, batch_max: int, bad: set[int]
) -> None:
    table = Table(bad)
    halved = table.take(count, batch_max)
    found = sorted(each for each in bad if each < count)
    assert (halved.stopped, list(halved.rest)) == (None, [])
    assert table.applied == list(range(count))
    assert table.parked == found
    assert halved.rows == count - len(found)
    assert all(len(batch) <= batch_max for batch in table.attempts)
    # To find one takes as many halvings as there are in a batch, and the sizes grow back as fast.
    extra = 2 * (log2(batch_max) + 2)
    assert len(table.attempts) <= -(-count // batch_max) + len(found) * extra


@given(st.integers(1, 60), st.integers(1, 20), st.data())
def test_messages_that_were_not_taken_come_back_where_another_reader_has_moved_on(
    count: int, batch_max: int, data: st.DataObject
) -> None:
    moved_at = data.draw(st.integers(0, count - 1))
    table = Table(set(), moved_at)
    halved = table.take(count, batch_max)
    assert isinstance(halved.stopped, Moved)
    assert table.applied + [each.offset for each in halved.rest] == list(range(count))
    assert moved_at not in table.applied
    assert halved.rows == len(table.applied)


@pytest.mark.parametrize(
    ("error", "parked"),
    [
        (ProjectionError("a fold raised"), True),
        (OtherFields("another model"), False),
        (TooManyParked("no room"), False),
        (SerializationError("not of a projection"), False),
        (ConnectionResetError(), False),
    ],
)
def test_an_aggregate_is_parked_for_its_events_alone(error: Exception, parked: bool) -> None:
    assert may_be_parked(error) is parked

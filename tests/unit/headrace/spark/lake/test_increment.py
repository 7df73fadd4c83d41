"""The columns of types, and which increments are refused, without a session."""

from typing import Any

import pytest

from headrace.domain.message import DomainEvent
from headrace.errors import DefinitionError, ProjectionError
from headrace.spark.lake.increment import _begin, _columns, type_columns
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import QueueRange


class Paid(DomainEvent, name="lake.Paid"):
    amount: int


class PaidBefore(DomainEvent, name="lake.Paid", version=2):
    amount: int


class Closed(DomainEvent, name="lake.Closed"):
    pass


class Day(DomainEvent, name="day"):
    pass


def held(queue: int, first: int, end: int) -> QueueRange:
    return QueueRange(topic="t", queue_id=queue, first=first, end=end)


def test_a_type_has_a_column_of_its_name_and_of_its_version_where_two_share_it() -> None:
    assert type_columns([Paid, Closed]) == ["lake.Paid", "lake.Closed"]
    assert type_columns([Paid, PaidBefore]) == ["lake.Paid_v1", "lake.Paid_v2"]
    with pytest.raises(
        DefinitionError, match="Day is stored as day, which is the name of a column"
    ):
        type_columns([Paid, Day])


def test_a_type_without_fields_has_no_column() -> None:
    names = [text.rpartition(" as ")[2] for text in _columns([Closed, Paid])]
    assert names == ["event_type", "day", "context", "`lake.Paid`"]


@pytest.mark.parametrize(
    ("known", "begin"),
    [({}, [(0, 2), (1, 0)]), ({0: 5}, [(0, 5), (1, 0)]), ({0: 9, 1: 3}, [(0, 9), (1, 3)])],
)
def test_a_queue_is_read_from_where_it_was_left(known: Any, begin: Any) -> None:
    ranges = [held(0, 2, 9), held(1, 0, 3)]
    assert _begin(ranges, known) == {QueueRef("t", queue): at for queue, at in begin}


@pytest.mark.parametrize(
    ("known", "sentence"),
    [
        ({0: 1}, "offsets 1 to 1 were deleted before they were exported"),
        ({0: 10}, "the topic was recreated"),
        ({0: 5, 3: 1}, "t has no queue 3 any more"),
    ],
)
def test_what_the_broker_does_not_hold_is_refused(known: Any, sentence: str) -> None:
    with pytest.raises(ProjectionError, match=sentence):
        _begin([held(0, 2, 9)], known)

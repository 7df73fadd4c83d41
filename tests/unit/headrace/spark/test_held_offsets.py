"""Where reading goes on after what was written elsewhere, and what is refused."""

from typing import Any

import pytest
from msgspec.structs import replace

from headrace.errors import ProjectionError
from headrace.spark.held_offsets import check_same_topic, next_offsets
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import QueueRange


def held(queue: int, first: int, end: int) -> QueueRange:
    return QueueRange(topic="t", queue_id=queue, first=first, end=end)


@pytest.mark.parametrize(
    ("known", "begin"),
    [({}, [(0, 2), (1, 0)]), ({0: 5}, [(0, 5), (1, 0)]), ({0: 9, 1: 3}, [(0, 9), (1, 3)])],
)
def test_a_queue_is_read_from_where_it_was_left(known: Any, begin: Any) -> None:
    ranges = [held(0, 2, 9), held(1, 0, 3)]
    assert next_offsets(ranges, known) == {QueueRef("t", queue): at for queue, at in begin}


@pytest.mark.parametrize(
    ("known", "sentence"),
    [
        ({0: 1}, "offsets 1 to 1 were deleted before they were exported"),
        ({0: 10}, r"deleted and made again, .* into an empty folder"),
        ({0: 5, 3: 1}, "t has no queue 3 any more"),
    ],
)
def test_what_the_broker_does_not_hold_is_refused(known: Any, sentence: str) -> None:
    with pytest.raises(ProjectionError, match=sentence):
        next_offsets([held(0, 2, 9)], known)


def test_another_topic_of_the_same_name_is_refused_where_both_are_known() -> None:
    for known, found in (("i", "i"), ("", "i"), ("i", "")):
        check_same_topic("t", known, found)
    with pytest.raises(ProjectionError, match=r"t is not the topic .* into an empty folder"):
        check_same_topic("t", "i", "j")


def test_what_was_exported_of_lost_messages_is_refused() -> None:
    changed = replace(held(0, 2, 12), changed_from=7)
    assert next_offsets([changed], {0: 7}) == {QueueRef("t", 0): 7}
    with pytest.raises(ProjectionError, match=r"lost its messages from 7 on, .* an empty folder"):
        next_offsets([changed], {0: 8})

"""
Whether the broker holds what comes after offsets up to which events were written elsewhere.

    written up to 7, held from 3 to 12    goes on at 7
    written up to 7, held from 9 to 12    7 and 8 were deleted: refused
    written up to 7, held from 0 to 5     the topic was made again: refused
    written of one topic, held of another of its name: refused
    written up to 7, brokers lost messages from 5 on, and others have their offsets: refused

Used by exports and tables of the lake, before they read. Pure; it must not know a file or a table.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from headrace.errors import ProjectionError
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import QueueRange

__all__ = ["check_follows", "check_same_topic", "next_offsets"]

_FROM_STORE: Final = "`headrace projection rebuild NAME --from store`"
_REMADE: Final = (
    "if the topic was deleted and made again, what was exported is of the earlier one: keep it, and write the"
    f" new topic into an empty folder; to rebuild a projection, use {_FROM_STORE}"
)


def check_same_topic(topic: str, known: str, found: str) -> None:
    """Checks that a topic is the one that was exported, by the UUID that each topic gets when it is made.

    Args:
        topic: its name.
        known: the UUID of the exported one; empty: an older version has exported it.
        found: that of the one at the broker; empty: the broker does not know.

    Raises:
        ProjectionError: it is another one; says what to do.
    """
    if known and found and known != found:
        raise ProjectionError(f"{topic} is not the topic that was exported; {_REMADE}")


def check_follows(held: QueueRange, end: int) -> None:
    """Checks that the broker holds what comes after exported offsets.

    Raises:
        ProjectionError: it does not; says what to do.
    """
    name = f"{held.topic}/{held.queue_id}"
    if held.kept(end) < end:
        raise ProjectionError(
            f"{name} was exported up to offset {end}, but brokers lost its messages from {held.kept(end)} on, and others have"
            " their offsets: keep what was exported, and write the topic into an empty folder; to rebuild a projection, use"
            f" {_FROM_STORE}"
        )
    if end < held.first:
        raise ProjectionError(
            f"{name}: offsets {end} to {held.first - 1} were deleted before they were exported; their"
            f" events are in the event store, which {_FROM_STORE} reads; write what is left of the topic"
            " into an empty folder, and keep the old one"
        )
    if end > held.end:
        raise ProjectionError(
            f"{name} ends at {held.end}, before the exported offsets, which end at {end}; {_REMADE}"
        )


def next_offsets(held: Sequence[QueueRange], done: Mapping[int, int]) -> dict[QueueRef, int]:
    """Returns where reading goes on, of every queue that the broker holds.

    Args:
        held: what it holds; asked for with the epochs in which it was exported, so that a loss is noticed.
        done: up to which offset each queue was exported, exclusive; others begin with what is held.

    Raises:
        ProjectionError: the broker does not hold what comes next, or lacks a queue.
    """
    gone = sorted(set(done) - {one.queue_id for one in held})
    if gone:
        raise ProjectionError(f"{held[0].topic} has no queue {gone[0]} any more; {_REMADE}")
    begin = {QueueRef(one.topic, one.queue_id): done.get(one.queue_id, one.first) for one in held}
    for one in held:
        check_follows(one, begin[QueueRef(one.topic, one.queue_id)])
    return begin

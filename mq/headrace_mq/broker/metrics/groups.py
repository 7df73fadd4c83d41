"""
What groups of consumers have not consumed yet, as samples.

A group that commits no offsets has no backlog here. Used by `collector`; reads the offsets and groups of a
running broker.
"""

from collections.abc import Iterator
from typing import NamedTuple

from headrace_mq.broker.metrics.table import (
    BACKLOG,
    BACKLOG_AGE,
    BACKLOG_ALARM,
    KEEPS_OFFSETS,
    MEMBERS,
    OLDEST,
    PAUSED,
    SUMMED,
)
from headrace_mq.broker.state import BrokerState
from headrace_mq.message import QueueRef
from headrace_mq.metrics.names import OTHER
from headrace_mq.metrics.table import Sample

__all__ = ["group_samples"]

# Queues that are only added up, before others have their turn.
QUEUES_PER_TURN_MAX = 100


class _Backlog(NamedTuple):
    queue: QueueRef
    messages: int
    seconds: float


def group_samples(
    state: BrokerState, *, groups_max: int, queues_max: int
) -> Iterator[Sample | None]:
    """Yields the backlogs of all groups.

    Args:
        state: of the broker.
        groups_max: so many groups, by name, have series of their own.
        queues_max: so many queues of all groups together; a group whose queues do not fit has them added up.
    """
    state.look_at_backlogs()
    alarms = set(state.backlogs.alarms)
    names = sorted(state.group_names())
    left, added_up = queues_max, 0
    for name in names[:groups_max]:
        yield MEMBERS.sample(len(state.groups.members(name)), name)
        yield PAUSED.sample(name in state.limits.paused, name)
        yield BACKLOG_ALARM.sample(name in alarms, name)
        queues = state.queues_of_group(name)
        commits = any(state.offsets.get(name, queue) >= 0 for queue in queues)
        yield KEEPS_OFFSETS.sample(commits, name)
        if not commits:
            continue
        apart = len(queues) <= left
        left -= len(queues) if apart else 0
        added_up += 0 if apart else len(queues)
        yield from _of_group(state, name, queues, apart=apart)
    others = names[groups_max:]
    if others:
        yield from _of_others(state, others)
    yield SUMMED.sample(len(others), "groups")
    yield SUMMED.sample(added_up, "queues")


def _of_group(
    state: BrokerState, group: str, queues: list[QueueRef], *, apart: bool
) -> Iterator[Sample | None]:
    """Yields the backlog of each queue, or of all of them together; then the age of the oldest message."""
    messages, oldest = 0, 0.0
    for number, found in enumerate(_backlogs(state, group, queues)):
        messages += found.messages
        oldest = max(oldest, found.seconds)
        if apart:
            labels = (group, found.queue.topic, str(found.queue.queue_id))
            yield BACKLOG.sample(found.messages, *labels)
            yield BACKLOG_AGE.sample(found.seconds, *labels)
        elif number % QUEUES_PER_TURN_MAX == 0:
            yield None
    if not apart:
        yield BACKLOG.sample(messages, group, OTHER, OTHER)
        yield BACKLOG_AGE.sample(oldest, group, OTHER, OTHER)
    yield OLDEST.sample(oldest, group)


def _of_others(state: BrokerState, groups: list[str]) -> Iterator[Sample | None]:
    messages, oldest = 0, 0.0
    for group in groups:
        queues = state.queues_of_group(group)
        if not any(state.offsets.get(group, queue) >= 0 for queue in queues):
            continue
        for number, found in enumerate(_backlogs(state, group, queues)):
            messages += found.messages
            oldest = max(oldest, found.seconds)
            if number % QUEUES_PER_TURN_MAX == 0:
                yield None
    yield BACKLOG.sample(messages, OTHER, OTHER, OTHER)
    yield BACKLOG_AGE.sample(oldest, OTHER, OTHER, OTHER)
    yield OLDEST.sample(oldest, OTHER)


def _backlogs(state: BrokerState, group: str, queues: list[QueueRef]) -> Iterator[_Backlog]:
    now_ms = state.clock.now_ms()
    for queue in queues:
        first, end = state.range(queue)
        place = max(state.offsets.get(group, queue), first)
        messages = max(0, end - place)
        stored_at_ms = state.store.stored_at(queue, place) if messages else None
        age_ms = 0 if stored_at_ms is None else max(0, now_ms - stored_at_ms)
        yield _Backlog(queue, messages, age_ms / 1_000)

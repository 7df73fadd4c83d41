"""Shares of every member, as numbers of queues."""

from collections.abc import Callable

import pytest

from headrace_mq.client.group.allocation.strategy import Strategy
from headrace_mq.message import QueueRef


def queues(count: int) -> list[QueueRef]:
    return [QueueRef("t", number) for number in range(count)]


@pytest.fixture
def shares() -> Callable[[Strategy, int, int], list[list[int]]]:
    """Divides so many queues among so many members; returns the numbers each member gets."""

    def divide(strategy: Strategy, queue_count: int, member_count: int) -> list[list[int]]:
        group = [f"member-{number:04d}" for number in range(member_count)]
        return [[q.queue_id for q in strategy(m, group, queues(queue_count))] for m in group]

    return divide

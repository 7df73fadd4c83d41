"""What tests of a leader's view of its replicas share: an epoch without disks, and a clock that the test moves."""

import pytest

from headrace_mq.cluster.leadership import Leadership
from headrace_mq.cluster.record import GroupRecord, Identity

A, B, C = (Identity(name, f"disk-{name}") for name in "abc")


class MovedClock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.ms = 0

    def monotonic_ms(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture
def leadership() -> Leadership:
    """Of a, which leads with b and c in sync."""
    record = GroupRecord(1, 1, "a", frozenset({A, B, C}))
    return Leadership(A, record, {"forever": 0, "compact": 0}, min_in_sync=1)

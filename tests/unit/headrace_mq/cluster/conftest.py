"""What tests of a group's rules share: three brokers, a record, and logs that are only numbers."""

from dataclasses import dataclass, field

import pytest

from headrace_mq.cluster.record import GroupRecord, Identity
from headrace_mq.store.replication.epochs import EpochHistory


@dataclass
class Numbers:
    """A log of which only positions matter."""

    end: int = 0
    durable: int = 0
    history: EpochHistory = field(default_factory=EpochHistory)


@pytest.fixture
def trio() -> tuple[Identity, Identity, Identity]:
    a, b, c = (Identity(name, f"disk-{name}") for name in "abc")
    return a, b, c


@pytest.fixture
def record(trio: tuple[Identity, ...]) -> GroupRecord:
    return GroupRecord(7, 3, "a", frozenset(trio))


@pytest.fixture
def numbers() -> type[Numbers]:
    return Numbers

"""What a replica gives readers counts for quotas and in metrics, as at a leader."""

from pathlib import Path
from typing import Any

import pytest

from headrace_mq.broker.metadata import limits_file
from headrace_mq.broker.quotas.limits import KeptLimits, KeptQuota, Limits
from headrace_mq.broker.quotas.quotas import QuotaTarget
from headrace_mq.broker.reads.read_counts import ReadCounts
from headrace_mq.errors import BrokerError, Throttled
from headrace_mq.message import QueueRef
from headrace_mq.protocol.limits import CLIENT, TOPIC, Rates
from headrace_mq.settings import BrokerSettings, StoreSettings

QUEUE = QueueRef("orders", 0)


class Clock:
    ms = 1_000

    def monotonic_ms(self) -> int:
        return self.ms

    def now_ms(self) -> int:
        return self.ms


class Reader:
    """A connection, as far as it counts."""

    client_id = "c"

    def __init__(self, host: str = "10.0.0.1") -> None:
        self.host = host


class Counted:
    """The counts of a replica with the limits of its group, and what became of its reads."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        (folder / "metadata").mkdir(exist_ok=True)
        self.limits = Limits(limits_file(folder))
        self.clock = Clock()
        made = BrokerSettings(store=StoreSettings(directory=folder), **settings)
        self.counts = ReadCounts(made, self.clock)
        self.served: list[int] = []
        self.refused: list[BrokerError] = []

    def read(self, number: int, reader: Any, topics: tuple[str, ...] = ("orders",)) -> bool:
        """Whether a read is held."""
        return self.counts.hold(
            reader, number, topics, lambda: self.served.append(number), self.refused.append
        )


async def test_a_broker_without_quotas_counts_traffic_alone(tmp_path: Path) -> None:
    counted = Counted(tmp_path)
    reader: Any = Reader()
    assert not counted.read(1, reader)
    assert counted.counts.room(reader, ["orders"]) is None
    counted.counts.note(reader, QUEUE, 3, 90)
    assert counted.counts.fetched.by_name() == {"orders": (3, 90)}
    # The count of a topic outlives a time without traffic, but not the topic.
    counted.clock.ms += 100_000
    counted.counts.note(reader, QueueRef("other", 0), 1, 9)
    assert len(counted.counts.fetched) == 1
    assert counted.counts.fetched.by_name()["orders"] == (3, 90)
    counted.counts.forget_topics({"other"}.__contains__)
    assert list(counted.counts.fetched.by_name()) == ["other"]


@pytest.mark.parametrize("kind", [CLIENT, TOPIC])
async def test_a_client_over_the_quota_of_its_group_waits_for_its_next_read(
    tmp_path: Path, kind: str
) -> None:
    counted = Counted(tmp_path)
    reader: Any = Reader()
    name = {CLIENT: "10.0.0.1", TOPIC: "orders"}[kind]
    counted.limits.set_quota(QuotaTarget(kind, name), Rates(0, 0, 0, 10))
    assert not counted.read(1, reader)
    room = counted.counts.room(reader, ["orders"])
    assert room is not None
    assert room.messages == 10
    counted.counts.note(reader, QUEUE, 30, 900)
    assert counted.read(2, reader)
    assert counted.served == []
    assert (counted.counts.throttle.requests, len(counted.counts.throttle)) == (1, 1)
    # Another client reads another topic.
    other: Any = Reader("10.0.0.2")
    assert not counted.read(3, other, ("others",))
    counted.clock.ms += 2_500
    counted.counts.throttle.look()
    assert counted.served == [2]
    # The quota is taken away: the next read counts for none.
    counted.counts.note(reader, QUEUE, 90, 900)
    assert counted.read(4, reader)
    counted.limits.set_quota(QuotaTarget(kind, name), None)
    counted.counts.changed()
    assert not counted.read(5, other)
    assert counted.served == [2, 4]


async def test_the_default_of_this_broker_holds_where_the_group_says_nothing(
    tmp_path: Path,
) -> None:
    counted = Counted(tmp_path, client_fetch_messages=10, parked_fetches_max=1)
    reader: Any = Reader()
    assert not counted.read(1, reader)
    counted.counts.note(reader, QUEUE, 30, 900)
    assert counted.read(2, reader)
    with pytest.raises(Throttled, match="over its quota to fetch"):
        counted.read(3, reader)
    counted.counts.forget(reader)
    counted.clock.ms += 100_000
    counted.counts.throttle.look()
    assert counted.served == [], "its connection is closed"


async def test_the_file_of_limits_is_that_of_the_leader(tmp_path: Path) -> None:
    counted = Counted(tmp_path)
    file = limits_file(tmp_path)
    file.write(KeptLimits({CLIENT: {"10.0.0.1": KeptQuota(fetch_bytes=100)}}))
    reader: Any = Reader()
    assert not counted.read(1, reader)
    room = counted.counts.room(reader, ())
    assert room is not None
    assert room.size == 100

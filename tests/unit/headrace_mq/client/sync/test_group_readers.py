"""Readers of two groups as one: all queues of a topic, or an error."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from headrace_mq._net.address import BrokerAddress
from headrace_mq.client.sync.group_readers import GroupReaders, require_all
from headrace_mq.errors import QueueElsewhere, QueueNotFound, TopicExists, TopicNotFound
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import QueueRange, QueueRangesAnswer, TopicIdentity

ADDRESS = BrokerAddress.parse("nameserver://h:1/c/g1,g2")
T0, T1, U0 = QueueRef("t", 0), QueueRef("t", 1), QueueRef("u", 0)


class FakeReader:
    """What one group has: the queues of each topic, with its identity and number of queues."""

    def __init__(self, topics: Mapping[str, tuple[list[int], str, int]]) -> None:
        self.topics = topics
        self.committed_by: dict[str, Mapping[QueueRef, int]] = {}
        self.closed = False

    def held(self, topic: str, known: Mapping[QueueRef, int] | None = None) -> QueueRangesAnswer:
        if topic not in self.topics:
            raise TopicNotFound(topic)
        numbers, identity, count = self.topics[topic]
        ranges = [
            QueueRange(
                topic, number, 0, 10 + number,
                changed_from=(known or {}).get(QueueRef(topic, number), -1),
            )
            for number in numbers
        ]  # fmt: skip
        return QueueRangesAnswer(ranges, [TopicIdentity(topic, identity, True, count)])

    def offsets_at(self, topics: Sequence[str], time_ms: int) -> dict[QueueRef, int]:
        return {
            QueueRef(topic, each): time_ms for topic in topics for each in self.topics[topic][0]
        }

    def committed(self, group: str, topics: Sequence[str]) -> dict[QueueRef, int]:
        return self.offsets_at(topics, len(group))

    def commit(self, group: str, offsets: Mapping[QueueRef, int]) -> None:
        self.committed_by[group] = offsets

    def read(self, queue: QueueRef, start: int, end: int, **how: Any) -> Iterator[Any]:
        return iter([(queue, start, end)])

    def close(self) -> None:
        self.closed = True


ONE = {"t": ([0], "id", 2), "u": ([0], "other", 1), "%own": ([0], "a", 1)}
TWO = {"t": ([1], "id", 2), "%own": ([0], "b", 1)}


def readers(one: Any = ONE, two: Any = TWO) -> tuple[GroupReaders, list[FakeReader]]:
    made: list[FakeReader] = []

    def connect(address: str) -> FakeReader:
        made.append(FakeReader(one if address.endswith("/g1") else two))
        return made[-1]

    return GroupReaders(ADDRESS, connect), made


def test_the_group_that_has_a_queue_hears_of_its_known_epoch() -> None:
    found, _ = readers()
    ranges = found.ranges(["t"], {QueueRef("t", 0): 4, QueueRef("t", 1): 7})
    assert [each.changed_from for each in ranges] == [4, 7]


def test_a_topic_of_two_groups_is_read_as_one() -> None:
    found, made = readers()
    ranges = found.ranges(["t", "u"])
    assert [(each.topic, each.queue_id, each.end) for each in ranges] == [
        ("t", 0, 10), ("t", 1, 11), ("u", 0, 10),
    ]  # fmt: skip
    assert found.identity("t") == TopicIdentity("t", "id", settled=True, queues=2)
    assert found.offsets_at(["t", "u"], 5) == {T0: 5, T1: 5, U0: 5}
    assert found.committed("gg", ["t"]) == {T0: 2, T1: 2}
    assert list(found.read(T1, 3, 4, bytes_max=1, wanted=None)) == [(T1, 3, 4)]
    found.commit("g", {T0: 1, T1: 2})
    assert [one.committed_by["g"] for one in made] == [{T0: 1}, {T1: 2}]
    found.close()
    assert [one.closed for one in made] == [True, True]


def test_a_reader_asks_where_a_queue_is_when_it_reads_first() -> None:
    found, _ = readers()
    assert list(found.read(T1, 3, 4, bytes_max=1, wanted=None)) == [(T1, 3, 4)]
    with pytest.raises(QueueNotFound):
        found.read(QueueRef("t", 2), 0, 1, bytes_max=1, wanted=None)


def test_a_topic_of_the_queue_itself_is_that_of_the_first_group() -> None:
    found, made = readers()
    assert found.identity("%own").identity == "a"
    assert len(made) == 1


@pytest.mark.parametrize(
    ("two", "error", "why"),
    [
        ({"t": ([1], "another", 2)}, TopicExists, "made apart"),
        ({"t": ([0], "id", 2)}, TopicExists, "both have queue t/0"),
        ({}, QueueElsewhere, "have 1 of them"),
    ],
)
def test_a_topic_that_is_not_whole_is_refused(two: Any, error: type[Exception], why: str) -> None:
    found, _ = readers(two=two)
    with pytest.raises(error, match=why):
        found.ranges(["t"])


def test_a_topic_that_no_group_has_is_not_found() -> None:
    found, _ = readers()
    with pytest.raises(TopicNotFound, match="g1, g2"):
        found.ranges(["none"])


def test_a_broker_that_does_not_tell_how_many_queues_there_are_has_all() -> None:
    require_all([], [TopicIdentity("t", "id")])

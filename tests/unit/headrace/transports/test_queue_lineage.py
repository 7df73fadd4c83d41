"""Of several groups of brokers, the life of a topic is told as far as it is there; who needs all of it gets an error."""

from collections.abc import Mapping
from typing import Any

import pytest

from headrace.transports.queue_lineage import QueueLineage
from headrace_mq.admin.topics import TopicLife
from headrace_mq.errors import NotLeader, TopicExists
from headrace_mq.protocol.bodies import QueueRange

GROUPS = "nameserver://127.0.0.1:1/default/g1,g2"


class Admin:
    """Answers with the queues that are there, or as one that wants all of them."""

    def __init__(self, *there: int, error: Exception | None = None) -> None:
        self._there, self._error = there, error
        self.asked = 0
        self.known: Mapping[int, int] | None = None

    async def life_of(self, topic: str, known: Mapping[int, int] | None = None) -> TopicLife:
        self.asked += 1
        self.known = known
        if self._error is not None:
            raise self._error
        ranges = [
            QueueRange(topic, number, 2, 5, 1 if number else -1, 9 * number, number * 4 - 1)
            for number in self._there
        ]
        return TopicLife("id", ranges, 7, 3, 2)

    async def aclose(self) -> None:
        self.asked = -1


def lineage(address: str, strict: Admin, patient: Admin | None = None) -> QueueLineage:
    async def ask() -> Any:
        return strict

    made: Any = QueueLineage(address, ask)
    made._patient = patient
    return made


async def test_one_group_answers_for_all_queues() -> None:
    strict = Admin(0, 1)
    asked = lineage("127.0.0.1:1", strict)
    found = await asked.whole("t", {1: 8})
    assert strict.known == {1: 8}
    assert (found.epochs, found.changed) == ({1: 9}, {1: 3})
    assert (found.identity, found.epoch, found.lossy) == ("id", 7, 3)
    assert found.ranges == {0: (2, 5), 1: (2, 5)}
    assert found.starts == {0: 2, 1: 1}
    assert found.away == frozenset()
    assert await asked.there("t") == found
    await asked.aclose()
    assert strict.asked == 2, "the client is another's"


async def test_queues_of_a_group_that_is_away_are_not_empty_but_away() -> None:
    patient = Admin(0)
    asked = lineage(GROUPS, Admin(error=NotLeader("broker group g2 does not answer")), patient)
    found = await asked.there("t")
    assert found.ranges == {0: (2, 5)}
    assert found.away == frozenset({1})
    with pytest.raises(NotLeader, match="g2 does not answer"):
        await asked.whole("t")
    await asked.aclose()
    assert patient.asked == -1


async def test_a_topic_that_was_away_a_moment_ago_is_not_taken_for_whole() -> None:
    asked = lineage(GROUPS, Admin(0, 1), Admin(0))
    with pytest.raises(NotLeader, match="a moment ago"):
        await asked.whole("t")
    there = lineage(GROUPS, Admin(0, 1), Admin(0, 1))
    assert (await there.whole("t")).away == frozenset()


async def test_a_topic_is_contested_until_groups_agree_again() -> None:
    admin = Admin(error=TopicExists("groups g1 and g2 both have queue t/0"))
    asked = lineage(GROUPS, Admin(0, 1), admin)
    for _ in range(2):
        with pytest.raises(TopicExists):
            await asked.there("t")
        assert asked.contested == {"t"}
    admin._error = NotLeader("broker group g2 does not answer")
    with pytest.raises(NotLeader):
        await asked.there("t")
    assert asked.contested == {"t"}, "it is not known to be over"
    admin._error, admin._there = None, (0, 1)
    await asked.there("t")
    assert asked.contested == set()

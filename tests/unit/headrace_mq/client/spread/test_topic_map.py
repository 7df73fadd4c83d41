"""Which group has which queue, by what groups say."""

import pytest

from headrace_mq.client.spread.topic_map import TopicMap, require_whole
from headrace_mq.errors import QueueElsewhere, TopicExists
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import TopicDescription

ONE = TopicDescription("t", 8, "forever", [1], [], [0, 1, 2, 3])
TWO = TopicDescription("t", 8, "forever", [6], [6], [4, 5, 6, 7])


def map_of(**said: TopicDescription) -> TopicMap:
    topics = TopicMap(["g1", "g2", "g3"])
    for group, each in said.items():
        topics.hear(group, [each.topic], [each])
    return topics


def test_a_topic_of_several_groups_looks_like_one() -> None:
    topics = map_of(g1=ONE, g2=TWO)
    assert topics.merged("t") == TopicDescription("t", 8, "forever", [1, 6], [6])
    assert [topics.owner(QueueRef("t", number)) for number in (0, 3, 4, 7, 8)] == [
        "g1", "g1", "g2", "g2", None,
    ]  # fmt: skip
    assert topics.holders("t") == ["g1", "g2"]
    assert topics.unowned("t") == []
    assert topics.is_spread("t")
    assert topics.topics == ["t"]


def test_a_topic_of_one_group_is_whole_there() -> None:
    topics = map_of(g2=TopicDescription("u", 2, "compact"))
    assert topics.merged("u") == TopicDescription("u", 2, "compact")
    assert topics.owner(QueueRef("u", 1)) == "g2"
    assert not topics.is_spread("u")
    assert topics.merged("v") is None
    assert topics.owner(QueueRef("v", 0)) is None


def test_a_queue_that_no_group_has_is_known_to_be_missing() -> None:
    topics = map_of(g1=ONE)
    assert topics.unowned("t") == [4, 5, 6, 7]
    topics.hear("g2", ["t"], [TWO])
    assert topics.unowned("t") == []


def test_a_topic_that_a_group_has_no_more_is_forgotten() -> None:
    topics = map_of(g1=ONE, g2=TWO)
    topics.hear("g2", ["t"], [])
    assert topics.holders("t") == ["g1"]
    assert topics.owner(QueueRef("t", 5)) is None
    topics.hear("g1", [], [TopicDescription("u", 1, "forever")])
    assert topics.topics == ["u"]


def test_a_group_that_grew_first_is_believed() -> None:
    before = TopicDescription("t", 4, "forever")
    topics = map_of(g1=before, g2=TWO)
    found = topics.merged("t")
    assert found is not None
    assert found.queues == 8
    assert topics.unowned("t") == []


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (TopicDescription("t", 8, "forever"), "both have queue t/0"),
        (TopicDescription("t", 8, "transient", [], [], [4]), "kinds forever and transient"),
    ],
)
def test_groups_that_contradict_each_other_are_refused(other: TopicDescription, why: str) -> None:
    with pytest.raises(TopicExists, match=why):
        map_of(g1=ONE, g2=other).merged("t")


def test_a_topic_of_the_queue_itself_is_that_of_the_first_group() -> None:
    own = TopicDescription("%RETRY%g", 1, "forever")
    assert map_of(g1=own, g2=own).holders("%RETRY%g") == ["g1"]
    assert map_of(g2=own).merged("%RETRY%g") is None


def test_a_client_of_one_group_takes_no_part_for_the_whole() -> None:
    whole = TopicDescription("u", 1, "forever")
    assert require_whole([whole]) == {"u": whole}
    with pytest.raises(QueueElsewhere, match="name all of them"):
        require_whole([whole, ONE])


def test_a_topic_of_the_queue_itself_has_its_place_in_the_first_group() -> None:
    topics = TopicMap(["g1", "g2"])
    assert topics.places(["%retry%g"]) == ["g1"]
    assert topics.places(["%retry%g", "t"]) == ["g1", "g2"]
    assert topics.places([]) == []


def test_the_word_of_a_group_on_spread_topics_is_in_doubt_until_it_is_heard_again() -> None:
    known = TopicMap(["g1", "g2"])
    spread = TopicDescription("t", 4, "forever", [], [], [0, 1])
    known.hear("g1", ["t", "u"], [spread, TopicDescription("u", 1, "forever")])
    known.doubt("g2")
    assert not known.is_doubted("g1", "t")
    known.doubt("g1")
    assert (known.doubted("g1"), known.doubted("g2")) == (["t"], [])
    assert known.owner(QueueRef("t", 1)) == "g1"
    known.hear("g1", ["t"], [spread])
    assert not known.is_doubted("g1", "t")

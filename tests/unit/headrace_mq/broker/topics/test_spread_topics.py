"""Topics whose queues are spread over broker groups: what one group keeps, and refuses."""

from pathlib import Path

import pytest

from headrace_mq.broker.files.metadata_file import MetadataFile
from headrace_mq.broker.journal.batches import open_queues_of
from headrace_mq.broker.metadata import topics_file
from headrace_mq.broker.topics.kept import KeptTopic, KeptTopics
from headrace_mq.broker.topics.spread_topics import spread, witnessed
from headrace_mq.broker.topics.topics import Topics
from headrace_mq.errors import (
    InvalidArgument,
    QueueElsewhere,
    QueueFrozen,
    QueueNotFound,
    TopicExists,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.administration import FreezeQueues
from headrace_mq.protocol.bodies import CreateTopic, TopicDescription

ONE = "6f1d7c1e-3b57-4a0e-9c0f-3d2d6f3f0001"


@pytest.fixture
def file(tmp_path: Path) -> MetadataFile[KeptTopics]:
    return topics_file(tmp_path)


def loaded(file: MetadataFile[KeptTopics]) -> Topics:
    topics = Topics(file, default_queues=4, auto_create=True)
    topics.load([])
    return topics


def asked(queues: int, *owned: int, identity: str = ONE) -> CreateTopic:
    return CreateTopic("t", queues, "forever", list(owned), identity)


def test_a_group_keeps_its_queues_of_a_topic_durably(file: MetadataFile[KeptTopics]) -> None:
    made = loaded(file).create(asked(8, 6, 7, 4, 5))
    assert made == TopicDescription("t", 8, "forever", [], [], [4, 5, 6, 7])
    topics = loaded(file)
    assert topics.find("t") == made
    assert topics.queues_of("t") == [QueueRef("t", number) for number in (4, 5, 6, 7)]
    assert topics.identity_of("t") == ONE
    assert (topics.queues, topics.total_of("t"), topics.total_of("u")) == (4, 8, 0)
    assert topics.is_settled("t")


def test_a_queue_of_another_group_takes_and_gives_nothing(file: MetadataFile[KeptTopics]) -> None:
    topics = loaded(file)
    topics.create(asked(8, 4, 5, 6, 7))
    for question in (
        topics.for_append,
        topics.for_reading,
        topics.check,
        topics.is_writable,
        topics.is_readable,
    ):
        question(QueueRef("t", 4))
        with pytest.raises(QueueElsewhere, match="name all groups"):
            question(QueueRef("t", 3))
        with pytest.raises(QueueNotFound):
            question(QueueRef("t", 8))


def test_a_freeze_is_about_the_queues_of_the_group(file: MetadataFile[KeptTopics]) -> None:
    topics = loaded(file)
    topics.create(asked(4, 2, 3))
    with pytest.raises(QueueElsewhere):
        topics.freeze(FreezeQueues("t", [1], writing=True, reading=False, frozen=True))
    described, meant = topics.freeze(FreezeQueues("t", [], writing=True, reading=True, frozen=True))
    assert (described.unwritable, described.unreadable) == ([2, 3], [2, 3])
    assert meant == [QueueRef("t", 2), QueueRef("t", 3)]
    with pytest.raises(QueueFrozen):
        topics.for_append(QueueRef("t", 2))
    topics.freeze(FreezeQueues("t", [], writing=True, reading=True, frozen=False))
    with pytest.raises(QueueElsewhere):
        topics.for_append(QueueRef("t", 1))


def test_a_topic_of_one_group_becomes_one_of_several(file: MetadataFile[KeptTopics]) -> None:
    topics = loaded(file)
    topics.create(CreateTopic("t", 4, "forever"))
    identity = topics.identity_of("t")
    with pytest.raises(TopicExists, match="another one"):
        topics.create(asked(8, 0, 1, 2, 3))
    grown = topics.create(asked(8, 0, 1, 2, 3, identity=identity))
    assert (grown.queues, grown.owned) == (8, [0, 1, 2, 3])
    assert not topics.is_settled("t")
    again = topics.create(asked(12, 0, 1, 2, 3, identity=identity))
    assert (again.queues, again.owned) == (12, [0, 1, 2, 3])
    assert topics.create(asked(12, 0, 1, 2, 3, identity=identity)) == again


def test_a_topic_of_several_groups_is_confirmed_and_grows_by_its_own_command(
    file: MetadataFile[KeptTopics],
) -> None:
    topics = loaded(file)
    made = topics.create(asked(8, 0, 1))
    assert topics.create(CreateTopic("t", 8, "forever")) == made
    assert topics.create(CreateTopic("t", 0, "forever")) == made
    with pytest.raises(InvalidArgument, match="topic spread"):
        topics.create(CreateTopic("t", 9, "forever"))


@pytest.mark.parametrize(
    ("queues", "owned", "why"),
    [
        (8, [0, 1, 2], "cannot change its broker group"),
        (9, [0, 1, 2, 3, 5], "cannot change its broker group"),
        (8, [0, 1, 2, 3, 8], "would have queues 0 to 7"),
        (7, [0, 1, 2, 3], "cannot have fewer"),
        (8, [-1, 0, 1, 2, 3], "would have queues 0 to 7"),
    ],
)
def test_a_queue_never_changes_its_group(queues: int, owned: list[int], why: str) -> None:
    kept = KeptTopic(8, "forever", owned=(0, 1, 2, 3))
    with pytest.raises(InvalidArgument, match=why):
        spread(asked(queues, *owned), kept, queues)


def test_a_topic_of_the_queue_itself_and_one_without_identity_are_not_spread() -> None:
    with pytest.raises(InvalidArgument, match="identity"):
        spread(asked(8, 0, identity=""), None, 8)
    with pytest.raises(InvalidArgument, match="stays in one"):
        spread(CreateTopic("%RETRY%g", 8, "forever", [0], ONE), None, 8)


def test_a_topic_of_several_groups_is_refused_where_all_of_its_queues_are_needed(
    file: MetadataFile[KeptTopics],
) -> None:
    topics = loaded(file)
    topics.create(asked(8, 0, 1))
    topics.create(CreateTopic("u", 2))
    topics.require_whole(["u", "new"])
    with pytest.raises(InvalidArgument, match="scheduled"):
        topics.require_whole(["u", "t"])


def test_a_message_that_was_scheduled_before_stays_in_the_group() -> None:
    described = TopicDescription("t", 8, "forever", [4], [], [4, 5])
    assert open_queues_of(described) == [5]
    assert open_queues_of(TopicDescription("t", 8, "forever", [4, 5], [], [4, 5])) == [4, 5]


def test_a_queue_that_holds_messages_is_the_groups_again_where_the_file_is_older(
    file: MetadataFile[KeptTopics],
) -> None:
    loaded(file).create(asked(8, 4, 5, 6, 7))
    topics = Topics(file, default_queues=4, auto_create=True)
    topics.load([(QueueRef("t", number), "forever", 9) for number in (5, 10)])
    found = topics.find("t")
    assert found == TopicDescription("t", 11, "forever", [], [], [4, 5, 6, 7, 10])
    assert topics.for_append(QueueRef("t", 10)) == "forever"
    assert topics.for_reading(QueueRef("t", 10)) == 0
    assert not topics.is_settled("t")
    for foreign in (0, 8, 9):
        with pytest.raises(QueueElsewhere):
            topics.for_append(QueueRef("t", foreign))
    grown = topics.create(asked(12, 4, 5, 6, 7, 10, 11))
    assert grown.owned == [4, 5, 6, 7, 10, 11]
    assert loaded(file).find("t") == grown


def test_a_queue_that_the_file_gives_to_another_group_is_opened_where_it_holds_messages() -> None:
    kept = KeptTopic(4, "forever", (0, 1, 2), (0, 1), owned=(2, 3))
    assert witnessed(kept, 1) == KeptTopic(4, "forever", (0, 2), (0,), owned=(1, 2, 3))
    assert witnessed(KeptTopic(0, "forever"), 2) == KeptTopic(3, "forever")

import errno
from pathlib import Path

import pytest

from headrace_mq.broker.metadata_file import MetadataFile
from headrace_mq.broker.topics import QUEUES_MAX, KeptTopics, Topics
from headrace_mq.errors import (
    DataCorrupt,
    InvalidArgument,
    QueueNotFound,
    StoreFull,
    TopicExists,
    TopicNotFound,
)
from headrace_mq.message import QUEUES_PER_TOPIC_MAX, QueueRef
from headrace_mq.protocol.bodies import CreateTopic, TopicDescription


@pytest.fixture
def file(tmp_path: Path) -> MetadataFile[KeptTopics]:
    return MetadataFile(tmp_path / "topics.json", KeptTopics, repair="Move it away.")


def loaded(
    file: MetadataFile[KeptTopics],
    held: tuple[tuple[QueueRef, str], ...] = (),
    *,
    auto_create: bool = True,
) -> Topics:
    topics = Topics(file, default_queues=4, auto_create=auto_create)
    topics.load(held)
    return topics


def test_a_created_topic_is_there_after_a_restart(file: MetadataFile[KeptTopics]) -> None:
    created = loaded(file).create(CreateTopic("events", 3, "forever"))
    assert created == TopicDescription("events", 3, "forever")
    assert loaded(file).all() == [created]


def test_zero_queues_ask_for_the_default(file: MetadataFile[KeptTopics]) -> None:
    assert loaded(file).create(CreateTopic("t")) == TopicDescription("t", 4, "transient")


@pytest.mark.parametrize("queues", [0, 1, 3])
def test_creating_again_with_the_same_or_less_confirms(
    file: MetadataFile[KeptTopics], queues: int
) -> None:
    topics = loaded(file)
    topics.create(CreateTopic("t", 3))
    assert topics.create(CreateTopic("t", queues)).queues == 3


def test_creating_again_with_more_queues_adds_them_durably(file: MetadataFile[KeptTopics]) -> None:
    loaded(file).create(CreateTopic("t", 3))
    assert loaded(file).create(CreateTopic("t", 5)).queues == 5
    assert loaded(file).queues_of("t") == [QueueRef("t", number) for number in range(5)]


def test_another_retention_is_refused(file: MetadataFile[KeptTopics]) -> None:
    topics = loaded(file)
    topics.create(CreateTopic("t", 3, "forever"))
    with pytest.raises(TopicExists, match="another name"):
        topics.create(CreateTopic("t", 3, "transient"))


@pytest.mark.parametrize(
    "request_", [
        CreateTopic("", 1),
        CreateTopic("with space", 1),
        CreateTopic("t", -1),
        CreateTopic("t", QUEUES_PER_TOPIC_MAX + 1),
        CreateTopic("t", 1, "for a while"),
    ],
)  # fmt: skip
def test_values_out_of_range_are_refused_and_nothing_is_kept(
    file: MetadataFile[KeptTopics], request_: CreateTopic
) -> None:
    topics = loaded(file)
    with pytest.raises(InvalidArgument):
        topics.create(request_)
    assert topics.all() == []
    assert loaded(file).all() == []


def test_topics_are_admitted_when_named_for_the_first_time(file: MetadataFile[KeptTopics]) -> None:
    loaded(file).admit(["a", "b", "a"])
    assert loaded(file).all() == [
        TopicDescription("a", 4, "transient"),
        TopicDescription("b", 4, "transient"),
    ]


def test_nothing_is_admitted_where_topics_are_created_by_hand(
    file: MetadataFile[KeptTopics],
) -> None:
    topics = loaded(file, auto_create=False)
    topics.admit(["a"])
    assert "a" not in topics
    with pytest.raises(TopicNotFound, match="create it first"):
        topics.retention_of(QueueRef("a", 0))


def test_an_unknown_queue_is_refused_with_the_known_ones(file: MetadataFile[KeptTopics]) -> None:
    topics = loaded(file)
    topics.create(CreateTopic("t", 2, "forever"))
    assert topics.retention_of(QueueRef("t", 1)) == "forever"
    for queue_id in (2, -1):
        with pytest.raises(QueueNotFound, match="0 to 1"):
            topics.retention_of(QueueRef("t", queue_id))


def test_a_lost_file_is_rebuilt_from_what_the_store_holds(file: MetadataFile[KeptTopics]) -> None:
    held = (
        (QueueRef("events", 0), "forever"),
        (QueueRef("events", 5), "forever"),
        (QueueRef("commands", 1), "transient"),
    )
    expected = [
        TopicDescription("commands", 2, "transient"),
        TopicDescription("events", 6, "forever"),
    ]
    assert loaded(file, held).all() == expected
    assert loaded(file).all() == expected


def test_an_older_copy_of_the_file_is_completed_from_the_store(
    file: MetadataFile[KeptTopics],
) -> None:
    loaded(file).create(CreateTopic("events", 2, "forever"))
    assert loaded(file, ((QueueRef("events", 3), "forever"),)).find("events") == TopicDescription(
        "events", 4, "forever"
    )


def test_a_damaged_file_is_an_error_and_not_an_empty_broker(file: MetadataFile[KeptTopics]) -> None:
    loaded(file).create(CreateTopic("t"))
    file.path.write_bytes(b"")
    with pytest.raises(DataCorrupt, match="Move it away"):
        loaded(file)


def test_the_number_of_queues_is_limited_over_all_topics(file: MetadataFile[KeptTopics]) -> None:
    topics = loaded(file)
    for number in range(QUEUES_MAX // QUEUES_PER_TOPIC_MAX):
        topics.create(CreateTopic(f"t{number}", QUEUES_PER_TOPIC_MAX))
    with pytest.raises(InvalidArgument, match="at most"):
        topics.admit(["one.more"])


def test_a_full_disk_refuses_the_topic_and_keeps_the_others(
    file: MetadataFile[KeptTopics], monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = loaded(file)
    topics.create(CreateTopic("t"))

    def full(_value: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(file, "write", full)
        with pytest.raises(StoreFull, match="free some space"):
            topics.create(CreateTopic("u"))
    assert [topic.topic for topic in topics.all()] == ["t"]
    topics.create(CreateTopic("u"))
    assert [topic.topic for topic in loaded(file).all()] == ["t", "u"]

import errno
from pathlib import Path

import pytest

from headrace_mq.broker.files.metadata_file import MetadataFile
from headrace_mq.broker.topics.kept import KeptGrave, KeptTopic, KeptTopics
from headrace_mq.broker.topics.topics import QUEUES_MAX, Topics
from headrace_mq.errors import (
    DataCorrupt,
    InvalidArgument,
    QueueFrozen,
    QueueNotFound,
    StoreFull,
    TopicExists,
    TopicNotFound,
)
from headrace_mq.message import QUEUES_PER_TOPIC_MAX, QueueRef
from headrace_mq.protocol.administration import FreezeQueues
from headrace_mq.protocol.bodies import CreateTopic, TopicDescription

GOLDEN = Path(__file__).parents[4] / "golden/broker/v1"


@pytest.fixture
def file(tmp_path: Path) -> MetadataFile[KeptTopics]:
    return MetadataFile(tmp_path / "topics.json", KeptTopics, repair="Move it away.")


def loaded(
    file: MetadataFile[KeptTopics],
    held: tuple[tuple[QueueRef, str, int], ...] = (),
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


def test_a_topic_is_settled_until_keys_move(file: MetadataFile[KeptTopics]) -> None:
    def freeze(queue: int, *, frozen: bool = True) -> FreezeQueues:
        return FreezeQueues("t", [queue], writing=True, reading=False, frozen=frozen)

    def moving(*changes: FreezeQueues | CreateTopic) -> bool:
        topics = loaded(file)
        topics.delete("t", 0, {})
        topics.create(CreateTopic("t", 3))
        for change in changes:
            topics.freeze(change) if isinstance(change, FreezeQueues) else topics.create(change)
        assert loaded(file).is_settled("t") == topics.is_settled("t")
        return not topics.is_settled("t")

    loaded(file).admit(["t"])
    assert loaded(file).is_settled("t")
    assert not moving(CreateTopic("t", 2), CreateTopic("t", 3))
    for_reading = FreezeQueues("t", [1], writing=False, reading=True, frozen=True)
    assert not moving(for_reading)
    assert moving(CreateTopic("t", 4))
    assert moving(freeze(2))
    # What came meanwhile stands where it stands.
    assert moving(freeze(2), freeze(2, frozen=False))


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


def test_a_compacted_topic_keeps_its_number_of_queues(file: MetadataFile[KeptTopics]) -> None:
    topics = loaded(file)
    topics.create(CreateTopic("t", 3, "compact"))
    assert topics.create(CreateTopic("t", 3, "compact")).queues == 3
    with pytest.raises(InvalidArgument, match="keys would move"):
        topics.create(CreateTopic("t", 4, "compact"))


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
        topics.for_append(QueueRef("a", 0))


def test_an_unknown_queue_is_refused_with_the_known_ones(file: MetadataFile[KeptTopics]) -> None:
    topics = loaded(file)
    topics.create(CreateTopic("t", 2, "forever"))
    assert topics.for_append(QueueRef("t", 1)) == "forever"
    for queue_id in (2, -1):
        with pytest.raises(QueueNotFound, match="0 to 1"):
            topics.check(QueueRef("t", queue_id))


def test_a_lost_file_is_rebuilt_from_what_the_store_holds(file: MetadataFile[KeptTopics]) -> None:
    held = (
        (QueueRef("events", 0), "forever", 9),
        (QueueRef("events", 5), "forever", 1),
        (QueueRef("commands", 1), "transient", 3),
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
    assert loaded(file, ((QueueRef("events", 3), "forever", 7),)).find(
        "events"
    ) == TopicDescription("events", 4, "forever")


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


# --- freezing -------------------------------------------------------------------------------------


def frozen(topic: str, *queues: int, writing: bool = True, reading: bool = False) -> FreezeQueues:
    return FreezeQueues(topic, list(queues), writing, reading, frozen=True)


def test_a_frozen_queue_refuses_messages_and_the_others_take_them(
    file: MetadataFile[KeptTopics],
) -> None:
    topics = loaded(file)
    topics.create(CreateTopic("t", 3))
    described, meant = topics.freeze(frozen("t", 1))
    assert (described.unwritable, described.unreadable, meant) == ([1], [], [QueueRef("t", 1)])
    with pytest.raises(QueueFrozen, match="another queue") as refused:
        topics.for_append(QueueRef("t", 1))
    assert refused.value.elsewhere
    assert topics.for_append(QueueRef("t", 0)) == "transient"
    assert topics.is_readable(QueueRef("t", 1))


def test_no_number_means_every_queue_and_each_side_is_its_own(
    file: MetadataFile[KeptTopics],
) -> None:
    topics = loaded(file)
    topics.create(CreateTopic("t", 3))
    topics.freeze(frozen("t", writing=False, reading=True))
    topics.freeze(frozen("t", 2, 0, 2))
    described, _ = topics.freeze(FreezeQueues("t", [1, 0], True, True, frozen=False))
    assert (described.unwritable, described.unreadable) == ([2], [2])


def test_what_is_frozen_stays_frozen_after_a_restart_and_when_queues_are_added(
    file: MetadataFile[KeptTopics],
) -> None:
    topics = loaded(file)
    topics.create(CreateTopic("t", 2, "forever"))
    described, _ = topics.freeze(frozen("t", reading=True))
    assert loaded(file).find("t") == described
    grown = topics.create(CreateTopic("t", 3, "forever"))
    assert (grown.queues, grown.unwritable, grown.unreadable) == (3, [0, 1], [0, 1])


def test_what_does_not_exist_is_not_frozen_and_nothing_else_either(
    file: MetadataFile[KeptTopics],
) -> None:
    topics = loaded(file)
    with pytest.raises(TopicNotFound):
        topics.freeze(frozen("t"))
    topics.create(CreateTopic("t", 2))
    with pytest.raises(QueueNotFound):
        topics.freeze(frozen("t", 0, 2))
    with pytest.raises(InvalidArgument, match="writing, reading"):
        topics.freeze(frozen("t", 0, writing=False))
    assert topics.find("t") == TopicDescription("t", 2, "transient")


# --- deleting -------------------------------------------------------------------------------------

HELD = tuple((QueueRef("t", number), "forever", 5 + number) for number in range(3))


def deleted(file: MetadataFile[KeptTopics], keep: int = 0) -> Topics:
    topics = loaded(file, HELD)
    topics.delete("t", keep, {number: 5 + number for number in range(keep, 3)})
    return topics


def test_a_deleted_topic_is_not_put_back_from_its_messages(file: MetadataFile[KeptTopics]) -> None:
    assert "t" not in deleted(file)
    again = loaded(file, HELD)
    assert "t" not in again
    assert [again.start_of(queue) for queue, *_ in HELD] == [5, 6, 7]


def test_only_the_last_queues_go_and_their_freezes_with_them(
    file: MetadataFile[KeptTopics],
) -> None:
    topics = loaded(file, HELD)
    topics.freeze(frozen("t", 0, 2, reading=True))
    topics.delete("t", 2, {2: 7})
    kept = TopicDescription("t", 2, "forever", [0], [0])
    assert topics.find("t") == loaded(file, HELD).find("t") == kept
    assert [topics.start_of(queue) for queue, *_ in HELD] == [0, 0, 7]


def test_a_new_topic_of_the_name_begins_behind_the_old_messages(
    file: MetadataFile[KeptTopics],
) -> None:
    topics = deleted(file)
    topics.create(CreateTopic("t", 2, "forever"))
    again = loaded(file, ((QueueRef("t", 0), "forever", 8), *HELD[1:]))
    assert again.find("t") == TopicDescription("t", 2, "forever")
    assert again.start_of(QueueRef("t", 0)) == 5


def test_a_queue_whose_new_messages_outlived_the_file_is_put_back_without_the_old_ones(
    file: MetadataFile[KeptTopics],
) -> None:
    deleted(file)
    again = loaded(file, ((QueueRef("t", 1), "forever", 7), HELD[0]))
    assert again.find("t") == TopicDescription("t", 2, "forever")
    assert again.start_of(QueueRef("t", 1)) == 6


def test_a_store_that_lost_its_tail_takes_no_new_message_for_a_deleted_one(
    file: MetadataFile[KeptTopics],
) -> None:
    deleted(file)
    shorter = loaded(file, ((QueueRef("t", 0), "forever", 3),))
    assert [shorter.start_of(queue) for queue, *_ in HELD] == [3, 0, 0]
    # The correction is durable: the queue grows again, and its new messages are its own.
    assert loaded(file, HELD).start_of(QueueRef("t", 0)) == 3


def test_the_log_of_a_deleted_topic_is_that_of_the_next_one(file: MetadataFile[KeptTopics]) -> None:
    topics = deleted(file)
    with pytest.raises(TopicExists, match="was deleted, but its messages"):
        topics.create(CreateTopic("t", 1, "transient"))
    topics.admit(["t"])
    assert topics.find("t") == TopicDescription("t", 4, "forever")


def test_a_topic_that_never_had_messages_leaves_nothing(file: MetadataFile[KeptTopics]) -> None:
    topics = loaded(file)
    topics.create(CreateTopic("t", 2, "forever"))
    topics.delete("t", 0, {0: 0, 1: 0})
    assert topics.create(CreateTopic("t", 1)).retention == "transient"
    kept = file.read()
    assert kept is not None
    assert (kept.topics, kept.graves) == ({"t": KeptTopic(1, "transient", settled=True)}, {})


def test_a_topic_keeps_its_identity_until_it_is_deleted(file: MetadataFile[KeptTopics]) -> None:
    topics = loaded(file)
    topics.create(CreateTopic("t", 2))
    topics.create(CreateTopic("u", 2))
    identity = topics.identity_of("t")
    assert identity != topics.identity_of("u")
    topics.create(CreateTopic("t", 3))
    topics.freeze(FreezeQueues("t", [], writing=True, reading=True, frozen=True))
    again = loaded(file)
    assert again.identity_of("t") == identity
    again.delete("t", 0, {0: 5})
    with pytest.raises(TopicNotFound):
        again.identity_of("t")
    again.create(CreateTopic("t", 3))
    assert again.identity_of("t") != identity


def test_topics_of_an_earlier_version_get_an_identity_and_keep_it(
    file: MetadataFile[KeptTopics],
) -> None:
    file.write(KeptTopics({"events": KeptTopic(3, "forever")}))
    identity = loaded(file).identity_of("events")
    assert identity
    assert loaded(file).identity_of("events") == identity


def test_topics_put_back_from_messages_are_others(file: MetadataFile[KeptTopics]) -> None:
    identity = loaded(file, ((QueueRef("t", 0), "forever", 1),)).identity_of("t")
    file.path.unlink()
    assert loaded(file, ((QueueRef("t", 0), "forever", 1),)).identity_of("t") != identity


def test_deleting_what_is_not_there_is_refused(file: MetadataFile[KeptTopics]) -> None:
    with pytest.raises(TopicNotFound):
        loaded(file).delete("t", 0, {})


def test_deleted_queues_that_had_messages_count_against_the_limit(
    file: MetadataFile[KeptTopics],
) -> None:
    topics = loaded(file)
    for number in range(QUEUES_MAX // QUEUES_PER_TOPIC_MAX):
        topics.create(CreateTopic(f"t{number}", QUEUES_PER_TOPIC_MAX))
    topics.delete("t0", 0, dict.fromkeys(range(QUEUES_PER_TOPIC_MAX), 1))
    with pytest.raises(InvalidArgument, match="deleted ones"):
        topics.create(CreateTopic("u", 1))
    assert topics.create(CreateTopic("t0", QUEUES_PER_TOPIC_MAX)).queues == QUEUES_PER_TOPIC_MAX


@pytest.mark.parametrize(
    ("golden", "expected"),
    [
        ("topics", KeptTopics({"events": KeptTopic(3, "forever")})),
        (
            "topics-frozen",
            KeptTopics(
                {"events": KeptTopic(3, "forever", (1, 2), (2,))},
                {"old": KeptGrave("transient", {0: 5, 1: 6})},
            ),
        ),
    ],
)
def test_files_that_earlier_versions_wrote_are_read(
    file: MetadataFile[KeptTopics], golden: str, expected: KeptTopics
) -> None:
    written = bytes.fromhex((GOLDEN / f"{golden}.json.hex").read_text(encoding="utf-8"))
    file.path.write_bytes(written)
    assert file.read() == expected
    file.write(expected)
    assert file.path.read_bytes() == written

"""What the file of an older version says, and what it does not."""

from pathlib import Path

import msgspec
import pytest

from headrace_mq.broker.files.metadata_file import MetadataFile
from headrace_mq.broker.topics.kept import KeptTopic, KeptTopics
from headrace_mq.broker.topics.topics import Topics
from headrace_mq.errors import TopicNotFound
from headrace_mq.message import QueueRef


def test_topics_of_an_older_version_are_not_known_to_be_settled(tmp_path: Path) -> None:
    file = MetadataFile(tmp_path / "topics.json", KeptTopics, repair="Move it away.")
    file.write(KeptTopics({"t": KeptTopic(3, "forever")}))
    assert b"settled" not in file.path.read_bytes()
    topics = Topics(file, default_queues=4, auto_create=True)
    topics.load([(QueueRef("new", 1), "forever", 7)])
    assert not topics.is_settled("t")
    assert not topics.is_settled("new")
    with pytest.raises(TopicNotFound):
        topics.is_settled("missing")


def test_kept_topics_come_back_as_they_were() -> None:
    kept = KeptTopics({"t": KeptTopic(3, "forever", (1,), settled=True)})
    assert msgspec.json.decode(msgspec.json.encode(kept), type=KeptTopics) == kept

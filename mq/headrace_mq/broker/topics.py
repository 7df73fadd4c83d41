"""
Which topics there are, how many queues each has and how long it is kept; durable.

A topic is on disk before anyone hears of it. The store is the witness: a topic or a queue that
holds messages but stands in no file (lost, or restored from an older copy) is put back at start.

Sits between: the handlers, and a `metadata_file`. Must never know connections or messages.
"""

import errno
from collections.abc import Iterable

import msgspec
import structlog

from headrace_mq.broker.metadata_file import MetadataFile
from headrace_mq.errors import (
    InvalidArgument,
    QueueNotFound,
    StoreFull,
    TopicExists,
    TopicNotFound,
)
from headrace_mq.message import QUEUES_PER_TOPIC_MAX, QueueRef, check_topic
from headrace_mq.protocol.bodies import CreateTopic, TopicDescription

__all__ = ["QUEUES_MAX", "RETENTIONS", "KeptTopic", "KeptTopics", "Topics"]

RETENTIONS = ("transient", "forever")
# Over all topics: what a broker keeps in memory for each (ranges, tail) stays below 100 MiB, and
# a client that names topics at random cannot fill the memory.
QUEUES_MAX = 65_536

_log = structlog.get_logger(__name__)


class KeptTopic(msgspec.Struct, frozen=True):
    """One topic as the file holds it."""

    queues: int
    retention: str


class KeptTopics(msgspec.Struct, frozen=True):
    """The content of `topics.json`."""

    topics: dict[str, KeptTopic]


class Topics:
    """The broker's topics.

    Args:
        file: where they are kept.
        default_queues: queues of a topic whose creator names no number.
        auto_create: whether naming an unknown topic creates it.
    """

    def __init__(
        self, file: MetadataFile[KeptTopics], *, default_queues: int, auto_create: bool
    ) -> None:
        self._file = file
        self._default_queues = default_queues
        self._auto_create = auto_create
        self._topics: dict[str, KeptTopic] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def load(self, held: Iterable[tuple[QueueRef, str]]) -> None:
        """Reads the file and adds what the store holds beyond it.

        Args:
            held: the queues that have messages, with their topic's retention.

        Raises:
            DataCorrupt: the file is damaged.
            FormatTooNew: a newer version wrote the file.
        """
        kept = self._file.read()
        topics = dict(kept.topics) if kept else {}
        found: dict[str, KeptTopic] = {}
        for queue, retention in held:
            known = found.get(queue.topic) or topics.get(queue.topic) or KeptTopic(0, retention)
            if queue.queue_id >= known.queues:
                found[queue.topic] = KeptTopic(queue.queue_id + 1, known.retention)
        if found:
            _log.warning(
                "topics put back from the messages that the store holds",
                file=str(self._file.path),
                file_was_missing=kept is None,
                topics=sorted(found),
            )
        if found or kept is None:
            self._file.write(KeptTopics(topics | found))
        self._topics = topics | found

    def find(self, topic: str) -> TopicDescription | None:
        """Describes a topic, or returns None."""
        kept = self._topics.get(topic)
        return TopicDescription(topic, kept.queues, kept.retention) if kept else None

    def all(self) -> list[TopicDescription]:
        """Describes every topic, by name."""
        return [
            TopicDescription(topic, kept.queues, kept.retention)
            for topic, kept in sorted(self._topics.items())
        ]

    def queues_of(self, topic: str) -> list[QueueRef]:
        """Returns the queues of a topic. Raises TopicNotFound."""
        kept = self._topics.get(topic)
        if kept is None:
            raise _not_found(topic)
        return [QueueRef(topic, queue_id) for queue_id in range(kept.queues)]

    def retention_of(self, queue: QueueRef) -> str:
        """Returns the retention policy of an existing queue.

        Raises:
            TopicNotFound: there is no such topic.
            QueueNotFound: the topic has no queue of that number.
        """
        kept = self._topics.get(queue.topic)
        if kept is None:
            raise _not_found(queue.topic)
        if not 0 <= queue.queue_id < kept.queues:
            raise QueueNotFound(
                f"topic {queue.topic!r} has queues 0 to {kept.queues - 1}, not {queue.queue_id};"
                " ask for its description again"
            )
        return kept.retention

    def admit(self, topics: Iterable[str]) -> None:
        """Creates those that are missing, if this broker creates topics by itself; durable.

        Raises:
            InvalidArgument: a name is not allowed, or there are too many topics.
            StoreFull: the disk is full.
        """
        if not self._auto_create:
            return
        missing = {topic for topic in topics if topic not in self._topics}
        if missing:
            new = KeptTopic(self._default_queues, "transient")
            self._change({_checked(topic): new for topic in sorted(missing)})

    def create(self, request: CreateTopic) -> TopicDescription:
        """Creates a topic, adds queues to it, or confirms that it is as asked; durable.

        Raises:
            InvalidArgument: a value is out of its range.
            TopicExists: the topic has another retention policy.
            StoreFull: the disk is full.
        """
        topic, retention = _checked(request.topic), request.retention
        if retention not in RETENTIONS:
            raise InvalidArgument(
                f"retention {retention!r} is unknown; use one of {', '.join(RETENTIONS)}"
            )
        if not 0 <= request.queues <= QUEUES_PER_TOPIC_MAX:
            raise InvalidArgument(
                f"a topic has 1 to {QUEUES_PER_TOPIC_MAX} queues (0 asks for the default), not"
                f" {request.queues}"
            )
        kept = self._topics.get(topic)
        if kept and kept.retention != retention:
            raise TopicExists(
                f"topic {topic!r} exists with retention {kept.retention!r}, which cannot change;"
                " use another name"
            )
        queues = request.queues or (kept.queues if kept else self._default_queues)
        if kept is None or queues > kept.queues:
            self._change({topic: KeptTopic(queues, retention)})
        now = self._topics[topic]
        return TopicDescription(topic, now.queues, now.retention)

    def _change(self, changed: dict[str, KeptTopic]) -> None:
        topics = self._topics | changed
        queues = sum(kept.queues for kept in topics.values())
        if queues > QUEUES_MAX:
            raise InvalidArgument(
                f"a broker has at most {QUEUES_MAX} queues over all topics; this would make"
                f" {queues}: use fewer queues per topic, or another broker"
            )
        try:
            self._file.write(KeptTopics(topics))
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            raise StoreFull(
                f"the disk of {self._file.path} is full; free some space, then create the topic"
                " again"
            ) from error
        self._topics = topics
        _log.info("topics changed", changed=sorted(changed), topics=len(topics), queues=queues)


def _checked(topic: str) -> str:
    try:
        return check_topic(topic)
    except ValueError as error:
        raise InvalidArgument(str(error)) from error


def _not_found(topic: str) -> TopicNotFound:
    return TopicNotFound(f"there is no topic {topic!r}; create it first, or correct the name")

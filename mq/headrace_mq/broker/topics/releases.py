"""
Below which offset the messages of topics kept forever may go; durable.

    a topic kept forever     nothing goes, unless its messages were released
    released messages        go with their segment, once all topics have released what is in it

A topic that is deleted and made again under its name has another identity, and has released nothing.

Used by the handler of RELEASE_MESSAGES and by the deletion of segments; kept in a `files.metadata_file`.
Without the file nothing more goes, which is no harm.
"""

import errno
from collections.abc import Callable, Mapping

import msgspec

from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.files.metadata_file import MetadataFile
from headrace_mq.errors import StoreFull
from headrace_mq.message import QueueRef

__all__ = ["KeptRelease", "KeptReleases", "Releases"]

_log = get_logger(__name__)


class KeptRelease(msgspec.Struct, frozen=True):
    """The released messages of a topic: number of the queue -> the offset behind them."""

    identity: str
    before: dict[int, int]


class KeptReleases(msgspec.Struct, frozen=True):
    """The content of `releases.json`, by topic."""

    topics: dict[str, KeptRelease] = {}


class Releases:
    """What may go of the topics kept forever.

    Args:
        file: where it is kept.
    """

    def __init__(self, file: MetadataFile[KeptReleases]) -> None:
        self._file = file
        self._topics: dict[str, KeptRelease] = {}

    def load(self, identities: Mapping[str, str], end_of: Callable[[QueueRef], int]) -> None:
        """Reads the file.

        What is said of an earlier topic of a name is dropped. An offset beyond a queue's end becomes the
        end: a store that lost its tail gives these offsets to other messages.

        Args:
            identities: of the topics that exist, by name.
            end_of: returns the next readable offset of a queue.

        Raises:
            DataCorrupt: the file is damaged.
            FormatTooNew: a newer version wrote the file.
        """
        kept = self._file.read() or KeptReleases()
        self._topics = {
            topic: KeptRelease(
                release.identity,
                {
                    number: min(before, end_of(QueueRef(topic, number)))
                    for number, before in release.before.items()
                },
            )
            for topic, release in kept.topics.items()
            if identities.get(topic) == release.identity
        }

    def before(self, queue: QueueRef, identity: str) -> int:
        """Returns the offset below which messages may go; 0: none may.

        Args:
            queue: which one.
            identity: of its topic now.
        """
        kept = self._topics.get(queue.topic)
        if kept is None or kept.identity != identity:
            return 0
        return kept.before.get(queue.queue_id, 0)

    def release(self, topic: str, identity: str, before: Mapping[int, int]) -> None:
        """Lets messages go; durable on return. Lower offsets than earlier ones change nothing.

        Args:
            topic: its name.
            identity: of the topic.
            before: by number of the queue.

        Raises:
            StoreFull: the disk is full; nothing was changed.
        """
        known = self._topics.get(topic)
        marks = dict(known.before) if known is not None and known.identity == identity else {}
        for number, offset in before.items():
            marks[number] = max(offset, marks.get(number, 0))
        topics = {**self._topics, topic: KeptRelease(identity, marks)}
        try:
            self._file.write(KeptReleases(topics))
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            raise StoreFull(
                f"the disk of {self._file.path} is full and nothing was released; free some space,"
                " then try again"
            ) from error
        self._topics = topics
        _log.info("messages were released", topic=topic, before=dict(sorted(marks.items())))

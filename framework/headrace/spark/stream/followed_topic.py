"""
The event topic as a stream of micro-batches, from any queue that has a `TopicReader`.

    plan: what the queues hold ─▶ one partition for each queue and range ─▶ read on an executor

The data source `headrace` does the same for the built-in queue alone. This one has another name, so that
registering it changes neither a setting of a session nor what `headrace` means there.

Used by `continuous` and `events`.
"""

from contextlib import AbstractContextManager

from headrace.spark.archive import check_whole
from headrace.transports.topic_reader import TopicReader, check_address, open_topic_reader
from headrace_mq.spark.source import UnregisteredDataSource
from headrace_mq.spark.stream import TopicsStream

__all__ = ["FollowedTopic", "WholeTopic"]


class _Stream(TopicsStream):
    @staticmethod
    def connect(address: str, timeout_ms: int) -> AbstractContextManager[TopicReader]:
        """Opens a connection, on the driver and on executors."""
        return open_topic_reader(address, timeout_ms)


class _WholeStream(_Stream):
    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802 - PySpark's spelling
        """Returns the start of a query without a checkpoint.

        Raises:
            ProjectionError: the topic's first messages were trimmed.
        """
        check_whole(self._held())
        return super().initialOffset()


class FollowedTopic(UnregisteredDataSource):
    """A topic from where a query's options or its checkpoint say."""

    stream = _Stream

    @classmethod
    def name(cls) -> str:
        """Returns the name for `format(…)`."""
        return "headrace_followed"

    @staticmethod
    def check_address(address: str) -> None:
        """Raises ValueError for an address that cannot be used."""
        check_address(address)


class WholeTopic(FollowedTopic):
    """A topic from the first message there ever was; a checkpoint goes on where it ends."""

    stream = _WholeStream

    @classmethod
    def name(cls) -> str:
        """Returns the name for `format(…)`."""
        return "headrace_whole"

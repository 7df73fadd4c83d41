"""
Administration of one broker: topics, ranges, the offsets of groups.

Sits between: the command line and programs that look after a broker, and its administrative
requests. Knows the wire, nothing of the broker's insides.
"""

import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TypeVar

from headrace_mq._net.link import Link
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import (
    Body,
    BrokerDescription,
    CommitOffsets,
    CommittedOffset,
    CreateTopic,
    DescribeTopics,
    GetOffsets,
    OffsetsAnswer,
    QueueRange,
    QueueRanges,
    QueueRangesAnswer,
    TopicDescription,
    TopicsAnswer,
    encode,
)
from headrace_mq.protocol.codes import RequestCode

__all__ = ["AdminClient"]

# First and longest pause between two connection attempts.
RECONNECT_MS = (50, 1_000)

B = TypeVar("B", bound=Body)


class AdminClient:
    """A connection for administration; use it in an `async with` block.

    Every call raises `ConnectionLost` or `RequestTimeout` when the broker does not answer, and the
    `BrokerError` it answered with.

    Args:
        address: the broker's `host:port`.
        timeout_ms: bound of connecting and of each call.
    """

    def __init__(self, address: str, *, timeout_ms: int = 10_000) -> None:
        self._timeout_ms = timeout_ms
        self._link = Link(address, client_id=str(uuid.uuid4()), reconnect_ms=RECONNECT_MS)

    async def start(self) -> None:
        """Connects; raises ConnectionLost, saying what to check, when no broker answers."""
        await self._link.start(self._timeout_ms)

    async def aclose(self) -> None:
        """Closes the connection."""
        await self._link.aclose()

    async def __aenter__(self) -> "AdminClient":
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def create_topic(
        self, topic: str, queues: int = 0, retention: str = "transient"
    ) -> TopicDescription:
        """Creates a topic, or confirms that it exists with at least these settings.

        Args:
            topic: its name.
            queues: how many; 0 for the broker's choice.
            retention: "forever" or "transient" (deleted by age).

        Raises:
            TopicExists: it exists with other settings.
            InvalidArgument: a value is out of its range.
        """
        asked = CreateTopic(topic=topic, queues=queues, retention=retention)
        answer = await self._ask(TopicsAnswer, RequestCode.CREATE_TOPIC, asked)
        return answer.topics[0]

    async def topics(self) -> list[TopicDescription]:
        """All topics, by name."""
        answer = await self._ask(TopicsAnswer, RequestCode.DESCRIBE_TOPICS, DescribeTopics())
        return sorted(answer.topics, key=lambda topic: topic.topic)

    async def ranges(self, topics: Sequence[str]) -> list[QueueRange]:
        """The lowest offset held and the next readable one of every queue of the topics."""
        asked = QueueRanges(topics=list(topics))
        answer = await self._ask(QueueRangesAnswer, RequestCode.QUEUE_RANGES, asked)
        return answer.ranges

    async def offsets(self, group: str, topics: Sequence[str]) -> dict[QueueRef, int]:
        """The next offset a group will read of every queue of the topics; -1: never committed."""
        asked = GetOffsets(group=group, topics=list(topics))
        answer = await self._ask(OffsetsAnswer, RequestCode.GET_OFFSETS, asked)
        return {QueueRef(item.topic, item.queue_id): item.offset for item in answer.offsets}

    async def set_offsets(self, group: str, offsets: Mapping[QueueRef, int]) -> None:
        """Moves a group to other offsets, forth or back; its consumers must be stopped.

        Raises:
            InvalidArgument: the group has members at work, which would overwrite the offsets.
            OffsetOutOfRange: a queue does not reach that far; nothing was changed.
        """
        asked = CommitOffsets(
            group=group,
            member="",
            generation=0,
            offsets=[CommittedOffset(*queue, offset) for queue, offset in offsets.items()],
        )
        body = encode(asked)
        await self._link.request(RequestCode.COMMIT_OFFSETS, body, timeout_ms=self._timeout_ms)

    async def describe(self) -> BrokerDescription:
        """The broker itself: address, epoch, connections, whether it still accepts messages."""
        return await self._ask(BrokerDescription, RequestCode.DESCRIBE_BROKER)

    async def _ask(self, kind: type[B], code: RequestCode, body: Body | None = None) -> B:
        return await self._link.ask(kind, code, body, timeout_ms=self._timeout_ms)

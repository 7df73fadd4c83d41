"""
Which life of a topic a consumer reads: one that was made anew has other messages at the same offsets.

A connection that comes back may lead to a broker whose directory was lost, or where the topic was
deleted and made again. What a consumer knew of its queues is void then.

Sits between: `consumer.consumer`, before it looks up where to go on, and the broker's QUEUE_RANGES.
"""

from collections.abc import Sequence

from headrace_mq._net.link import Link
from headrace_mq._runtime.log import get_logger
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import QueueRanges, QueueRangesAnswer
from headrace_mq.protocol.codes import RequestCode

__all__ = ["Lives"]

_log = get_logger(__name__)


class Lives:
    """Remembers the identity of each topic.

    Args:
        link: the connection.
        timeout_ms: of one request.
    """

    def __init__(self, link: Link, *, timeout_ms: int) -> None:
        self._link = link
        self._timeout_ms = timeout_ms
        self._known: dict[str, str] = {}

    async def ended(self, queues: Sequence[QueueRef]) -> frozenset[str]:
        """Returns the topics of queues that are others than when it was asked last.

        Raises:
            BrokerError, ConnectionLost, RequestTimeout: the broker could not be asked.
        """
        topics = sorted({queue.topic for queue in queues})
        answer = await self._link.ask(
            QueueRangesAnswer,
            RequestCode.QUEUE_RANGES,
            QueueRanges(topics=topics),
            timeout_ms=self._timeout_ms,
        )
        now = {each.topic: each.identity for each in answer.identities}
        ended = {
            topic for topic, identity in now.items() if self._known.get(topic, identity) != identity
        }
        for topic in sorted(ended):
            _log.warning(
                "the topic is another one; its queues are read from their first message",
                topic=topic,
            )
        self._known |= now
        return frozenset(ended)

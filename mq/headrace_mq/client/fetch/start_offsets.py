"""
Finds where newly assigned queues begin.

The group's committed offsets decide, or those the application keeps itself (`load_offsets`); a
queue without one begins where the settings say, except that queues which appeared after the
consumer looked first always begin at their first offset: all they hold is new. If brokers have lost messages,
an offset that the application keeps is moved back to where other messages stand now.

Used by `Consumer` and `PullConsumer`; sends GET_OFFSETS, QUEUE_RANGES and OFFSETS_AT.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import NamedTuple, TypeVar

from headrace_mq._net.link import Link
from headrace_mq._runtime.log import get_logger
from headrace_mq.client.retry_headers import RETRY_PREFIX
from headrace_mq.client.spread.spread_link import SpreadLink
from headrace_mq.errors import QueueNotFound
from headrace_mq.message import QueueRef
from headrace_mq.protocol.administration import OffsetsAt
from headrace_mq.protocol.bodies import (
    GetOffsets,
    KnownEpoch,
    OffsetsAnswer,
    QueueRange,
    QueueRanges,
    QueueRangesAnswer,
    decode,
    encode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.keys import topics_in_parts
from headrace_mq.settings import ConsumerSettings

__all__ = ["KeptOffset", "OffsetLoader", "Start", "TopicIdentities", "find_starts", "offsets_at"]

T = TypeVar("T")

_log = get_logger(__name__)


class KeptOffset(NamedTuple):
    """An offset that an application keeps, with the epoch in which it read the messages before it.

    Attributes:
        offset: the next one to read.
        epoch: what `Consumer.epochs` said of the queue when these messages came, not when you were done with them; 0: not known.
    """

    offset: int
    epoch: int = 0


# Given queues, returns the offset to begin with for each; queues may be left out.
OffsetLoader = Callable[[Sequence[QueueRef]], Awaitable[Mapping[QueueRef, int | KeptOffset]]]


class Start(NamedTuple):
    """Where a queue begins, whether the group had an offset for it, and what the broker holds."""

    offset: int
    known: bool
    committed: int


async def find_starts(
    link: Link,
    queues: Sequence[QueueRef],
    *,
    group: str,
    settings: ConsumerSettings,
    first_seen: frozenset[QueueRef],
    load_offsets: OffsetLoader | None,
    changed: Mapping[QueueRef, int] | None = None,
) -> dict[QueueRef, Start]:
    """Looks up where queues begin.

    Args:
        link: the connection.
        queues: queues of existing topics.
        group: whose committed offsets are asked for.
        settings: say where a queue without an offset begins.
        first_seen: the queues that were there when the consumer first looked.
        load_offsets: the application's own offsets instead of the broker's.
        changed: by queue, the offset from which on messages have changed since the consumer began to read it; it counts for
            offsets without an epoch.

    Raises:
        BrokerError, ConnectionLost, RequestTimeout: the broker could not be asked.
        Exception: what `load_offsets` raises.
    """
    if load_offsets is None:
        told = await _committed(link, queues, group, settings)
        # One that nothing is said of has no offset -1: the group that has it is away.
        kept: Mapping[QueueRef, int] = {queue: _known(link, told, queue) for queue in queues}
    else:
        kept = await _unchanged(link, await load_offsets(queues), changed or {}, settings)
    starts = {
        queue: Start(kept[queue], known=True, committed=kept[queue])
        for queue in queues
        if kept.get(queue, -1) >= 0
    }
    missing = [queue for queue in queues if queue not in starts]
    if missing:
        ranges = await _ranges(link, missing, settings)
        for queue in missing:
            held = _known(link, ranges, queue)
            first, end = held.first, held.end
            late = queue not in first_seen
            # What stands in a retry topic was accepted once, whenever the group began.
            ours = queue.topic.startswith(RETRY_PREFIX)
            begin = first if late or ours or settings.start == "earliest" else end
            starts[queue] = Start(begin, known=False, committed=-1)
        if isinstance(settings.start, int):
            seen = [
                queue
                for queue in missing
                if queue in first_seen and not queue.topic.startswith(RETRY_PREFIX)
            ]
            found = await offsets_at(link, seen, settings.start, settings=settings)
            for queue, offset in found.items():
                starts[queue] = Start(offset, known=False, committed=-1)
    return starts


async def offsets_at(
    link: Link, queues: Collection[QueueRef], time_ms: int, *, settings: ConsumerSettings
) -> dict[QueueRef, int]:
    """Looks up the first offsets stored at a time (milliseconds since 1970 UTC) or later.

    A queue whose records are all older has its next offset.

    Raises:
        BrokerError, ConnectionLost, RequestTimeout: the broker could not be asked.
    """
    if not queues:
        return {}
    found: dict[QueueRef, int] = {}
    for topics in topics_in_parts(_topics(queues)):
        body = encode(OffsetsAt(topics=topics, time_ms=time_ms))
        answer = await link.request(
            RequestCode.OFFSETS_AT, body, timeout_ms=settings.request_timeout_ms
        )
        found |= _offsets(answer)
    return {queue: _known(link, found, queue) for queue in queues}


def _known(link: Link, answer: Mapping[QueueRef, T], queue: QueueRef) -> T:
    """What the broker said of a queue. Raises QueueNotFound: nothing; NotLeader: the group that has it is away."""
    if queue not in answer:
        if isinstance(link, SpreadLink):
            link.require_served(queue)
        count = sum(known.topic == queue.topic for known in answer)
        raise QueueNotFound(
            f"topic {queue.topic!r} has no queue {queue.queue_id}; its queues count from 0 to"
            f" {count - 1}"
        )
    return answer[queue]


def _topics(queues: Collection[QueueRef]) -> list[str]:
    return sorted({queue.topic for queue in queues})


async def _committed(
    link: Link, queues: Sequence[QueueRef], group: str, settings: ConsumerSettings
) -> dict[QueueRef, int]:
    found: dict[QueueRef, int] = {}
    for topics in topics_in_parts(_topics(queues)):
        body = encode(GetOffsets(group=group, topics=topics))
        answer = await link.request(
            RequestCode.GET_OFFSETS, body, timeout_ms=settings.request_timeout_ms
        )
        found |= _offsets(answer)
    return found


def _offsets(answer: memoryview) -> dict[QueueRef, int]:
    offsets = decode(OffsetsAnswer, answer).offsets
    return {QueueRef(item.topic, item.queue_id): item.offset for item in offsets}


async def _ranges(
    link: Link,
    queues: Collection[QueueRef],
    settings: ConsumerSettings,
    epochs: Mapping[QueueRef, int] | None = None,
) -> dict[QueueRef, QueueRange]:
    found: dict[QueueRef, QueueRange] = {}
    for topics in topics_in_parts(_topics(queues)):
        known = [KnownEpoch(*q, epoch) for q, epoch in (epochs or {}).items() if q.topic in topics]
        body = encode(QueueRanges(topics=topics, known=known))
        answer = await link.request(
            RequestCode.QUEUE_RANGES, body, timeout_ms=settings.request_timeout_ms
        )
        for item in decode(QueueRangesAnswer, answer).ranges:
            found[QueueRef(item.topic, item.queue_id)] = item
    return found


async def _unchanged(
    link: Link,
    loaded: Mapping[QueueRef, int | KeptOffset],
    changed: Mapping[QueueRef, int],
    settings: ConsumerSettings,
) -> dict[QueueRef, int]:
    """Returns an application's own offsets; those in front of which messages have changed are moved back to there."""
    kept = {
        queue: KeptOffset(one) if isinstance(one, int) else one for queue, one in loaded.items()
    }
    epochs = {queue: one.epoch for queue, one in kept.items() if one.epoch > 0}
    held = await _ranges(link, epochs, settings, epochs) if epochs else {}
    found: dict[QueueRef, int] = {}
    for queue, (offset, epoch) in kept.items():
        # Who names an epoch may know the changed messages already; the broker tells what has changed since then.
        place = offset if epoch else min(offset, changed.get(queue, offset))
        found[queue] = held[queue].kept(place) if queue in held else place
        if found[queue] < offset:
            _log.error(
                "brokers lost messages, and others have their offsets; the queue is read again from there",
                topic=queue.topic, queue_id=queue.queue_id, kept=offset, offset=found[queue],
            )  # fmt: skip
    return found


class TopicIdentities:
    """Remembers the identity of each topic: one that was made again has other messages.

    A connection that comes back may lead to a broker whose directory was lost, or where the topic was
    deleted and made again. Or the broker's group lost messages meanwhile, and others have their offsets. What a consumer
    knew of its queues is void then.

    Args:
        link: the connection.
        timeout_ms: of one request.

    Attributes:
        epochs: by queue, that of its brokers when it was asked for last; keep it next to offsets of your own.
        changed: by queue, the lowest offset at which another message stands than the consumer knows; what moves the
            queue back takes it out.
        told: the queues that the last answer has; those of a broker group that is away are not among them.
    """

    def __init__(self, link: Link, *, timeout_ms: int) -> None:
        self._link = link
        self._timeout_ms = timeout_ms
        self._known: dict[str, str] = {}
        self._epochs: dict[str, int] = {}
        self.epochs: dict[QueueRef, int] = {}
        self.changed: dict[QueueRef, int] = {}
        self.told: frozenset[QueueRef] = frozenset()

    async def ended(self, queues: Sequence[QueueRef]) -> frozenset[str]:
        """Returns the topics of queues whose messages may be others than when it was asked last.

        Raises:
            BrokerError, ConnectionLost, RequestTimeout: the broker could not be asked.
        """
        topics = sorted({queue.topic for queue in queues})
        known = [KnownEpoch(*queue, self.epochs[queue]) for queue in queues if queue in self.epochs]
        answer = await self._link.ask(
            QueueRangesAnswer,
            RequestCode.QUEUE_RANGES,
            QueueRanges(topics=topics, known=known),
            timeout_ms=self._timeout_ms,
        )
        self._hear(answer.ranges, frozenset(queues))
        now = {each.topic: each.identity for each in answer.identities}
        ended = {
            topic for topic, identity in now.items() if self._known.get(topic, identity) != identity
        }
        for topic in sorted(ended):
            _log.warning(
                "the topic was recreated; its queues are read from their first message",
                topic=topic,
            )
        # Of each topic, because the next question may be about others.
        lost = [topic for topic in topics if 0 < self._epochs.get(topic, 0) < answer.lossy]
        if lost:
            _log.error(
                "the group of brokers lost messages; its queues are read from the committed offsets on, and from where messages"
                " have changed if the application keeps offsets itself", epoch=answer.lossy, topics=lost,
            )  # fmt: skip
            ended |= set(lost)
        for topic in topics:
            self._epochs[topic] = max(self._epochs.get(topic, 0), answer.epoch)
        self._known |= now
        return frozenset(ended)

    def _hear(self, ranges: Sequence[QueueRange], queues: frozenset[QueueRef]) -> None:
        self.told = frozenset(QueueRef(one.topic, one.queue_id) for one in ranges)
        for one in ranges:
            queue = QueueRef(one.topic, one.queue_id)
            # What is known of the others is as old as before.
            if queue not in queues or not one.epoch:
                continue
            if one.changed_from >= 0:
                self.changed[queue] = one.kept(self.changed.get(queue, one.end))
            self.epochs[queue] = one.epoch

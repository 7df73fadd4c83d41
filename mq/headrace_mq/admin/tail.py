"""
Reads the end of a topic: its last messages, and new ones as they arrive.

A part of `AdminClient`; sends FETCH. It is no consumer: it has no group and commits nothing.
"""

from collections.abc import AsyncIterator, Collection, Mapping
from typing import NamedTuple

from headrace_mq.admin.connection import AdminConnection
from headrace_mq.admin.readable import readable_records
from headrace_mq.errors import QueueNotFound, ResponseCode, error_for
from headrace_mq.message import QUEUES_PER_TOPIC_MAX, QueueRef, Record
from headrace_mq.protocol.batch import check_head, read_header, split_batches
from headrace_mq.protocol.bodies import (
    Fetch,
    FetchedQueue,
    FetchFrom,
    QueueRanges,
    QueueRangesAnswer,
    decode_fetch_answer,
    encode,
)
from headrace_mq.protocol.codes import RequestCode

__all__ = ["TAIL_MAX", "MessageTail", "TopicTail"]

# Messages of one `tail`, over all queues: that many of each queue are in memory at once.
TAIL_MAX = 1_000
# How long the broker holds a request that finds nothing: far below every call's timeout.
_FOLLOW_WAIT_MS = 1_000
_ANSWER_BYTES_MAX = 1 << 20


class TopicTail(NamedTuple):
    """The last messages, oldest first, and where each queue goes on behind them."""

    records: list[Record]
    behind: dict[QueueRef, int]


class MessageTail(AdminConnection):
    """The calls that look at the end of topics."""

    async def tail(self, topic: str, count: int, queues: Collection[int] = ()) -> TopicTail:
        """The last messages of a topic by the time they were stored.

        Args:
            topic: its name.
            count: how many at most, 0 to TAIL_MAX; 0 only tells where the queues end.
            queues: their numbers; none means all.

        Raises:
            ValueError: `count` is out of its range.
            TopicNotFound, QueueNotFound: the topic or a queue does not exist.
            QueueFrozen: a queue is frozen for reading.
        """
        if not 0 <= count <= TAIL_MAX:
            raise ValueError(f"count is 0 to {TAIL_MAX}, not {count}")
        answer = await self._ask(QueueRangesAnswer, RequestCode.QUEUE_RANGES, QueueRanges([topic]))
        ranges = {QueueRef(one.topic, one.queue_id): (one.first, one.end) for one in answer.ranges}
        chosen = [QueueRef(topic, number) for number in queues] or list(ranges)
        for queue in chosen:
            if queue not in ranges:
                raise QueueNotFound(
                    f"topic {topic!r} has queues 0 to {len(ranges) - 1}, not {queue.queue_id}"
                )
        behind = {queue: ranges[queue][1] for queue in chosen}
        found: list[Record] = []
        for queue in chosen:
            first, end = ranges[queue]
            last = await self._between(queue, max(first, end - count), end)
            # Of those before it, none can be among the last.
            found = sorted(found + last, key=_stored)[-count:] if count else []
        return TopicTail(found, behind)

    async def read(self, queue: QueueRef, offset: int, count: int) -> list[Record]:
        """The messages of a queue from an offset on, or from the first one that is held.

        Args:
            queue: which.
            offset: where to begin.
            count: how many offsets at most, 1 to TAIL_MAX; a compaction may have taken some of their messages.

        Raises:
            ValueError: `count` is out of its range.
            TopicNotFound, QueueNotFound: the topic or the queue does not exist.
            QueueFrozen: the queue is frozen for reading.
        """
        if not 1 <= count <= TAIL_MAX:
            raise ValueError(f"count is 1 to {TAIL_MAX}, not {count}")
        answer = await self._ask(
            QueueRangesAnswer, RequestCode.QUEUE_RANGES, QueueRanges([queue.topic])
        )
        held = {one.queue_id: one for one in answer.ranges}
        if queue.queue_id not in held:
            raise QueueNotFound(
                f"topic {queue.topic!r} has queues 0 to {len(held) - 1}, not {queue.queue_id}"
            )
        one = held[queue.queue_id]
        start = max(one.first, offset)
        return await self._between(queue, start, min(one.end, start + count))

    async def page(self, queue: QueueRef, offset: int) -> tuple[list[Record], int]:
        """What one answer holds of a queue from an offset on, about a megabyte, and the offset behind it.

        Args:
            queue: which.
            offset: where to begin; below the first one that is held, it goes on there.

        Raises:
            TopicNotFound, QueueNotFound: the topic or the queue does not exist.
            QueueFrozen: the queue is frozen for reading.
        """
        places = {queue: offset}
        return await self._fetch(places, 0), places[queue]

    async def follow(self, behind: Mapping[QueueRef, int]) -> AsyncIterator[Record]:
        """Yields what is stored from these offsets on, as it comes, without an end.

        Raises:
            QueueNotFound: a queue was deleted.
            QueueFrozen: a queue is frozen for reading.
            ConnectionLost, RequestTimeout: the broker is gone.
        """
        places = dict(behind)
        while True:
            for record in await self._fetch(places, _FOLLOW_WAIT_MS):
                yield record

    async def _between(self, queue: QueueRef, start: int, end: int) -> list[Record]:
        places, found = {queue: start}, list[Record]()
        while places[queue] < end:
            at = places[queue]
            found += [one for one in await self._fetch(places, 0) if one.offset < end]
            # What was deleted or damaged meanwhile is no reason to ask for ever.
            if places[queue] == at:
                break
        return found

    async def _fetch(self, places: dict[QueueRef, int], wait_ms: int) -> list[Record]:
        """Reads on at the places of at most as many queues as a topic has, and moves them on."""
        assert len(places) <= QUEUES_PER_TOPIC_MAX
        asked = Fetch(
            [FetchFrom(*queue, offset) for queue, offset in places.items()],
            bytes_max=_ANSWER_BYTES_MAX,
            wait_ms=wait_ms,
            heads=True,
        )
        data = await self._link.request(
            RequestCode.FETCH, encode(asked), timeout_ms=self._timeout_ms + wait_ms
        )
        answer, batches = decode_fetch_answer(data)
        for state in answer.queues:
            _settle(places, state)
        found: list[Record] = []
        for batch in split_batches(batches):
            check_head(batch)
            header = read_header(batch)
            place = places[header.queue]
            found += [record for record in readable_records(batch) if record.offset >= place]
            # The last of its offsets may be one that a compaction took the message from.
            places[header.queue] = max(place, header.next_offset)
        return found


def _settle(places: dict[QueueRef, int], state: FetchedQueue) -> None:
    """Acts on the state of a queue: goes on behind what was deleted; raises what hinders."""
    queue = QueueRef(state.topic, state.queue_id)
    if state.code == ResponseCode.OFFSET_OUT_OF_RANGE:
        places[queue] = state.first if places[queue] < state.first else state.end
    elif state.code != ResponseCode.OK:
        raise error_for(state.code, state.sentence)


def _stored(record: Record) -> tuple[int, QueueRef, int]:
    return record.stored_at_ms, record.queue, record.offset

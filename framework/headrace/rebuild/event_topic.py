"""
The event topic, read by offsets instead of as a member of a group; what is foreign is passed over.

Used by a rebuild; reads from one broker. It knows nothing of projections.
"""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from itertools import islice
from typing import Final, NamedTuple

from headrace._runtime.backoff import Backoff
from headrace._runtime.log import get_logger
from headrace.domain.stream_body import MALFORMED, aggregate_of, body_reader
from headrace.errors import ProjectionError
from headrace.events.belief import Belief
from headrace.transports.base import DAMAGED, Incoming, QueueId, TopicLineage
from headrace.transports.topic_reader import open_topic_reader
from headrace_mq.errors import (
    BrokerStopping,
    ConnectionLost,
    CorruptBatch,
    DataCorrupt,
    MessageQueueError,
    NotLeader,
    OffsetOutOfRange,
    RequestTimeout,
    TopicNotFound,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import BatchHeader, Columns
from headrace_mq.protocol.bodies import QueueRange

__all__ = ["EventTopic", "Portion", "ReadBatches", "versions_before"]

# Yields a broker's batches of a queue between two offsets, each with its range that lies inside.
ReadBatches = Callable[[str, QueueRef, int, int], Iterator[tuple[BatchHeader, Columns, int, int]]]


_log = get_logger(__name__)

# Questions to a broker that is away, with the pauses between them: about a minute, in which another one takes over.
_ATTEMPTS_MAX: Final = 20
# What a question fails with meanwhile.
_PASSING: Final = (BrokerStopping, ConnectionLost, NotLeader, RequestTimeout)

# Which version of what a message holds.
_read_place = body_reader("aggregate_id", "version")


class Portion(NamedTuple):
    """The next messages of a queue: where each stands, and what it holds."""

    offsets: Sequence[int]
    bodies: Sequence[bytes]

    def pieces(self, size: int) -> "Iterator[Portion]":
        """Yields it again in pieces of a size, the last one smaller."""
        for place in range(0, len(self.bodies), size):
            end = place + size
            yield Portion(self.offsets[place:end], self.bodies[place:end])


class EventTopic:
    """Reads ranges of a topic's queues.

    Args:
        broker: `host:port`.
        topic: its name.
        messages_max: how many messages `read` yields at a time.
        read: reads batches; one connection for each range by default.
        belief: judges what is read; None: all of it is believed.
    """

    def __init__(
        self,
        broker: str,
        topic: str,
        *,
        messages_max: int,
        read: ReadBatches | None = None,
        belief: Belief | None = None,
    ) -> None:
        self._belief = belief
        self._broker = broker
        self._topic = topic
        self._messages_max = messages_max
        self._read = read or _read
        self._starts: dict[QueueId, int] | None = None

    async def ranges(self) -> dict[QueueId, tuple[int, int]]:
        """Returns the first offset held and the next readable one of every queue.

        Raises:
            ProjectionError: the broker is away, or has no such topic.
        """

        def ask() -> dict[QueueId, QueueRange]:
            with open_topic_reader(self._broker) as reader:
                found = reader.ranges([self._topic])
            return {(each.topic, each.queue_id): each for each in found}

        try:
            held = await asyncio.to_thread(ask)
        except TopicNotFound as error:
            raise ProjectionError(
                f"topic {self._topic}: {error}; the event store can be folded instead, with `headrace"
                " projection rebuild NAME --from store`"
            ) from error
        except MessageQueueError as error:
            raise ProjectionError(f"topic {self._topic}: {error}") from error
        # A broker that does not tell the start loses nothing.
        self._starts = {
            queue: each.first if each.start < 0 else each.start for queue, each in held.items()
        }
        return {queue: (each.first, each.end) for queue, each in held.items()}

    async def starts(self) -> Mapping[QueueId, int]:
        """Returns the offset of each queue's first message ever; what lies below was never lost.

        It is above 0 if the topic was made again under its name.

        Raises:
            ProjectionError: the broker is away, or has no such topic.
        """
        if self._starts is None:
            await self.ranges()
        return self._starts or {}

    async def lineage(self, known: Mapping[int, int], *, patient: bool) -> TopicLineage:
        """Returns the epochs of the queues' brokers, and where messages have changed since known ones.

        Of a topic that is not there yet it returns none.

        Args:
            known: epochs of queues, by number.
            patient: while a broker is away, because another one takes over, ask again.

        Raises:
            ProjectionError: the broker is away.
        """
        epochs = {QueueRef(self._topic, number): epoch for number, epoch in known.items()}

        def ask() -> list[QueueRange]:
            with open_topic_reader(self._broker) as reader:
                return reader.ranges([self._topic], epochs)

        backoff, attempts_max = Backoff(ms_min=100, ms_max=4_000), _ATTEMPTS_MAX if patient else 1
        for attempt in range(1, attempts_max + 1):
            try:
                return _lineage_of(await asyncio.to_thread(ask))
            except TopicNotFound:
                return _lineage_of([])
            except MessageQueueError as error:
                if attempt == attempts_max or not isinstance(error, _PASSING):
                    raise ProjectionError(f"topic {self._topic}: {error}") from error
                _log.warning("will ask the broker again", attempt=attempt, error=str(error))
            await backoff.pause(attempt)
        raise AssertionError("the last attempt returns or raises")

    async def ends(self) -> dict[QueueId, int]:
        """Returns the next readable offset of every queue; none where there is no such topic yet.

        Raises:
            ProjectionError: the broker is away.
        """
        try:
            return {queue: end for queue, (_, end) in (await self.ranges()).items()}
        except ProjectionError as error:
            if isinstance(error.__cause__, TopicNotFound):
                return {}
            raise

    async def read(self, queue: QueueId, start: int, end: int) -> AsyncIterator[Sequence[Incoming]]:
        """Yields the messages from one offset up to another, exclusive, some at a time.

        A queue has none before its start.

        Raises:
            ProjectionError: the broker is away, or does not hold all of them.
        """
        start = await self._begin(queue, start, end)
        messages = self._messages(queue, start, end)
        try:
            while some := await asyncio.to_thread(
                lambda: list(islice(messages, self._messages_max))
            ):
                yield some if self._belief is None else await self._belief.sift(some)
        except MessageQueueError as error:
            raise _unreadable(queue, (start, end), error) from error
        finally:
            await asyncio.to_thread(messages.close)

    async def offsets_at(self, time_ms: int) -> dict[QueueId, int]:
        """Returns per queue the first offset that was stored at a time or later.

        Args:
            time_ms: milliseconds since 1970 UTC, by the broker's clock.

        Raises:
            ProjectionError: the broker is away, or has no such topic.
        """

        def ask() -> dict[QueueId, int]:
            with open_topic_reader(self._broker) as reader:
                found = reader.offsets_at([self._topic], time_ms)
            return {(queue.topic, queue.queue_id): offset for queue, offset in found.items()}

        try:
            return await asyncio.to_thread(ask)
        except MessageQueueError as error:
            raise ProjectionError(f"topic {self._topic}: {error}") from error

    async def bodies(
        self, queue: QueueId, start: int, end: int, *, keys: frozenset[str] | None = None
    ) -> AsyncGenerator[Portion]:
        """Yields what `read` yields, as columns.

        The next ones are read when they are asked for, and not while these are folded: of two threads
        that want the interpreter, the one that reads waits up to 5 ms for it after each of its system
        calls, and was late. The broker sends them meanwhile, as far as the connection takes them.

        Args:
            queue: which queue.
            start: the first offset.
            end: the offset behind the last one.
            keys: of the messages that are wanted; None: all of them.

        Raises:
            ProjectionError: as `read`.
        """
        start = await self._begin(queue, start, end)
        portions = self._portions(queue, start, end, keys)

        def read_on() -> asyncio.Future[Portion | None]:
            return asyncio.ensure_future(asyncio.to_thread(next, portions, None))

        following = read_on()
        try:
            # A caller that is cancelled here must not leave the thread behind with the generator.
            while portion := await asyncio.shield(following):
                yield await self._believed(queue, portion)
                following = read_on()
        except MessageQueueError as error:
            raise _unreadable(queue, (start, end), error) from error
        finally:
            await asyncio.gather(following, return_exceptions=True)
            await asyncio.to_thread(portions.close)

    async def _begin(self, queue: QueueId, start: int, end: int) -> int:
        return min(max(start, (await self.starts()).get(queue, 0)), max(start, end))

    async def _believed(self, queue: QueueId, portion: Portion) -> Portion:
        """Puts what every reader passes over in place of messages that are not believed."""
        if self._belief is None or not self._belief.doubts(portion.bodies):
            return portion
        bodies = list(portion.bodies)
        for place, why in (await self._belief.strangers(portion.bodies)).items():
            offset = portion.offsets[place]
            if portion.bodies[place]:
                self._belief.tell(queue, offset, aggregate_of(portion.bodies[place]) or "", why)
            bodies[place] = self._belief.passed_over(queue, offset).body
        return Portion(portion.offsets, bodies)

    def _portions(
        self, queue: QueueId, start: int, end: int, keys: frozenset[str] | None
    ) -> Generator[Portion]:
        offsets: list[int] = []
        bodies: list[bytes] = []
        for header, columns, first, last in self._read(self._broker, QueueRef(*queue), start, end):
            if keys is None and first == last:
                # Nothing can be read up to the end; without a message no reader would get there.
                offsets.append(header.base_offset + last - 1)
                bodies.append(b"")
            elif keys is None:
                offsets += range(header.base_offset + first, header.base_offset + last)
                bodies += columns.bodies[first:last]
            else:
                # A batch whose messages have no keys has no column of them.
                named = columns.keys or [""] * header.count
                found = [at for at in range(first, last) if named[at] in keys]
                offsets += [header.base_offset + at for at in found]
                bodies += [columns.bodies[at] for at in found]
            while len(bodies) >= self._messages_max:
                yield Portion(offsets[: self._messages_max], bodies[: self._messages_max])
                del offsets[: self._messages_max], bodies[: self._messages_max]
        if bodies:
            yield Portion(offsets, bodies)

    def _messages(self, queue: QueueId, start: int, end: int) -> Generator[Incoming]:
        for header, columns, first, last in self._read(self._broker, QueueRef(*queue), start, end):
            if first == last:
                passed_by = header.base_offset + last - 1
                headers = {"kind": "rejection", DAMAGED: str(passed_by)}
                yield Incoming(queue, passed_by, "", "", headers, b"")
            for index in range(first, last):
                yield Incoming(
                    queue=queue,
                    offset=header.base_offset + index,
                    key=columns.keys[index] if columns.keys else "",
                    tag=columns.tags[index] if columns.tags else "",
                    headers=columns.headers[index] if columns.headers else {},
                    body=columns.bodies[index],
                )


def _lineage_of(held: Sequence[QueueRange]) -> TopicLineage:
    return TopicLineage(
        identity="",
        ranges={one.queue_id: (one.first, one.end) for one in held},
        epochs={one.queue_id: one.epoch for one in held if one.epoch},
        changed={one.queue_id: one.changed_from for one in held if one.changed_from >= 0},
    )


def _read(
    broker: str, queue: QueueRef, start: int, end: int
) -> Iterator[tuple[BatchHeader, Columns, int, int]]:
    with open_topic_reader(broker) as reader:
        yield from reader.read(queue, start, end)


def _unreadable(
    queue: QueueId, offsets: tuple[int, int], error: MessageQueueError
) -> ProjectionError:
    topic, queue_id = queue
    if isinstance(error, OffsetOutOfRange):
        start, end = offsets
        return ProjectionError(
            f"{topic}/{queue_id} does not hold all offsets from {start} to {end - 1}: the topic was"
            " recreated, belongs to another broker, or has lost messages; build the rows from the"
            " event store instead, with `headrace projection rebuild NAME --from store`"
        )
    way_on = ""
    if isinstance(error, DataCorrupt | CorruptBatch):
        way_on = (
            "; the event store can be folded instead, with `headrace projection rebuild NAME --from"
            " store`"
        )
    return ProjectionError(f"reading {topic}/{queue_id}: {error}{way_on}")


async def versions_before(topic: EventTopic, offsets: Mapping[QueueId, int]) -> dict[str, int]:
    """Returns the last version of each aggregate before an offset of its queue.

    What the topic's belief does not vouch for does not count. Events are not looked into: one that does
    not decode lies behind the reader all the same.

    Raises:
        ProjectionError: the broker is away, there is no such queue, or it does not hold what
            lies before the offset.
    """
    ranges = await topic.ranges()
    versions: dict[str, int] = {}
    for queue, offset in offsets.items():
        first, end = ranges.get(queue, (0, -1))
        if not first <= offset <= end:
            raise ProjectionError(
                f"{queue[0]}/{queue[1]} has no offset {offset}; it holds {first} to {end}"
                if end >= 0
                else f"there is no queue {queue[0]}/{queue[1]}"
            )
        async for messages in topic.read(queue, first, offset):
            for message in messages:
                if message.headers.get("kind") == "rejection":
                    continue
                try:
                    stream = _read_place(message.body)
                except MALFORMED:
                    # Live readers have parked it, or passed over it: it moves no version on.
                    _log.error(
                        "a message that does not decode is passed over",
                        queue=f"{queue[0]}/{queue[1]}",
                        offset=message.offset,
                        aggregate_id=message.key,
                    )
                    continue
                if stream.version is not None:
                    known = versions.get(stream.aggregate_id, 0)
                    versions[stream.aggregate_id] = max(known, stream.version)
    return versions

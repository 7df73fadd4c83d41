"""
A message queue in this process's memory: the transport's port over a few lists.

For `App.run_local`, first steps and tests. Nothing survives the process; everything else is real: topics
with queues, keys, consumer groups whose members share the queues, offsets, redelivery of what a member
left unacknowledged, replies.
"""

import asyncio
import zlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta

from headrace._runtime.clock import Clock, SystemClock, Timer
from headrace._runtime.ids import new_id
from headrace._runtime.log import get_logger
from headrace.errors import HeadraceError
from headrace.transports.base import (
    Incoming,
    OffsetLoader,
    Outgoing,
    Place,
    QueueId,
    Report,
    TopicLineage,
    Waiting,
)

__all__ = ["LocalSubscription", "LocalTransport"]

log = get_logger(__name__)

# Messages that one poll returns at most; more only delay the first of them.
POLL_MESSAGES_MAX = 256
# Messages that one queue holds at most: about a gigabyte of small ones. A full queue refuses.
QUEUE_MESSAGES_MAX = 1_000_000
# Messages of a passing topic that all groups are done with, before they are dropped together.
TRIM_MESSAGES = 1_024

_REPLY_ADDRESS = "local"


class _Queue:
    """The messages of one queue; `first` is the offset of the oldest one kept."""

    def __init__(self) -> None:
        self.first = 0
        self.messages: list[Incoming] = []
        # When each of them came.
        self.times: list[datetime] = []

    @property
    def end(self) -> int:
        return self.first + len(self.messages)

    def nearest(self, offset: int) -> int:
        """Returns the offset, or the nearest one that a reader can stand at."""
        return min(max(offset, self.first), self.end)

    def read(self, offset: int, limit: int) -> list[Incoming]:
        start = max(offset - self.first, 0)
        return self.messages[start : start + limit]

    def trim(self, offset: int) -> None:
        """Drops what is before an offset, in large steps: a step costs what the rest weighs."""
        done = offset - self.first
        if done >= max(TRIM_MESSAGES, len(self.messages) // 2):
            del self.messages[:done]
            del self.times[:done]
            self.first = offset


class _Topic:
    def __init__(self, queues: int, *, forever: bool) -> None:
        self.queues = [_Queue() for _ in range(queues)]
        self.forever = forever
        # Its messages end with the process, so each start makes another one.
        self.identity = new_id()
        self.groups: set[str] = set()


class _Group:
    """Members in the order of joining, and the committed offset of each queue."""

    def __init__(self) -> None:
        self.members: list[LocalSubscription] = []
        self.offsets: dict[QueueId, int] = {}


class LocalTransport:
    """Topics, groups and replies inside one process and one event loop.

    Args:
        clock: tells how long it is until a scheduled message is due.
        call_later: waits until then, as the event loop's `call_later`; None: that one does.
    """

    def __init__(
        self, clock: Clock | None = None, *, call_later: Callable[..., Timer] | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self._call_later = call_later
        self._waiting: dict[int, Timer] = {}
        self._scheduled = 0
        self._topics: dict[str, _Topic] = {}
        self._groups: dict[str, _Group] = {}
        self._receive: Callable[[str, bytes], None] | None = None
        self._closed = False

    @property
    def reply_address(self) -> str:
        """The one address there is."""
        return _REPLY_ADDRESS

    async def ensure_topic(self, topic: str, *, queues: int, forever: bool) -> None:
        """Creates the topic unless it exists; one that does keeps its queues.

        Raises:
            HeadraceError: it exists, and is kept for ever where this one should pass, or the reverse.
        """
        known = self._topics.get(topic)
        if known is None:
            self._topics[topic] = _Topic(queues, forever=forever)
            self._rebalance()
        elif known.forever != forever:
            kept = "for ever" if known.forever else "until its groups are done"
            raise HeadraceError(
                f"topic {topic!r} exists and is kept {kept}, which cannot change; use another name"
            )

    async def publish(self, message: Outgoing) -> Place:
        """Appends the message to the queue of its key: CRC-32 of the key modulo the queues.

        Raises:
            HeadraceError: there is no such topic, its queue is full, or the transport is closed.
        """
        place = self._append(message)
        # One turn of the event loop, so that a publisher in a loop lets consumers work.
        await asyncio.sleep(0)
        return place

    def publish_soon(self, message: Outgoing, told: Report) -> bool:
        """Appends the message; `told` is called in the next turn of the event loop."""
        outcome: Place | HeadraceError
        try:
            outcome = self._append(message)
        except HeadraceError as error:
            outcome = error
        asyncio.get_running_loop().call_soon(told, outcome)
        return True

    async def schedule(self, message: Outgoing, due: datetime | timedelta) -> None:
        """Keeps the message until it is due; like everything here, not beyond this process.

        Raises:
            HeadraceError: there is no such topic, or the transport is closed.
        """
        self._topic(message.topic)
        if self._closed:
            raise HeadraceError("the transport is closed")
        delay = due if isinstance(due, timedelta) else due - self._clock.now()
        delay_s = max(0.0, delay.total_seconds())
        self._scheduled += 1
        number = self._scheduled
        call_later = self._call_later or asyncio.get_running_loop().call_later
        self._waiting[number] = call_later(delay_s, self._deliver, number, message)

    async def subscribe(
        self, group: str, topics: Sequence[str], *, offsets: OffsetLoader | None = None
    ) -> "LocalSubscription":
        """Joins a consumer group, whose queues are shared out again among its members."""
        if self._closed:
            raise HeadraceError("the transport is closed")
        subscription = LocalSubscription(self, group, tuple(topics), offsets)
        self._groups.setdefault(group, _Group()).members.append(subscription)
        if offsets is None:
            for topic in topics:
                self._topic(topic).groups.add(group)
        self._rebalance()
        return subscription

    async def committed(self, group: str, topic: str) -> dict[int, int]:
        """Returns the next offset of a group in each queue where it has acknowledged anything."""
        known = self._groups.get(group)
        offsets = {} if known is None else known.offsets
        return {number: offset for (name, number), offset in offsets.items() if name == topic}

    async def waiting(self, topic: str, offsets: Mapping[int, int]) -> list[Waiting]:
        """Returns what waits in each queue from an offset on."""
        found = []
        for number, queue in enumerate(self._topic(topic).queues):
            first = max(offsets.get(number, 0), queue.first)
            count = max(0, queue.end - first)
            since = queue.times[first - queue.first] if count else None
            found.append(Waiting(queue=(topic, number), end=queue.end, count=count, since=since))
        return found

    async def topic_lineage(
        self,
        topic: str,
        known: Mapping[int, int] | None = None,  # noqa: ARG002 - it has no epochs
    ) -> TopicLineage:
        """Returns a topic's identity, which is another one in each process, and its ranges."""
        found = self._topic(topic)
        ranges = {number: (each.first, each.end) for number, each in enumerate(found.queues)}
        return TopicLineage(identity=found.identity, ranges=ranges)

    async def read(self, queue: QueueId, first: int, end: int) -> AsyncIterator[list[Incoming]]:
        """Yields the messages of a queue from an offset to before another."""
        held = self.queue(queue)
        at = max(first, held.first)
        while at < min(end, held.end):
            found = held.read(at, min(POLL_MESSAGES_MAX, end - at))
            yield found
            at = found[-1].offset + 1

    def mark_damage(self, topic: str) -> None:
        """Changes nothing: what is in memory is never damaged."""

    def damaged(self) -> Mapping[str, int]:
        """Returns nothing: what is in memory is never damaged."""
        return {}

    async def paused(self, groups: Collection[str] | None = None, /) -> Collection[str]:  # noqa: ARG002 - the port's
        """Returns nothing: in this process there are no operators."""
        return ()

    async def reply(self, address: str, correlation: str, body: bytes) -> None:
        """Hands a reply to the receiving function, if there is one."""
        if address == _REPLY_ADDRESS and self._receive is not None:
            self._receive(correlation, body)

    def on_reply(self, receive: Callable[[str, bytes], None]) -> None:
        """Sets the function that takes (correlation, body) of replies."""
        self._receive = receive

    async def aclose(self) -> None:
        """Closes every subscription; nothing is kept."""
        self._closed = True
        for timer in self._waiting.values():
            timer.cancel()
        for group in list(self._groups.values()):
            for member in list(group.members):
                await member.aclose()

    def is_quiet(self, topics: Collection[str] = ()) -> bool:
        """Whether every message is acknowledged by every group, and each group has a member.

        Args:
            topics: have to have a group; without one they are not quiet.
        """
        members = [each for group in self._groups.values() for each in group.members]
        read = {topic for each in members for topic in each.topics}
        staffed = all(group.members for group in self._groups.values())
        return staffed and read.issuperset(topics) and not any(each.is_busy for each in members)

    # What subscriptions ask for.

    def queue(self, queue: QueueId) -> _Queue:
        """Returns one queue."""
        topic, number = queue
        return self._topic(topic).queues[number]

    def next_offset(self, group: str, queue: QueueId) -> int:
        """Returns where a group goes on in a queue."""
        return self._groups[group].offsets.get(queue, self.queue(queue).first)

    def commit(self, group: str, queue: QueueId, offset: int) -> None:
        """Moves a group's offset; drops what all groups of a passing topic are done with."""
        self._groups[group].offsets[queue] = offset
        topic = self._topic(queue[0])
        if not topic.forever:
            held = topic.queues[queue[1]]
            groups = [self._groups[name] for name in topic.groups]
            held.trim(min(each.offsets.get(queue, held.first) for each in groups))

    def leave(self, group: str, subscription: "LocalSubscription") -> None:
        """Takes a member out of its group; its queues go to the others."""
        self._groups[group].members.remove(subscription)
        self._rebalance()

    def _topic(self, name: str) -> _Topic:
        try:
            return self._topics[name]
        except KeyError:
            raise HeadraceError(f"there is no topic {name!r}; ensure_topic creates it") from None

    def _deliver(self, number: int, message: Outgoing) -> None:
        del self._waiting[number]
        try:
            self._append(message)
        except HeadraceError:
            log.exception("a scheduled message is lost", topic=message.topic, key=message.key)

    def _append(self, message: Outgoing) -> Place:
        if self._closed:
            raise HeadraceError("the transport is closed")
        queues = self._topic(message.topic).queues
        number = zlib.crc32(message.key.encode()) % len(queues)
        queue = queues[number]
        if len(queue.messages) >= QUEUE_MESSAGES_MAX:
            raise HeadraceError(f"queue {number} of {message.topic!r} is full")
        place = Place(number, queue.end)
        now = self._clock.now()
        queue.times.append(now)
        queue.messages.append(
            Incoming(
                queue=(message.topic, number),
                offset=place.offset,
                key=message.key,
                tag=message.tag,
                headers=dict(message.headers),
                body=message.body,
                stored_at_ms=int(now.timestamp() * 1_000),
            )
        )
        for group in self._groups.values():
            for member in group.members:
                member.notice(message.topic)
        return place

    def _rebalance(self) -> None:
        """Shares the queues of every group among its members, in turn."""
        for group in self._groups.values():
            shares: dict[LocalSubscription, list[QueueId]] = {
                member: [] for member in group.members
            }
            for topic, number in sorted(self._queue_ids()):
                takers = [member for member in group.members if topic in member.topics]
                if takers:
                    shares[takers[number % len(takers)]].append((topic, number))
            for member, queues in shares.items():
                member.assign(queues)

    def _queue_ids(self) -> list[QueueId]:
        return [
            (name, number)
            for name, topic in self._topics.items()
            for number in range(len(topic.queues))
        ]


class _Position:
    """One member's place in one queue: what to read next, and what is not acknowledged yet."""

    def __init__(self, queue: _Queue, offset: int) -> None:
        self.queue = queue
        self.next = offset
        self.delivered: deque[int] = deque()
        self.done: set[int] = set()

    def read(self, limit: int) -> list[Incoming]:
        messages = self.queue.read(self.next, limit)
        if messages:
            self.delivered.extend(message.offset for message in messages)
            self.next = messages[-1].offset + 1
        return messages

    def acknowledge(self, offset: int) -> int | None:
        """Returns the new lowest unfinished offset, or None when it has not moved."""
        if not self.delivered or offset < self.delivered[0] or offset >= self.next:
            return None
        self.done.add(offset)
        lowest = None
        while self.delivered and self.delivered[0] in self.done:
            self.done.remove(lowest := self.delivered.popleft())
        return None if lowest is None else self.delivered[0] if self.delivered else self.next


class LocalSubscription:
    """One member of a consumer group; made by `LocalTransport.subscribe`."""

    def __init__(
        self,
        transport: LocalTransport,
        group: str,
        topics: tuple[str, ...],
        offsets: OffsetLoader | None,
    ) -> None:
        self.topics = topics
        self._transport = transport
        self._group = group
        self._load_offsets = offsets
        self._positions: dict[QueueId, _Position] = {}
        # Assigned queues whose first offset the caller has still to say.
        self._unplaced: list[QueueId] = []
        self._news = asyncio.Event()
        self._closed = False
        self._turn = 0

    async def poll(self) -> list[Incoming]:
        """Waits for messages and returns some, in offset order within each queue.

        Raises:
            HeadraceError: the subscription is closed.
        """
        while True:
            if self._closed:
                raise HeadraceError("the subscription is closed")
            self._news.clear()
            if self._unplaced:
                await self._place()
            messages = self._read()
            if messages:
                return messages
            await self._news.wait()

    def ack(self, message: Incoming) -> None:
        """Says that a message is done; of a queue that was taken away it says nothing."""
        position = self._positions.get(message.queue)
        lowest = None if position is None else position.acknowledge(message.offset)
        if lowest is not None and self._load_offsets is None:
            self._transport.commit(self._group, message.queue, lowest)

    def seek(self, queue: QueueId, offset: int) -> None:
        """Makes the next poll continue at an offset of an assigned queue.

        Raises:
            ValueError: the offset is below 0.
        """
        if offset < 0:
            raise ValueError(f"an offset is 0 or more, not {offset}")
        if queue in self._unplaced:
            self._unplaced.remove(queue)
        elif queue not in self._positions:
            return
        held = self._transport.queue(queue)
        self._positions[queue] = _Position(held, held.nearest(offset))
        self._news.set()

    async def aclose(self) -> None:
        """Leaves the group; what is unacknowledged goes to another member."""
        if self._closed:
            return
        self._closed = True
        self._positions.clear()
        self._news.set()
        self._transport.leave(self._group, self)

    @property
    def is_busy(self) -> bool:
        """Whether messages are to be read or acknowledged."""
        places = self._positions.values()
        return bool(self._unplaced) or any(
            each.delivered or each.next < each.queue.end for each in places
        )

    def notice(self, topic: str) -> None:
        """Wakes a waiting poll when one of the topics has something new."""
        if topic in self.topics:
            self._news.set()

    def assign(self, queues: Sequence[QueueId]) -> None:
        """Takes over the share of queues; those it had already go on where they are."""
        for queue in [queue for queue in self._positions if queue not in queues]:
            del self._positions[queue]
        new = [queue for queue in queues if queue not in self._positions]
        if self._load_offsets is not None:
            self._unplaced = new
        else:
            for queue in new:
                held = self._transport.queue(queue)
                offset = self._transport.next_offset(self._group, queue)
                self._positions[queue] = _Position(held, offset)
        self._news.set()

    async def _place(self) -> None:
        while self._unplaced and self._load_offsets is not None:
            asked = list(self._unplaced)
            offsets = await self._load_offsets(asked)
            for queue in asked:
                # It may have been taken away, or sought, while the caller looked it up.
                if queue in self._unplaced:
                    self._unplaced.remove(queue)
                    held = self._transport.queue(queue)
                    first = held.nearest(offsets.get(queue, held.first))
                    self._positions[queue] = _Position(held, first)

    def _read(self) -> list[Incoming]:
        """Reads from the queues in turn, another one first each time."""
        messages: list[Incoming] = []
        queues = sorted(self._positions)
        self._turn += 1
        for place in range(len(queues)):
            position = self._positions[queues[(self._turn + place) % len(queues)]]
            if position.next < position.queue.end:
                messages += position.read(POLL_MESSAGES_MAX - len(messages))
        return messages

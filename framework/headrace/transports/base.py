"""
The transport's port: what the framework asks of a message queue.

Used by the bus, the command service and the readers of events. It has two adapters: `local` (in one
process) and `queue` (the broker).
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, TypeVar, runtime_checkable

__all__ = [
    "DAMAGED",
    "Incoming",
    "OffsetLoader",
    "Outgoing",
    "PartlyThere",
    "Place",
    "QueueId",
    "Report",
    "Subscription",
    "TopicLineage",
    "Transport",
    "Waiting",
]

# The header of a message without a body that stands for messages which cannot be read; its own offset
# is that of the last of them, and its value the offset of the first.
DAMAGED: Final = "headrace-damaged"
T = TypeVar("T")
# Topic and number of one queue.
QueueId = tuple[str, int]

# Given the queues that were just assigned, returns the offset to begin with for each; a queue that
# is left out begins where the topic begins. Where a queue no longer holds an offset, or not yet, the
# nearest one that it has counts: its first, or its end.
OffsetLoader = Callable[[Sequence[QueueId]], Awaitable[Mapping[QueueId, int]]]


class Outgoing(NamedTuple):
    """A message to publish; messages of one key keep their order.

    A tuple, because every command and every event is one.
    """

    topic: str
    key: str
    body: bytes
    tag: str = ""
    headers: Mapping[str, str] = MappingProxyType({})


class Incoming(NamedTuple):
    """A message as delivered; may be delivered again until it is acknowledged.

    A tuple, because every subscription makes one of each message. `stored_at_ms`: when the queue stored it, in milliseconds since
    1970; 0 where that is not known, as in a rebuild.
    """

    queue: QueueId
    offset: int
    key: str
    tag: str
    headers: Mapping[str, str]
    body: bytes
    stored_at_ms: int = 0


class Place(NamedTuple):
    """Where a published message stands in its topic."""

    queue: int
    offset: int


# Called with what became of a message: its place, or the error if it has none or the place is unknown.
Report = Callable[[Place | BaseException], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What waits in one queue for a reader at an offset.

    Attributes:
        queue: which one.
        end: the offset that the next message gets.
        count: messages from there to the end.
        since: when the first of them was stored; None: there is none.
    """

    queue: QueueId
    end: int
    count: int
    since: datetime | None


def _of(queues: Collection[int], told: Mapping[int, T]) -> dict[int, T]:
    return {number: told[number] for number in queues if number in told}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLineage:
    """Which life of a topic there is, and what it holds.

    Attributes:
        identity: a UUID, made with the topic; another topic of its name has another one. A copy of
            the queue's files has the same. Empty: the queue does not know.
        ranges: per queue the lowest offset held, and the one that the next message gets.
        starts: per queue the offset of its first message ever, if that is above 0: a topic that is made
            again under its name may go on with the offsets.
        epoch: grows each time that another broker leads, or the same one again; 0: the queue does not know.
        lossy: the epoch in which the brokers last lost messages; 0: they never did.
        epochs: per queue that of its brokers, if the queue knows it.
        changed: per queue the lowest offset at which another message stands than in an epoch that was named; queues in which
            nothing was lost since are left out.
        away: queues that do not answer now: what they hold is not known. `ranges`, `starts` and `epochs` lack them, or have what
            was known of them before.
    """

    identity: str
    ranges: Mapping[int, tuple[int, int]]
    starts: Mapping[int, int] = field(default_factory=dict)
    epoch: int = 0
    lossy: int = 0
    epochs: Mapping[int, int] = field(default_factory=dict)
    changed: Mapping[int, int] = field(default_factory=dict)
    away: frozenset[int] = frozenset()

    def carrying(self, known: "TopicLineage") -> "TopicLineage":
        """Returns this one, with what was known before of the queues that are away."""
        if not self.away:
            return self
        return replace(
            self,
            ranges={**_of(self.away, known.ranges), **self.ranges},
            starts={**_of(self.away, known.starts), **self.starts},
            epochs={**_of(self.away, known.epochs), **self.epochs},
        )

    @property
    def is_empty(self) -> bool:
        """Whether it holds no message."""
        return all(first == end for first, end in self.ranges.values())

    def has_lost_since(self, known: "TopicLineage") -> bool:
        """Whether the brokers lost messages after this was known; others may stand at their offsets."""
        return 0 < known.epoch < self.lossy

    def has_lost(self, number: int, offset: int) -> bool:
        """Whether a queue has lost messages from an offset on; it never had those below its start."""
        first, _ = self.ranges.get(number, (0, 0))
        return max(offset, self.starts.get(number, 0)) < first


class Subscription(Protocol):
    """A group member's share of the queues of some topics."""

    async def poll(self) -> list[Incoming]:
        """Waits for messages and returns some, in offset order within each queue.

        Never returns an empty list. Raises `asyncio.CancelledError` when cancelled, and loses nothing
        by it; an error of the adapter when closed, also where it waits; and what `offsets` raised,
        which is asked again.
        """
        ...

    def ack(self, message: Incoming) -> None:
        """Says that a message is done. Any order: the lowest unfinished offset is kept.

        Of a queue that is another member's by now it says nothing.
        """
        ...

    def seek(self, queue: QueueId, offset: int) -> None:
        """Makes the next poll continue at an offset of an assigned queue; the group's offset stays.

        Does nothing for a queue that is another member's by now. Raises ValueError: the offset is
        below 0.
        """
        ...

    async def aclose(self) -> None:
        """Stops fetching, reports the offsets of what is done, and leaves the group."""
        ...


class Transport(Protocol):
    """Topics, publishing, subscriptions and replies."""

    @property
    def reply_address(self) -> str:
        """Where replies to this process go; part of a command's headers."""
        ...

    async def ensure_topic(self, topic: str, *, queues: int, forever: bool) -> None:
        """Creates the topic unless it exists; `forever` keeps its messages without limit.

        A topic that exists never has fewer queues than before; whether it gets more is for the adapter
        to say. Raises an error of the adapter where it is kept for ever
        and should not be, or the other way round.
        """
        ...

    async def publish(self, message: Outgoing) -> Place:
        """Returns its place when the message is durable; calls in a row for one key keep their order.

        The message takes its place in the order before the first suspension, so that
        `create_task(publish(a)); create_task(publish(b))` keeps a before b.
        """
        ...

    def publish_soon(self, message: Outgoing, told: Report) -> bool:
        """Like `publish`, for those who do not wait; returns whether it took the message.

        It takes its place in the order now. `told` is called later, never during the call, with what
        `publish` would return or raise. If this returns False, nothing was done and `told` is not
        called: there is no room now, and `publish` waits for some.
        """
        ...

    async def schedule(self, message: Outgoing, due: datetime | timedelta) -> None:
        """Hands over a message that is published when it is due; as durable as a published one.

        It takes its place in the order then.

        Args:
            message: for later.
            due: a moment; or how long from now, which no clock that is set makes shorter or longer.
        """
        ...

    async def subscribe(
        self, group: str, topics: Sequence[str], *, offsets: OffsetLoader | None = None
    ) -> Subscription:
        """Joins a consumer group.

        Without `offsets` the group's offsets are kept by the queue and `ack` moves them; with it
        the caller keeps them (a projection, together with its rows), and `ack` only frees memory.
        """
        ...

    async def committed(self, group: str, topic: str) -> Mapping[int, int]:
        """Returns the next offset of a group in each queue where it has acknowledged anything."""
        ...

    async def waiting(self, topic: str, offsets: Mapping[int, int]) -> Sequence[Waiting]:
        """Returns what waits in each queue from an offset on; from its beginning where none is given.

        Asks the queue itself, as of now.
        """
        ...

    async def topic_lineage(
        self, topic: str, known: Mapping[int, int] | None = None
    ) -> TopicLineage:
        """Returns which life of a topic there is now; raises an error of the adapter if there is none.

        `known` names epochs that queues had before; `changed` says what was lost since.
        """
        ...

    def read(self, queue: QueueId, first: int, end: int) -> AsyncIterator[list[Incoming]]:
        """Reads messages of a queue from an offset to before another, outside of any group.

        What is no longer held is left out.
        """
        ...

    def mark_damage(self, topic: str) -> None:
        """Lets subscriptions to a topic, from now on, bring a message in place of damaged ones.

        It has the header `DAMAGED`, is a "rejection" to all who look at its kind, and must be
        acknowledged like others: no reader goes past damage that was not acted on. Subscribers that keep
        their own offsets get it in any case.
        """
        ...

    def damaged(self) -> Mapping[str, int]:
        """Returns, by topic, how many messages subscriptions left out since the start.

        No reader can decode them, or the queue has lost them.
        """
        ...

    async def paused(self, groups: Collection[str] | None = None, /) -> Collection[str]:
        """Returns which of these groups an operator has paused at the queue: they get no messages.

        Without names: of all groups that subscriptions were made in.
        """
        ...

    async def reply(self, address: str, correlation: str, body: bytes) -> None:
        """Sends a reply; at most once, dropped without a word if no caller waits any more."""
        ...

    def on_reply(self, receive: Callable[[str, bytes], None]) -> None:
        """Sets the function that takes (correlation, body) of replies to this process."""
        ...

    async def aclose(self) -> None:
        """Flushes what was handed over and closes.

        From then on `publish`, `schedule` and `subscribe` raise an error of the adapter.
        """
        ...


@runtime_checkable
class PartlyThere(Protocol):
    """A transport whose queues may be away one by one. Others need not have it."""

    async def lineage_there(self, topic: str) -> TopicLineage:
        """As `Transport.topic_lineage`, of the queues that answer; the others are in its `away`."""
        ...

    def contested(self, topic: str) -> bool:
        """Whether two places claimed the same queue of a topic, when it was looked at last."""
        ...

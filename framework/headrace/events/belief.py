"""
Which messages of the event topic are genuine: those that the event store can prove.

    sealed with the store's key, and the message's key is its aggregate    genuine
    otherwise, and the store holds exactly this stream                     genuine: it was published
                                                                           before there were seals
    all other messages                                                     foreign

A foreign message is logged and counted. Readers then get a heartbeat in its place: a message that changes
no version, no row and no process.

Used by every reader of the topic: live, in a rebuild or in Spark. Reads the event store.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import Final

from headrace._runtime.log import get_logger
from headrace.domain.stream import EventStream, Rejection
from headrace.domain.stream_body import aggregate_of
from headrace.errors import SerializationError, UnknownMessageType
from headrace.events.publisher import HEARTBEAT
from headrace.events.seals import Seal
from headrace.serialization import Serializer
from headrace.stores.base import StoredByCommand
from headrace.transports.base import DAMAGED, Incoming, QueueId

__all__ = ["Belief", "FindStored"]

# Aggregate id and command id of each.
Commands = Collection[tuple[str, str]]
FindStored = Callable[[Commands], Awaitable[StoredByCommand]]

log = get_logger(__name__)

# Streams that one query looks up: enough to be quick, with few parameters and little memory.
_LOOKED_UP_MAX: Final = 1_000
_WRONG_KEY: Final = "its key is not that of its aggregate"


class Belief:
    """Finds the foreign messages of one event topic.

    Args:
        seal: the event store's seal.
        find: looks up streams in the event store.
        serializer: decodes messages.

    Attributes:
        foreign: how many foreign messages came, each counted once.
    """

    def __init__(self, *, seal: Seal, find: FindStored, serializer: Serializer) -> None:
        self._seal = seal
        self._find = find
        self._serializer = serializer
        self.foreign = 0
        # Highest offset reported, by queue: several readers find the same message, some of them twice.
        self._reported: dict[QueueId, int] = {}
        self._heartbeat_body = serializer.encode_stream(_heartbeat())

    def doubts(self, bodies: Sequence[bytes], keys: Sequence[str] | None = None) -> list[int]:
        """Returns the indexes of messages that need a look into the store.

        Args:
            bodies: the messages' bodies.
            keys: the messages' keys, if the reader uses them.
        """
        found = self._seal.broken(bodies)
        if keys is None:
            return found
        moved = {
            place
            for place, (key, body) in enumerate(zip(keys, bodies, strict=True))
            if aggregate_of(body) != key
        }
        return sorted(moved.union(found)) if moved else found

    async def strangers(
        self, bodies: Sequence[bytes], keys: Sequence[str] | None = None
    ) -> dict[int, str]:
        """Returns the indexes of foreign messages, each with the reason.

        Raises:
            sqlalchemy.exc.SQLAlchemyError, OSError: the event store is away.
        """
        doubts = self.doubts(bodies, keys)
        found: dict[int, str] = {}
        for first in range(0, len(doubts), _LOOKED_UP_MAX):
            places = doubts[first : first + _LOOKED_UP_MAX]
            streams = {place: self._decoded(bodies[place]) for place in places}
            stored = await self._find(
                {
                    (stream.aggregate_id, stream.command_id)
                    for stream in streams.values()
                    if stream is not None
                }
            )
            for place, stream in streams.items():
                if stream is None or not _is_stored(stream, stored):
                    found[place] = f"{self._seal.why_broken(bodies[place])}, and not stored"
                elif keys is not None and stream.aggregate_id != keys[place]:
                    found[place] = _WRONG_KEY
        return found

    async def sift(self, messages: Sequence[Incoming]) -> list[Incoming]:
        """Returns messages in their order, with a heartbeat in place of each foreign one.

        Raises:
            sqlalchemy.exc.SQLAlchemyError, OSError: the event store is away.
        """
        kept = list(messages)
        strangers = await self.strangers(
            [each.body for each in messages], [each.key for each in messages]
        )
        for place, why in strangers.items():
            each = messages[place]
            passed = kept[place] = self.passed_over(each.queue, each.offset)
            if DAMAGED in each.headers and not each.body:
                # The transport made it, in place of messages that cannot be read.
                headers = {**passed.headers, DAMAGED: each.headers[DAMAGED]}
                kept[place] = passed._replace(headers=headers)
            else:
                self.tell(each.queue, each.offset, each.key, why)
        return kept

    def passed_over(self, queue: QueueId, offset: int) -> Incoming:
        """Returns a heartbeat for the place of a message; readers skip it."""
        return Incoming(
            queue=queue,
            offset=offset,
            key=HEARTBEAT,
            tag=HEARTBEAT,
            headers={"kind": "rejection", "version": "", "command": HEARTBEAT},
            body=self._heartbeat_body,
        )

    def tell(self, queue: QueueId, offset: int, key: str, why: str) -> None:
        """Counts and logs a foreign message, once."""
        if offset <= self._reported.get(queue, -1):
            return
        self._reported[queue] = offset
        self.foreign += 1
        log.error(
            "a foreign event message is passed over",
            queue=f"{queue[0]}/{queue[1]}",
            offset=offset,
            key=key,
            why=why,
        )

    def _decoded(self, body: bytes) -> EventStream | None:
        try:
            return self._serializer.decode_published(body)
        except (SerializationError, UnknownMessageType, ValueError):
            return None


def _is_stored(stream: EventStream, stored: StoredByCommand) -> bool:
    if stream.aggregate_type == HEARTBEAT and stream.version is None:
        return True  # a heartbeat: readers skip it, so its sender does not matter
    return stored.get((stream.aggregate_id, stream.command_id)) == stream


def _heartbeat() -> EventStream:
    return EventStream(
        aggregate_type=HEARTBEAT,
        aggregate_id=HEARTBEAT,
        version=None,
        command_id=HEARTBEAT,
        correlation_id=HEARTBEAT,
        recorded_at=datetime.fromtimestamp(0, UTC),
        rejection=Rejection(
            error="", sentence="", command_name=HEARTBEAT, command_version=1, command_data={}
        ),
    )

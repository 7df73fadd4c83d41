"""
Which messages of the event topic are believed: those that the event store vouches for.

    sealed with the store's key, and under the key of its own aggregate    believed
    otherwise, and the store holds exactly this stream                     believed: it was published
                                                                           before there were seals
    anything else                                                          never

What is not believed is logged and counted, and is for every reader what a heartbeat is: a message to
pass over, which moves no version, no row and no process.

Used by every reader of the topic: live, in a rebuild or in Spark; uses the seal and the event
store.
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

# What commands have stored, by aggregate and command id.
Commands = Collection[tuple[str, str]]
FindStored = Callable[[Commands], Awaitable[StoredByCommand]]

log = get_logger(__name__)

# Streams that are looked up in one query: enough to be quick, few binds and little memory.
_LOOKED_UP_MAX: Final = 1_000
_NOBODYS_KEY: Final = "its key is not that of its aggregate"


class Belief:
    """Judges messages of one event topic.

    Args:
        seal: of the event store.
        find: looks streams up in the event store.
        serializer: decodes them.

    Attributes:
        foreign: how many messages were not believed, each counted once.
    """

    def __init__(self, *, seal: Seal, find: FindStored, serializer: Serializer) -> None:
        self._seal = seal
        self._find = find
        self._serializer = serializer
        self.foreign = 0
        # Several readers meet the same message, and one may meet it again.
        self._told: dict[QueueId, int] = {}
        self._nothing = serializer.encode_stream(_nothing())

    def doubts(self, bodies: Sequence[bytes], keys: Sequence[str] | None = None) -> list[int]:
        """Returns the places of messages that must be looked up.

        Args:
            bodies: of the messages.
            keys: theirs, where the reader uses them.
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
        """Returns the places of messages that are not to be believed, each with the reason.

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
                    found[place] = _NOBODYS_KEY
        return found

    async def sift(self, messages: Sequence[Incoming]) -> list[Incoming]:
        """Returns messages in their order, those that are not to be believed as ones to pass over.

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
                # No client wrote it: it stands for messages that cannot be read.
                headers = {**passed.headers, DAMAGED: each.headers[DAMAGED]}
                kept[place] = passed._replace(headers=headers)
            else:
                self.tell(each.queue, each.offset, each.key, why)
        return kept

    def passed_over(self, queue: QueueId, offset: int) -> Incoming:
        """Returns what every reader passes over, in place of a message."""
        return Incoming(
            queue=queue,
            offset=offset,
            key=HEARTBEAT,
            tag=HEARTBEAT,
            headers={"kind": "rejection", "version": "", "command": HEARTBEAT},
            body=self._nothing,
        )

    def tell(self, queue: QueueId, offset: int, key: str, why: str) -> None:
        """Counts and logs a message that is not believed, once."""
        if offset <= self._told.get(queue, -1):
            return
        self._told[queue] = offset
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
        return True  # every reader passes it over, and it may come from anybody
    return stored.get((stream.aggregate_id, stream.command_id)) == stream


def _nothing() -> EventStream:
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

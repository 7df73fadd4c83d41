"""
Which messages of the event topic are genuine: those that the event store can prove.

    sealed with the store's key, and the message's key is its aggregate    genuine
    otherwise, and the store holds exactly this stream                     genuine: it was published
                                                                           before there were seals
    otherwise, and neither it nor what the store holds of its command
    can be read, as where the key of a person was lost                     not checked
    all other messages                                                     foreign

A foreign message is logged and counted. Readers then get a heartbeat in its place: a message that changes
no version, no row and no process. One that is not checked is logged, and they get it in a form that cannot be read:
they park its aggregate, as for the stored events, and a retry reads these.

Used by every reader of the topic: live, in a rebuild or in Spark. Reads the event store.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import Final

from headrace._runtime.log import get_logger
from headrace.domain.stream import EventStream, Rejection
from headrace.domain.stream_body import MALFORMED, aggregate_of, origin_of
from headrace.errors import DamagedStream, SerializationError, UnknownMessageType
from headrace.events.publisher import HEARTBEAT
from headrace.events.seals import Seal
from headrace.serialization import Serializer
from headrace.stores.base import StoredByCommand
from headrace.subjects.cipher import never_opened
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
        """Returns the indexes of messages that cannot be believed, each with the reason.

        They are foreign, or cannot be checked.

        Raises:
            sqlalchemy.exc.SQLAlchemyError, OSError: the event store is away.
        """
        foreign, unchecked = await self._judged(bodies, keys)
        return foreign | {place: f"it cannot be checked: {why}" for place, why in unchecked.items()}

    async def _judged(
        self, bodies: Sequence[bytes], keys: Sequence[str] | None
    ) -> tuple[dict[int, str], dict[int, str]]:
        """Returns foreign messages, and those that cannot be checked, by index with the reason."""
        doubts = self.doubts(bodies, keys)
        found: dict[int, str] = {}
        unchecked: dict[int, str] = {}
        for first in range(0, len(doubts), _LOOKED_UP_MAX):
            places = doubts[first : first + _LOOKED_UP_MAX]
            streams = {place: self._decoded(bodies[place]) for place in places}
            origins = {place: origin_of(bodies[place]) for place in places}
            stored = await self._find({each for each in origins.values() if each is not None})
            for place, stream in streams.items():
                origin = origins[place]
                held = None if origin is None else stored.get(origin)
                if origin is not None and keys is not None and origin[0] != keys[place]:
                    found[place] = _WRONG_KEY
                elif stream is None and isinstance(held, DamagedStream):
                    unchecked[place] = held.why
                elif stream is None or not _is_stored(stream, stored):
                    found[place] = f"{self._seal.why_broken(bodies[place])}, and not stored"
        return found, unchecked

    async def sift(self, messages: Sequence[Incoming]) -> list[Incoming]:
        """Returns messages in their order, with a heartbeat in place of each foreign one.

        One that cannot be checked does not decode.

        Raises:
            sqlalchemy.exc.SQLAlchemyError, OSError: the event store is away.
        """
        kept = list(messages)
        foreign, unchecked = await self._judged(
            [each.body for each in messages], [each.key for each in messages]
        )
        for place, why in unchecked.items():
            each = messages[place]
            try:
                body = never_opened(each.body)
            except MALFORMED:
                # The store never published it: it is no JSON, in a part that nothing else reads.
                foreign[place] = why
                continue
            kept[place] = each._replace(body=body)
            self._tell_unchecked(each, why)
        for place, why in foreign.items():
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
        if not self._is_new(queue, offset):
            return
        self.foreign += 1
        log.error(
            "a foreign event message is passed over",
            queue=f"{queue[0]}/{queue[1]}",
            offset=offset,
            key=key,
            why=why,
        )

    def _tell_unchecked(self, message: Incoming, why: str) -> None:
        if self._is_new(message.queue, message.offset):
            log.error(
                "an event message cannot be checked, so what reads it is parked; mend what is wrong, then run"
                " headrace parked retry",
                queue=f"{message.queue[0]}/{message.queue[1]}",
                offset=message.offset,
                key=message.key,
                why=why,
            )

    def _is_new(self, queue: QueueId, offset: int) -> bool:
        """Whether a message was not reported before; from now on it was."""
        if offset <= self._reported.get(queue, -1):
            return False
        self._reported[queue] = offset
        return True

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

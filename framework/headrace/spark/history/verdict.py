"""
Compares messages with what the event store holds for their commands. PURE.

    the same bytes, or the same stream once both are decoded     SAME
    another stream, and the message has the store's seal         DIFFERS: one of the two was changed
    no stream, and the message has the store's seal              MISSING: the store lost it
    a heartbeat, which holds no event and is not stored          SAME
    a stream whose checksum differs                              DAMAGED
    all other messages                                           FOREIGN: readers pass them over

Used by `proof`, which reads the messages and the store.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from headrace.domain.stream import EventStream
from headrace.domain.stream_body import origin_of
from headrace.errors import SerializationError, UnknownMessageType
from headrace.events.publisher import HEARTBEAT
from headrace.stores.database.command_bodies import StoredCommand

__all__ = ["Decode", "Deviation", "Found", "PartMessage", "compare", "wanted_of"]

Decode = Callable[[bytes], EventStream]
_SEAL: Final = b',"seal":"'


class PartMessage(NamedTuple):
    """A message of a part: its offset, its key and its body."""

    offset: int
    key: str
    body: bytes


class Found(StrEnum):
    """What a comparison has found of a message."""

    SAME = "same"
    DIFFERS = "differs"
    MISSING = "missing"
    DAMAGED = "damaged"
    FOREIGN = "foreign"


class Deviation(NamedTuple):
    """A message that is not the same as in the store.

    Attributes:
        found: what it is.
        offset: of the message.
        aggregate_id: whose events it claims to hold, or its key.
        version: of the aggregate in the store; None: the store has none, or a rejection.
        command_id: that caused them; empty: the message does not say.
    """

    found: Found
    offset: int
    aggregate_id: str
    version: int | None
    command_id: str


def wanted_of(messages: Sequence[PartMessage]) -> set[tuple[str, str]]:
    """Returns the aggregates and commands that the store is asked for."""
    return {origin for each in messages if (origin := origin_of(each.body)) is not None}


def compare(
    messages: Sequence[PartMessage],
    stored: Mapping[tuple[str, str], StoredCommand],
    *,
    broken: Collection[int],
    decode: Decode,
) -> list[Deviation]:
    """Returns the messages that are not the same as in the store, in their order.

    Args:
        messages: some of one queue, in order.
        stored: what the store has of `wanted_of(messages)`.
        broken: the places of messages without this store's seal.
        decode: decodes a body.
    """
    different: list[Deviation] = []
    for place, message in enumerate(messages):
        origin = origin_of(message.body)
        row = None if origin is None else stored.get(origin)
        aggregate_id, command_id = origin or (message.key, "")
        found = _judge(message, row, sealed=place not in broken, decode=decode)
        if aggregate_id != message.key:
            found = Found.FOREIGN
        if found is not Found.SAME:
            version = None if row is None else row.version
            different.append(Deviation(found, message.offset, aggregate_id, version, command_id))
    return different


def _judge(
    message: PartMessage, row: StoredCommand | None, *, sealed: bool, decode: Decode
) -> Found:
    if row is None:
        if _is_heartbeat(message.body, decode):
            return Found.SAME
        return Found.MISSING if sealed else Found.FOREIGN
    if row.damaged:
        return Found.DAMAGED
    if _is_body(message.body, row.body) or _are_equal(message.body, row.body, decode):
        return Found.SAME
    return Found.DIFFERS if sealed else Found.FOREIGN


def _is_body(body: bytes, stored: bytes) -> bool:
    """Whether a message's body is the stored one, with a seal or without."""
    last = len(stored) - 1
    return body == stored or (body[:last] == stored[:last] and body.startswith(_SEAL, last))


def _are_equal(body: bytes, stored: bytes, decode: Decode) -> bool:
    # An event that was published again later may have the form of a newer version.
    try:
        return decode(body) == decode(stored)
    except (SerializationError, UnknownMessageType, ValueError):
        return False


def _is_heartbeat(body: bytes, decode: Decode) -> bool:
    try:
        stream = decode(body)
    except (SerializationError, UnknownMessageType, ValueError):
        return False
    return stream.aggregate_type == HEARTBEAT and stream.version is None

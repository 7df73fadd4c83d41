"""
Which queue of a topic holds a routing key, and how topics are divided among requests for their queues.

The rule is part of the wire contract: every client in every language, and the broker when it
delivers a scheduled message, must put one key into the same queue. It is the CRC-32C (Castagnoli)
of the key's UTF-8 bytes, modulo the number of the topic's queues that take messages, counted in the
order of their numbers. So a queue that is to be removed loses its keys when it is frozen for writing,
and its removal moves none. In a compacted topic, and where no queue takes messages, all queues count.

The rule is written in `queue_for_key` alone; the other functions call it.

Used by the producer's `route` and by the broker's deliveries. Pure.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import repeat

import google_crc32c
import msgspec

from headrace_mq.errors import UndecodableBatch
from headrace_mq.protocol.batch import BatchHeader, unpacked

__all__ = [
    "keyless",
    "open_queue_for_key",
    "open_queues",
    "open_queues_for_keys",
    "queue_for_key",
    "topics_in_parts",
]

# A broker answers for as many queues at a time as so many topics can have.
_TOPICS_PER_REQUEST = 4

_decode_keys = msgspec.msgpack.Decoder(
    tuple[list[str], msgspec.Raw, msgspec.Raw, msgspec.Raw, msgspec.Raw]
).decode


def queue_for_key(key: str, queues: int) -> int:
    """The queue that holds a routing key: CRC-32C of its UTF-8 bytes modulo the queue count."""
    found: int = google_crc32c.value(key.encode()) % queues
    return found


def open_queues(queues: int, closed: Collection[int], *, compact: bool) -> Sequence[int]:
    """The numbers of the queues that keys are divided among; there is at least one."""
    if not closed or compact:
        return range(queues)
    return [number for number in range(queues) if number not in closed] or range(queues)


def open_queue_for_key(key: str, among: Sequence[int]) -> int:
    """The number of the queue that holds a routing key; `among` is what `open_queues` returned."""
    return among[queue_for_key(key, len(among))]


def open_queues_for_keys(keys: Iterable[str], among: Sequence[int]) -> list[int]:
    """The same for many keys, in their order."""
    return list(map(among.__getitem__, map(queue_for_key, keys, repeat(len(among)))))


def keyless(batch: bytes | memoryview, header: BatchHeader) -> int:
    """Returns how many records of a whole dense batch have no key.

    Raises:
        UndecodableBatch: the payload does not decode.
    """
    try:
        keys, *_ = _decode_keys(unpacked(batch, header))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UndecodableBatch(f"the payload of a record batch does not decode: {error}") from error
    return keys.count("") if len(keys) == header.count else header.count


def topics_in_parts(topics: Iterable[str]) -> Iterator[list[str]]:
    """Divides topics, so that a request for the queues of one part is never refused as too large."""
    named = list(dict.fromkeys(topics))
    for at in range(0, len(named), _TOPICS_PER_REQUEST):
        yield named[at : at + _TOPICS_PER_REQUEST]

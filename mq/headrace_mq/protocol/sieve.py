"""
What a filter leaves of a stored batch.

A batch of which nothing is selected is left out, after a look at its tag summary alone where the
filter names tags. One of which little is selected is made anew for each run of selected records,
with their own offsets, so that a reader sees nothing new: batches, with gaps between them. One of
which much is selected stays as its producer made it: that is cheaper than many small ones, and
readers select again.

Sits between: the broker's FETCH, which has batches, and `filters`. Pure.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from headrace_mq.errors import MessageQueueError
from headrace_mq.filters.filter import Filter
from headrace_mq.message import Record
from headrace_mq.protocol.batch import (
    BatchHeader,
    Columns,
    assign,
    encode_batch,
    read_header,
    sound_batch,
    tag_bit,
    unpacked,
)

__all__ = ["selected_of", "sieve"]

# A batch is passed on whole from this share of selected records on: a new one costs about as much
# to make and to read as eight records that are thrown away.
_RUNS_SHARE_MAX = 8

_decode_labels = msgspec.msgpack.Decoder(
    tuple[msgspec.Raw, list[str], list[dict[str, str]], msgspec.Raw, msgspec.Raw]
).decode
_decode_keys = msgspec.msgpack.Decoder(list[str]).decode
_decode_bodies = msgspec.msgpack.Decoder(list[bytes]).decode
_decode_deltas = msgspec.msgpack.Decoder(list[int]).decode


def sieve(batch: bytes | memoryview, wanted: Filter) -> Sequence[bytes | memoryview]:
    """Returns the batches to send for a stored one: none, some small ones, or itself.

    A damaged batch is passed on as it is, so that its reader tells of it.
    """
    if sound_batch(memoryview(batch)) is None:
        return [batch]
    header = read_header(batch)
    if wanted.tags is not None and not any(tag_bit(t) & header.tag_summary for t in wanted.tags):
        return []
    try:
        keys, tags, headers, bodies, deltas = _decode_labels(unpacked(batch, header))
        asked = _decode_keys(keys) if wanted.asks_for_keys else []
        places = wanted.places(header.count, headers, asked, tags)
        if not places:
            return []
        runs = list(_runs(places))
        if len(runs) * _RUNS_SHARE_MAX > header.count or len(places) == header.count:
            return [batch]
        columns = Columns(
            _decode_keys(keys), tags, headers, _decode_bodies(bodies), _decode_deltas(deltas)
        )
    except (MessageQueueError, msgspec.DecodeError, UnicodeDecodeError):
        return [batch]
    return [memoryview(_cut(header, columns, first, last + 1)) for first, last in runs]


def selected_of(records: Sequence[Record], wanted: Filter) -> list[Record]:
    """The selected ones, in their order."""
    places = wanted.places(
        len(records),
        [record.headers for record in records],
        [record.key for record in records],
        [record.tag for record in records],
    )
    return [records[place] for place in places]


def _runs(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of neighbours."""
    first = places[0]
    for one, following in pairwise(places):
        if following != one + 1:
            yield first, one
            first = following
    yield first, places[-1]


def _cut(header: BatchHeader, columns: Columns, first: int, end: int) -> bytearray:
    batch = encode_batch(
        header.queue,
        Columns(
            columns.keys[first:end],
            columns.tags[first:end],
            columns.headers[first:end],
            columns.bodies[first:end],
            columns.born_deltas[first:end],
        ),
        born_first_ms=header.born_first_ms,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        first_sequence=header.first_sequence + first,
        flags=header.flags,
    )
    assign(
        batch,
        base_offset=header.base_offset + first,
        position=header.position,
        appended_at_ms=header.appended_at_ms,
        epoch=header.epoch,
    )
    return batch

"""
Applies a filter to stored batches, and decodes as little of them as possible.

    the tag summary excludes all messages               the batch is left out
    its headers lack bytes that a match must have       the batch is left out
    otherwise the columns of the condition are decoded
      no message matches                                the batch is left out
      few match                                         they are picked out of the batch
      many match                                        the whole batch; the reader filters again

Used by the broker's FETCH and its filter processes, and by the consumer's fetcher. Pure.
"""

import re
from collections.abc import Callable, Sequence
from operator import attrgetter, methodcaller
from typing import Any, NamedTuple, TypeVar

import msgspec

from headrace_mq.errors import DataCorrupt, MessageQueueError
from headrace_mq.filters.filter import Filter
from headrace_mq.message import QueueRef, Record
from headrace_mq.protocol.batch import (
    SPARSE,
    BatchHeader,
    decode_records,
    read_header,
    record_count,
    tag_bit,
    tag_summary,
    unpacked,
)
from headrace_mq.protocol.bodies import Picked
from headrace_mq.protocol.filter.numbers import NumberHeaders
from headrace_mq.protocol.filter.picks import Pick, picked
from headrace_mq.protocol.filter.places import NOBODY, Chosen, Payload, decode_payload, taken

__all__ = ["BatchPart", "Selection", "Sieve", "selected_of"]

# A batch is passed on whole if more than one of so many records is selected: from there on picking
# costs both sides more than to throw the others away.
_PICKED_SHARE_MIN = 2
# What a picked message takes besides its texts and its body: four numbers and five lengths.
_PICK_BYTES_MAX = 64

T = TypeVar("T")
Bytes = bytes | memoryview
_Column = Sequence[Any]

_ALL_HEADERS: Any = list[dict[str, str]]
_UNUSUAL = re.compile(r"""["\\\x00-\x1f]""")
_decode_texts = msgspec.msgpack.Decoder(list[str]).decode
_encode = msgspec.msgpack.Encoder().encode
_new = tuple.__new__
_decode_deltas = msgspec.msgpack.Decoder(list[int]).decode


class BatchPart(NamedTuple):
    """What is left of a batch: the whole, or picks."""

    whole: Bytes | None
    picks: list[Pick] | None
    records: int
    size: int


class Sieve:
    """A filter, made ready for the batches of a log.

    Args:
        text: the condition, as `Filter` takes it; raises InvalidFilter as that does.

    Attributes:
        wanted: the filter.
    """

    __slots__ = (
        "_decode_headers", "_fields", "_is_single", "_numbers", "_tag_bits", "_word",
        "_words", "wanted",
    )  # fmt: skip

    def __init__(self, text: str) -> None:
        self.wanted = wanted = Filter(text)
        self._tag_bits = None if wanted.tags is None else sum({tag_bit(tag) for tag in wanted.tags})
        words = sorted(word.encode() for word in wanted.words or ())
        # One word is looked for without a loop.
        self._word = words[0] if len(words) == 1 else b""
        self._words = words if len(words) > 1 else []
        self._fields, kind = _asked(wanted.headers)
        self._is_single = len(self._fields) == 1 and kind is not _ALL_HEADERS
        by_headers = wanted.headers and not (wanted.asks_for_keys or wanted.asks_for_tags)
        by_number = by_headers and wanted.bounds and not _UNUSUAL.search(wanted.bounds.name)
        self._numbers = NumberHeaders(wanted) if by_number else None
        self._decode_headers: Callable[[bytes], list[Any]] = msgspec.msgpack.Decoder(kind).decode

    def part_of(self, batch: Bytes, *, picks: bool) -> BatchPart | None:
        """Returns what is left of a sound batch, None where nothing is.

        One that cannot be decoded is left whole, so that its reader tells of it.

        Args:
            batch: the batch.
            picks: whether selected messages may be picked out.
        """
        if self._tag_bits is not None and not self._tag_bits & tag_summary(batch):
            return None
        try:
            header = read_header(batch)
            if header.flags & SPARSE:
                return self._sparse_part(batch, picks=picks)
            payload = decode_payload(unpacked(batch, header))
            chosen = self._chosen(header.count, payload)
            if not chosen.places:
                return None
            if picks and len(chosen.places) * _PICKED_SHARE_MIN <= header.count:
                found = _picks(header, payload, chosen)
                size = _size(found)
                # So that an answer is never longer than the batches that it is made of.
                if size < header.length:
                    return BatchPart(None, found, len(found), size)
        except (MessageQueueError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        return BatchPart(batch, None, record_count(batch), len(batch))

    def _sparse_part(self, batch: Bytes, *, picks: bool) -> BatchPart | None:
        """The same of what a compaction left, which is little."""
        chosen = selected_of(decode_records(batch), self.wanted)
        if not chosen:
            return None
        found = list(map(_pick_of, chosen))
        size = _size(found)
        if picks and size < len(batch):
            return BatchPart(None, found, len(chosen), size)
        return BatchPart(batch, None, len(chosen), len(batch))

    def _chosen(self, count: int, payload: Payload) -> Chosen:
        """The places of the selected messages, and what is known of these."""
        wanted = self.wanted
        columns: list[_Column] = []
        if wanted.headers:
            data = bytes(payload.headers)
            if self._word not in data:
                return NOBODY
            if self._words and not any(word in data for word in self._words):
                return NOBODY
            if self._numbers is not None:
                chosen = self._numbers.chosen(data, count)
                if chosen is not None:
                    return chosen
            asked = _of(count, self._decode_headers(data))
            # The rule is one header; without a call for each message that takes half the time.
            if self._is_single:
                columns = [[one.h0 for one in asked]]
            else:
                columns = [list(map(field, asked)) for field in self._fields]
        keys = _of(count, _decode_texts(payload.keys)) if wanted.asks_for_keys else []
        tags = _of(count, _decode_texts(payload.tags)) if wanted.asks_for_tags else []
        places = wanted.places_in(count, columns, keys, tags)
        return Chosen(places, None, [tags[place] for place in places] if tags else None)


class Selection:
    """What is selected of one queue, in offset order.

    Args:
        queue: the queue.

    Attributes:
        batches: those that are passed on whole.
        picked: the other messages.
        count: how many messages there are.
        size: the bytes they take, at most.
    """

    __slots__ = ("_open", "_queue", "batches", "count", "picked", "size")

    def __init__(self, queue: QueueRef) -> None:
        self._queue = queue
        self._open: list[Pick] = []
        self.batches: list[Bytes] = []
        self.picked: list[Picked] = []
        self.count = self.size = 0

    def add(self, part: BatchPart) -> None:
        """Takes what is left of a batch behind all others."""
        self.count += part.records
        self.size += part.size
        if part.picks is None:
            assert part.whole is not None, "a part is whole or picks"
            self.close()
            self.batches.append(part.whole)
        else:
            self._open += part.picks

    def close(self) -> None:
        """Makes the last picks ready for the wire."""
        if self._open:
            self.picked.append(picked(self._queue, self._open))
            self._open = []


def selected_of(records: Sequence[Record], wanted: Filter) -> list[Record]:
    """The selected ones, in their order."""
    places = wanted.places(
        len(records),
        [record.headers for record in records],
        [record.key for record in records],
        [record.tag for record in records],
    )
    return [records[place] for place in places]


def _asked(headers: Sequence[str]) -> tuple[list[Callable[[Any], str | None]], Any]:
    """How each header that is asked for is looked up, and as what a column of headers is decoded.

    One object per message with these headers and nothing of the others: a quarter of the time that
    dictionaries take where messages have four. A name that JSON would escape cannot be a field's.
    """
    if any(_UNUSUAL.search(name) for name in headers):
        return [methodcaller("get", name) for name in headers], _ALL_HEADERS
    names = {f"h{number}": name for number, name in enumerate(headers)}
    fields = [(field, str | None, None) for field in names]
    kind = msgspec.defstruct("Asked", fields, rename=names, gc=False)
    asked: Any = list[kind]  # type: ignore[valid-type]  # made above
    return [attrgetter(field) for field in names], asked


def _of(count: int, column: list[T]) -> list[T]:
    if len(column) not in {0, count}:
        raise DataCorrupt("the columns of a record batch differ in length")
    return column


def _picks(header: BatchHeader, payload: Payload, chosen: Chosen) -> list[Pick]:
    base, born = header.base_offset, header.born_first_ms
    stored, producer = header.appended_at_ms, header.producer_id
    places = chosen.places
    found = taken(payload, chosen, header.count)
    deltas = _of(header.count, _decode_deltas(payload.born_deltas))
    # Made of tuples: a third of the time of calling it.
    return [
        _new(Pick, (base + place, *one, born + deltas[place] if deltas else born, stored, producer))
        for place, one in zip(places, found, strict=True)
    ]


def _pick_of(record: Record) -> Pick:
    return Pick(
        record.offset,
        record.key,
        record.tag,
        msgspec.Raw(_encode(dict(record.headers))),
        record.body,
        record.born_at_ms,
        record.stored_at_ms,
        record.producer_id,
    )


def _size(picks: Sequence[Pick]) -> int:
    """The bytes that picks take on the wire, at most; a character takes no more than four."""
    size = 0
    for one in picks:
        size += _PICK_BYTES_MAX + len(one.headers) + len(one.body)
        size += 4 * (len(one.key) + len(one.tag))
    return size

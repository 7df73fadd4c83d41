"""
Remembers the last batches of every producer in every queue, to find repeated and missing batches.

Used by `log.queues`. Pure: no clock, no I/O. A start rebuilds the state from the log, so that the
broker recognises a retry across a restart too.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from headrace_mq.errors import SequenceGap
from headrace_mq.message import QueueRef

__all__ = [
    "BATCHES_REMEMBERED",
    "PRODUCERS_MAX",
    "Key",
    "SentBatch",
    "Sequences",
    "Undo",
]

# A producer has this many requests in flight per queue, so it may repeat this many batches.
BATCHES_REMEMBERED = 5
# Pairs of producer and queue; at about 500 bytes each this is 32 MiB. The pair that has been silent the longest
# is dropped first; a retry of that producer then counts as a new message.
PRODUCERS_MAX = 65_536

_WRAP = 1 << 32
_HALF = 1 << 31

_new = tuple.__new__


class SentBatch(NamedTuple):
    """One batch by its producer's sequences: `records` numbers of 32 bits from `first` on."""

    first: int
    records: int
    base_offset: int


class _Producer(NamedTuple):
    """A producer's place in one queue. It is replaced as a whole, so an undo puts the old one back."""

    next: int
    sent: tuple[SentBatch, ...]


# A producer's place in a queue: its id, its epoch, and the queue.
Key = tuple[int, int, QueueRef]


class Undo(NamedTuple):
    """The change that `record` made: the new value and the old one."""

    key: Key
    sent: SentBatch
    before: _Producer | None


class Sequences:
    """The last batches of every (producer, producer epoch, queue)."""

    __slots__ = ("_producers", "_producers_max")

    def __init__(self, producers_max: int = PRODUCERS_MAX) -> None:
        # Ordered by the last `record`; unlike a dict it removes its oldest entry in one step.
        self._producers: OrderedDict[Key, _Producer] = OrderedDict()
        self._producers_max = producers_max

    def __len__(self) -> int:
        return len(self._producers)

    def duplicate_of(self, key: Key, first: int, records: int) -> int | None:
        """Returns None for a new batch, or the base offset of the batch that it repeats.

        Returns -1 for a repeated batch whose offset is no longer known. An unknown producer may begin
        with any sequence.

        Raises:
            SequenceGap: batches before this one are missing, or only a part of it is new.
        """
        producer = self._producers.get(key)
        if producer is None or first == producer.next:
            return None
        behind = (producer.next - first) % _WRAP
        if behind >= _HALF:
            raise SequenceGap(
                f"sequence {first} came, but {producer.next} is next from this producer to"
                f" {key[2].topic}[{key[2].queue_id}]; send the missing batches first"
            )
        if behind < records:
            raise SequenceGap(
                f"the batch at sequence {first} repeats {behind} stored messages and adds"
                f" {records - behind} new ones; repeat batches as they were sent"
            )
        for sent in producer.sent:
            into = (first - sent.first) % _WRAP
            if into < sent.records:
                return sent.base_offset + into
        return -1

    def record(self, key: Key, sent: SentBatch) -> Undo:
        """Records a batch as the producer's last one; returns the change for `undo`."""
        before = self._producers.pop(key, None)
        earlier = () if before is None else before.sent[1 - BATCHES_REMEMBERED :]
        following = (sent.first + sent.records) % _WRAP
        # Building a named tuple as a tuple takes half the time; this runs once per batch.
        self._producers[key] = _new(_Producer, (following, (*earlier, sent)))
        return _new(Undo, (key, sent, before))

    def restore(self, key: Key, sent: Sequence[SentBatch]) -> None:
        """Records a producer's next batches at once, oldest first; at least one."""
        before = self._producers.pop(key, None)
        earlier = () if before is None or len(sent) >= BATCHES_REMEMBERED else before.sent
        last = sent[-1]
        self._producers[key] = _Producer(
            (last.first + last.records) % _WRAP, (*earlier, *sent)[-BATCHES_REMEMBERED:]
        )

    def lowest(self) -> dict[Key, int]:
        """Returns for every key the lowest base offset of its remembered batches."""
        return {
            key: min(sent.base_offset for sent in producer.sent)
            for key, producer in self._producers.items()
        }

    def undo(self, undo: Undo) -> None:
        """Undoes the last `record` of a key; undo several in reverse order."""
        self._producers.pop(undo.key, None)
        if undo.before is not None:
            self._producers[undo.key] = undo.before

    def forget(self, key: Key) -> None:
        """Lets a producer begin with any sequence, because its last batch is unknown."""
        self._producers.pop(key, None)

    def forget_surplus(self) -> None:
        """Drops the producers that have been silent the longest, down to the limit."""
        while len(self._producers) > self._producers_max:
            self._producers.popitem(last=False)

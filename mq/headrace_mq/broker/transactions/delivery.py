"""
Turns decisions into batches: reads bundles from the journal, takes the committed records, numbers batches.

If a batch is committed as a whole, it is appended as its producer made it; from other batches the committed records
are taken. If their queue accepts no messages any more, the records are divided among the open queues by their keys.
Dead letters go to a separate topic, with headers that name their original target.

Used by `coordinator`, which decides when; uses the store and the topics. It must not know the time.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import TypedDict, TypeVar

from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.journal.batches import (
    JournalReader,
    JournalSequences,
    open_queues_of,
    read_batch,
)
from headrace_mq.broker.topics.topics import COMPACT, Topics
from headrace_mq.broker.transactions.journal import BundleDecision, Decided, DecidedPart
from headrace_mq.errors import (
    DataCorrupt,
    FormatTooNew,
    MalformedRequest,
    OffsetOutOfRange,
    UndecodableBatch,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import (
    BatchHeader,
    Columns,
    decode_columns,
    encode_batch,
    read_header,
    renumbered,
)
from headrace_mq.protocol.bodies import CreateTopic, decode
from headrace_mq.protocol.keys import open_queue_for_key
from headrace_mq.protocol.transactions import (
    RESERVED_PREFIX,
    TRANSACTION_QUEUE,
    Bundle,
    BundlePart,
)

__all__ = [
    "BYTES_MAX",
    "DEAD_TRANSACTIONS_QUEUE",
    "GROUP_HEADER",
    "ID_HEADER",
    "PRODUCER_ID",
    "TOPIC_HEADER",
    "Decisions",
]

# Differs from the schedule's, so that the two never share a sequence.
PRODUCER_ID = 2
# Dead letters: messages without a decision, or whose topic does not exist. Named like those of a consumer
# group.
DEAD_TRANSACTIONS_QUEUE = QueueRef("%DLQ%TRANSACTION", 0)
TOPIC_HEADER = RESERVED_PREFIX + "topic"
ID_HEADER = RESERVED_PREFIX + "id"
GROUP_HEADER = RESERVED_PREFIX + "group"
# Memory for the bundles of one turn, about: one bundle may exceed it.
BYTES_MAX = 8 << 20

T = TypeVar("T")

_log = get_logger(__name__)


class _Numbering(TypedDict, total=False):
    """A batch's place in its producer's sequence; without it the store does not look for repeats."""

    producer_id: int
    producer_epoch: int
    first_sequence: int


class Decisions:
    """Turns decisions into batches.

    Args:
        journal: holds the bundles.
        topics: the targets.
        epoch: of the broker; each start uses its own sequences.
    """

    def __init__(self, journal: JournalReader, topics: Topics, *, epoch: int) -> None:
        self._journal = journal
        self._topics = topics
        self._epoch = epoch
        self._sequences = JournalSequences()
        self._bundles: dict[int, Bundle | None] = {}
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether the bundles in memory have reached the limit."""
        return self._bytes >= BYTES_MAX

    def forget_bundles(self) -> None:
        """Drops the bundles from memory."""
        self._bundles.clear()
        self._bytes = 0

    def bundle(self, number: int, *, wait: bool) -> Bundle | None:
        """Returns a bundle; None if it cannot be read any more.

        Raises:
            NotYet: it must be read from the disk first, and `wait` is False.
        """
        if number not in self._bundles:
            try:
                self._bundles[number] = bundle = self._read(number, wait=wait)
                self._bytes += sum(len(part.batch) for part in bundle.parts)
            except (DataCorrupt, FormatTooNew, OffsetOutOfRange, MalformedRequest) as error:
                _log.error("prepared transactions are lost", offset=number, reason=str(error))
                self._bundles[number] = None
        return self._bundles[number]

    def number(self, decisions: Sequence[BundleDecision]) -> Decided:
        """Chooses queues and sequences for the batches of decisions; their bundles are in memory."""
        parts = []
        for decision in decisions:
            bundle = self._bundles[decision.number]
            if bundle is None:
                continue
            for place, part in enumerate(bundle.parts):
                for aside, wanted in ((False, decision.commit), (True, decision.keep_aside)):
                    chosen = _chosen(bundle, part, wanted)
                    if not chosen:
                        continue
                    among, counts = self._shares(part, chosen, aside=aside)
                    for queue, count in counts.items():
                        first = self._sequences.take(queue, count)
                        parts.append(
                            DecidedPart(*queue, first, decision.number, place, aside, among)
                        )
        return Decided(self._epoch, list(decisions), parts)

    def batch_of(self, decision: BundleDecision, part: DecidedPart, epoch: int) -> bytearray | None:
        """Makes one batch, the same one each time; None if its bundle cannot be read any more.

        Args:
            decision: on its bundle.
            part: the batch to make.
            epoch: of the broker start that numbered it.
        """
        bundle = self.bundle(part.number, wait=True)
        if bundle is None:
            return None
        numbering = _Numbering(
            producer_id=PRODUCER_ID, producer_epoch=epoch, first_sequence=part.first_sequence
        )
        source = bundle.parts[part.part]
        queue = QueueRef(part.topic, part.queue_id)
        places = _places_of(decision, part, bundle)
        if len(places) == len(source.owners) and queue == read_header(source.batch).queue:
            return renumbered(source.batch, **numbering)
        return _cut(bundle, source, places, queue, numbering)

    def dead_batch_of(self, decision: BundleDecision, part: DecidedPart) -> bytearray | None:
        """Makes the dead letters of a batch that its queue refuses, and creates their queue.

        Raises:
            StoreFull: the queue does not exist yet, and the disk is full.
        """
        bundle = self.bundle(part.number, wait=True)
        queue = QueueRef(part.topic, part.queue_id)
        self._sequences.give_back(queue, part.first_sequence)
        self.make_dead_queue()
        if bundle is None:
            return None
        source = bundle.parts[part.part]
        places = _places_of(decision, part, bundle)
        return _cut(bundle, source, places, DEAD_TRANSACTIONS_QUEUE, _Numbering())

    def make_dead_queue(self) -> None:
        """Creates the topic of the dead letters if it is missing. Raises StoreFull."""
        if self._topics.find(DEAD_TRANSACTIONS_QUEUE.topic) is None:
            self._topics.create(CreateTopic(DEAD_TRANSACTIONS_QUEUE.topic, 1, "forever"))

    def check_takes(self, queue: QueueRef) -> None:
        """Raises unless a queue, or another one of its topic, accepts messages.

        Raises:
            TopicNotFound, QueueNotFound, QueueFrozen: no queue accepts them.
        """
        topic = self._topics.find(queue.topic)
        if topic is None or topic.retention == COMPACT or len(topic.unwritable) == topic.queues:
            self._topics.for_append(queue)

    def _shares(
        self, part: BundlePart, places: Sequence[int], *, aside: bool
    ) -> tuple[list[int], Counter[QueueRef]]:
        """Chooses the queues that get the records, and the number of records for each."""
        queue = read_header(part.batch).queue
        topic = self._topics.find(queue.topic)
        if topic is None or aside:
            if not aside:
                _log.error("a transaction's topic is gone", queue=queue)
            return [], Counter({DEAD_TRANSACTIONS_QUEUE: len(places)})
        open_ones = list(open_queues_of(topic))
        if queue.queue_id in open_ones:
            return [], Counter({queue: len(places)})
        shares = _divided(part, open_ones)
        return open_ones, Counter(QueueRef(queue.topic, shares[place]) for place in places)

    def _read(self, number: int, *, wait: bool) -> Bundle:
        header, columns = read_batch(self._journal, TRANSACTION_QUEUE, number, wait=wait)
        return decode(Bundle, columns.bodies[number - header.base_offset])


def _chosen(bundle: Bundle, part: BundlePart, transactions: Sequence[int]) -> Sequence[int]:
    """Returns the places of the records that belong to these transactions."""
    if len(transactions) == len(bundle.ids):
        return range(len(part.owners))
    if not transactions:
        return ()
    wanted = set(transactions)
    return [place for place, owner in enumerate(part.owners) if owner in wanted]


def _places_of(decision: BundleDecision, part: DecidedPart, bundle: Bundle) -> Sequence[int]:
    """Returns the places of the records of one decided batch."""
    source = bundle.parts[part.part]
    places = _chosen(bundle, source, decision.keep_aside if part.aside else decision.commit)
    if not part.among:
        return places
    shares = _divided(source, part.among)
    return [place for place in places if shares[place] == part.queue_id]


def _divided(part: BundlePart, among: Sequence[int]) -> list[int]:
    """Returns the queue of each record of a divided batch: by its key, or in turns."""
    keys: Sequence[str] = ()
    # A batch that does not decode is not delivered in the end.
    with suppress(UndecodableBatch):
        keys = decode_columns(part.batch, read_header(part.batch)).keys
    return [
        open_queue_for_key(keys[place], among)
        if keys and keys[place]
        else among[place % len(among)]
        for place in range(len(part.owners))
    ]


def _cut(
    bundle: Bundle,
    source: BundlePart,
    places: Sequence[int],
    queue: QueueRef,
    numbering: _Numbering,
) -> bytearray | None:
    header = read_header(source.batch)
    try:
        columns = decode_columns(source.batch, header)
    except UndecodableBatch as error:
        # An earlier version accepted it; without this, no later decision would be carried out.
        _log.error("messages of transactions are lost", queue=header.queue, reason=str(error))
        return None
    headers = _pick(columns.headers, places)
    if queue == DEAD_TRANSACTIONS_QUEUE:
        ids = [bundle.ids[source.owners[place]] for place in places]
        headers = _dead_headers(header, bundle.group, ids, headers)
    picked = Columns(
        _pick(columns.keys, places),
        _pick(columns.tags, places),
        headers,
        _pick(columns.bodies, places),
        _pick(columns.born_deltas, places),
    )
    return encode_batch(queue, picked, born_first_ms=header.born_first_ms, **numbering)


def _dead_headers(
    header: BatchHeader, group: str, ids: Sequence[str], headers: Sequence[dict[str, str]]
) -> list[dict[str, str]]:
    own = {TOPIC_HEADER: header.queue.topic, GROUP_HEADER: group}
    return [
        {**(headers[place] if headers else {}), **own, ID_HEADER: transaction_id}
        for place, transaction_id in enumerate(ids)
    ]


def _pick(column: Sequence[T], places: Sequence[int]) -> list[T]:
    return [column[place] for place in places] if column else []

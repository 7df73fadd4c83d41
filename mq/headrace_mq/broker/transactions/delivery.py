"""
Decisions to the batches that follow from them: read from the journal, chosen from, numbered.

A batch of which everything is committed is passed on as its producer made it; of another one the
records that were decided are taken. Where its queue takes messages no more they are divided among
those that do, as their keys say. What is kept aside goes to a topic of its own, with headers that
say where it should have gone.

Used by `coordinator`, which decides when; uses the store and the topics. It never knows the time.
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

# Not the schedule's, so that the two never count in one sequence.
PRODUCER_ID = 2
# Messages without a decision, and those whose topic can take nothing; named like a consumer group's.
DEAD_TRANSACTIONS_QUEUE = QueueRef("%DLQ%TRANSACTION", 0)
TOPIC_HEADER = RESERVED_PREFIX + "topic"
ID_HEADER = RESERVED_PREFIX + "id"
GROUP_HEADER = RESERVED_PREFIX + "group"
# Of the bundles of one turn: what is held in memory at a time, give or take one bundle.
BYTES_MAX = 8 << 20

T = TypeVar("T")

_log = get_logger(__name__)


class _Numbering(TypedDict, total=False):
    """A batch's place in its producer's sequence; without it repeats are not looked for."""

    producer_id: int
    producer_epoch: int
    first_sequence: int


class Decisions:
    """Makes decisions into batches.

    Args:
        journal: where the bundles stand.
        topics: tells which queues there are.
        epoch: of the broker; no other start of it uses the same sequences.
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
        """Whether the bundles that were read are as much as is held at a time."""
        return self._bytes >= BYTES_MAX

    def forget_bundles(self) -> None:
        """Gives back the memory of what was read."""
        self._bundles.clear()
        self._bytes = 0

    def bundle(self, number: int, *, wait: bool) -> Bundle | None:
        """Returns a bundle; None where it cannot be read any more.

        Raises:
            NotYet: it would have to wait for the disk, and shall not.
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
        """Chooses queues and sequences for what follows from decisions; their bundles were read."""
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
        """Makes one batch; the same one each time, None where its bundle cannot be read any more.

        Args:
            decision: on the bundle it is of.
            part: which batch.
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
        """Makes the batch that keeps what its queue refuses, and makes its queue.

        Raises:
            StoreFull: the queue had to be made and the disk is full.
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
        """Creates the topic of what is kept aside, where it is missing. Raises StoreFull."""
        if self._topics.find(DEAD_TRANSACTIONS_QUEUE.topic) is None:
            self._topics.create(CreateTopic(DEAD_TRANSACTIONS_QUEUE.topic, 1, "forever"))

    def check_takes(self, queue: QueueRef) -> None:
        """Raises unless messages for a queue will be taken, there or in others of its topic.

        Raises:
            TopicNotFound, QueueNotFound, QueueFrozen: none takes them.
        """
        topic = self._topics.find(queue.topic)
        if topic is None or topic.retention == COMPACT or len(topic.unwritable) == topic.queues:
            self._topics.for_append(queue)

    def _shares(
        self, part: BundlePart, places: Sequence[int], *, aside: bool
    ) -> tuple[list[int], Counter[QueueRef]]:
        """Chooses queues: those that the records are divided among, if they are, and who gets how many."""
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
    """The places of the records that are of one of the transactions."""
    if len(transactions) == len(bundle.ids):
        return range(len(part.owners))
    if not transactions:
        return ()
    wanted = set(transactions)
    return [place for place, owner in enumerate(part.owners) if owner in wanted]


def _places_of(decision: BundleDecision, part: DecidedPart, bundle: Bundle) -> Sequence[int]:
    """The places of the records of one batch that was decided on."""
    source = bundle.parts[part.part]
    places = _chosen(bundle, source, decision.keep_aside if part.aside else decision.commit)
    if not part.among:
        return places
    shares = _divided(source, part.among)
    return [place for place in places if shares[place] == part.queue_id]


def _divided(part: BundlePart, among: Sequence[int]) -> list[int]:
    """The queue of each record of a batch that is divided among queues: by its key, or in turns."""
    keys: Sequence[str] = ()
    # What does not decode goes nowhere in the end.
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
        # A broker of before took it; without this no decision behind it would be carried out.
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

"""
Which topics there are, how many queues each has, which are frozen, how long it is kept; durable.

A topic is on disk before the client gets its answer. A topic or a queue that holds messages in the
store but stands in no file (lost, or restored from an older copy) is put back at start. What was
deleted on purpose has a *grave*: the offset below which the messages belong to no queue. A queue made
again under the same name begins at that offset.
"""

import errno
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType

import msgspec

from headrace_mq._runtime.log import get_logger
from headrace_mq.access.audit import AUDIT_TOPIC
from headrace_mq.broker.files.metadata_file import MetadataFile
from headrace_mq.broker.topics import own_topics, spread_topics
from headrace_mq.broker.topics.kept import (
    KeptGrave,
    KeptTopic,
    KeptTopics,
    count,
    description_of,
    graves_within,
    identities_of,
    start_of,
)
from headrace_mq.errors import (
    BrokerError,
    InvalidArgument,
    QueueNotFound,
    StoreFull,
    TopicExists,
    TopicNotFound,
)
from headrace_mq.message import QUEUES_PER_TOPIC_MAX, QueueRef, check_topic
from headrace_mq.protocol.administration import FreezeQueues
from headrace_mq.protocol.bodies import CreateTopic, TopicDescription

__all__ = [
    "COMPACT",
    "QUEUES_MAX",
    "QUEUES_PER_REQUEST_MAX",
    "RETENTIONS",
    "Topics",
]

COMPACT = "compact"
RETENTIONS = ("transient", "forever", COMPACT)
# Over all topics, deleted queues that had messages included: what broker and store keep in memory
# for each (ranges, tail) stays below 100 MiB, and a client that names topics at random cannot fill
# the memory.
QUEUES_MAX = 65_536
# What one request is about: the loop looks at each of them, for some ten milliseconds in all. Four
# topics as large as topics may be.
QUEUES_PER_REQUEST_MAX = 4 * QUEUES_PER_TOPIC_MAX

# Of one change: a request may name thousands.
_NAMES_LOGGED_MAX = 20

_log = get_logger(__name__)


# Takes the number of queues that a client is about to make, and raises where that is too many.
Allowance = Callable[[int], None]


def _any_number(_count: int) -> None:
    return None


class Topics:
    """The broker's topics.

    Args:
        file: where they are kept.
        default_queues: queues of a topic whose creator names no number.
        auto_create: whether naming an unknown topic creates it.
    """

    def __init__(
        self, file: MetadataFile[KeptTopics], *, default_queues: int, auto_create: bool
    ) -> None:
        self._file = file
        self._default_queues = default_queues
        self._auto_create = auto_create
        self._topics: dict[str, KeptTopic] = {}
        self._graves: dict[str, KeptGrave] = {}
        self._identities: dict[str, str] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def __len__(self) -> int:
        return len(self._topics)

    @property
    def queues(self) -> int:
        """How many queues all topics have together."""
        return sum(len(kept.numbers) for kept in self._topics.values())

    def load(self, held: Iterable[tuple[QueueRef, str, int]]) -> None:
        """Reads the file and adds what the store holds beyond it.

        Args:
            held: the queues that had messages, with their topic's retention and their end.

        Raises:
            DataCorrupt: the file is damaged.
            FormatTooNew: a newer version wrote the file.
        """
        kept = self._file.read()
        topics = dict(kept.topics) if kept else {}
        witnessed = list(held)
        graves = graves_within(
            kept.graves if kept else {}, {queue: end for queue, _, end in witnessed}
        )
        found: dict[str, KeptTopic] = {}
        for queue, retention, end in witnessed:
            known = found.get(queue.topic) or topics.get(queue.topic) or KeptTopic(0, retention)
            if queue.queue_id not in known.numbers and end > start_of(graves, queue):
                found[queue.topic] = spread_topics.witnessed(known, queue.queue_id)
        if found:
            _log.warning(
                "topics were rebuilt from the stored messages",
                file=str(self._file.path),
                file_was_missing=kept is None,
                topics=sorted(found),
            )
        topics |= found
        identities = identities_of(topics, kept.identities if kept else {})
        now = KeptTopics(topics, graves, identities)
        if now != kept:
            self._file.write(now)
        self._topics, self._graves, self._identities = topics, graves, identities

    def find(self, topic: str) -> TopicDescription | None:
        """Describes a topic, or returns None."""
        kept = self._topics.get(topic)
        return description_of(topic, kept) if kept else None

    def all(self) -> list[TopicDescription]:
        """Describes every topic, by name."""
        return [description_of(topic, kept) for topic, kept in sorted(self._topics.items())]

    def queues_of(self, topic: str) -> list[QueueRef]:
        """Returns the queues of a topic. Raises TopicNotFound."""
        kept = self._topics.get(topic)
        if kept is None:
            raise _not_found(topic)
        return [QueueRef(topic, queue_id) for queue_id in kept.numbers]

    def queues_of_all(self, topics: Iterable[str], *, at_most: int) -> list[QueueRef]:
        """Returns the queues of some topics, each once; counted before any of them is made.

        Raises:
            TopicNotFound: one of them does not exist.
            InvalidArgument: they have more than `at_most` queues together.
        """
        named = dict.fromkeys(topics)
        count = 0
        for topic in named:
            kept = self._topics.get(topic)
            if kept is None:
                raise _not_found(topic)
            count += len(kept.numbers)
        if count > at_most:
            raise InvalidArgument(
                f"one request is about at most {at_most} queues, and these topics have {count};"
                " name fewer topics at a time"
            )
        return [queue for topic in named for queue in self.queues_of(topic)]

    def identity_of(self, topic: str) -> str:
        """Returns the UUID that a topic got when it was made; another one of its name has another.

        Raises:
            TopicNotFound: there is no such topic.
        """
        if topic not in self._topics:
            raise _not_found(topic)
        return self._identities[topic]

    @property
    def identities(self) -> Mapping[str, str]:
        """The identity of each topic, by its name; see `identity_of`."""
        return self._identities

    def is_settled(self, topic: str) -> bool:
        """Whether each key is known to have had one queue since the topic was made.

        Raises:
            TopicNotFound: there is no such topic.
        """
        kept = self._topics.get(topic)
        if kept is None:
            raise _not_found(topic)
        return kept.settled

    def total_of(self, topic: str) -> int:
        """Returns how many queues a topic has, over all broker groups; 0: there is no such topic."""
        kept = self._topics.get(topic)
        return 0 if kept is None else kept.queues

    def check(self, queue: QueueRef) -> None:
        """Raises TopicNotFound, QueueNotFound or QueueElsewhere unless there is such a queue."""
        self._own(queue)

    def for_append(self, queue: QueueRef) -> str:
        """Returns the retention policy of a queue that takes messages.

        Raises:
            TopicNotFound: there is no such topic.
            QueueNotFound: the topic has no queue of that number.
            QueueFrozen: the queue is frozen for writing.
            QueueElsewhere: another broker group has it.
            NotPermitted: it is one of the audit.
        """
        kept = self._topics.get(queue.topic)
        if kept is None or not 0 <= queue.queue_id < kept.queues:
            raise _missing(queue, kept)
        if queue.queue_id in kept.unwritable:
            spread_topics.require_own(queue, kept)
            raise own_topics.frozen_error(queue)
        return kept.retention

    def is_writable(self, queue: QueueRef) -> bool:
        """Whether a queue takes messages. Raises TopicNotFound, QueueNotFound."""
        return queue.queue_id not in self._own(queue).unwritable

    def is_readable(self, queue: QueueRef) -> bool:
        """Whether a queue gives messages. Raises TopicNotFound, QueueNotFound."""
        return queue.queue_id not in self._own(queue).unreadable

    def for_reading(self, queue: QueueRef) -> int | None:
        """Returns what `start_of` does, or None for a queue that is frozen for reading.

        Raises:
            TopicNotFound, QueueNotFound: there is no such queue.
            QueueElsewhere: another broker group has it.
        """
        kept = self._of(queue)
        if kept.unreadable and queue.queue_id in kept.unreadable:
            spread_topics.require_own(queue, kept)
            return None
        return start_of(self._graves, queue) if self._graves else 0

    def start_of(self, queue: QueueRef) -> int:
        """Returns the offset below which the store's messages belong to a deleted queue."""
        return start_of(self._graves, queue)

    def admit(self, topics: Iterable[str], *, may_make: Allowance = _any_number) -> None:
        """Creates those that are missing, if this broker creates topics by itself; durable.

        Not those of dead letters and of their marks: the first to be kept makes its topic, which says
        for how long. A stray message that made it transient would decide for good.

        Args:
            topics: their names.
            may_make: called with the number of new queues; its error is raised.

        Raises:
            InvalidArgument: a name is not allowed, or there are too many topics.
            StoreFull: the disk is full.
        """
        if not self._auto_create:
            return
        missing = {topic for topic in topics if topic not in self._topics}
        new = {}
        for topic in sorted(missing):
            if topic.startswith(own_topics.NOT_BY_NAME):
                continue
            grave = self._graves.get(_checked(topic))
            retention = grave.retention if grave else "transient"
            queues = 1 if topic in own_topics.JOURNALS else self._default_queues
            new[topic] = KeptTopic(queues, retention, settled=True)
        if new:
            self._change(new, may_make=may_make)

    def create(
        self, request: CreateTopic, *, may_make: Allowance = _any_number
    ) -> TopicDescription:
        """Creates a topic, adds queues to it, or confirms that it is as asked; durable.

        Args:
            request: what is asked for.
            may_make: called with the number of new queues; its error is raised.

        Raises:
            InvalidArgument: a value is out of its range.
            TopicExists: the topic has another retention policy.
            NotPermitted: it is the audit, which the broker makes itself.
            StoreFull: the disk is full.
        """
        topic, retention = _checked(request.topic), request.retention
        if retention not in RETENTIONS:
            raise InvalidArgument(
                f"retention {retention!r} is unknown; use one of {', '.join(RETENTIONS)}"
            )
        if not 0 <= request.queues <= QUEUES_PER_TOPIC_MAX:
            raise InvalidArgument(
                f"a topic has 1 to {QUEUES_PER_TOPIC_MAX} queues (0 asks for the default), not"
                f" {request.queues}"
            )
        kept = self._topics.get(topic)
        own_topics.refuse_create(request, kept)
        before = kept or self._graves.get(topic)
        if before and before.retention != retention:
            state = "exists" if kept else "was deleted, but its messages still stand in the log,"
            raise TopicExists(
                f"topic {topic!r} {state} with retention {before.retention!r}, which cannot change;"
                " use another name"
            )
        default = 1 if topic in own_topics.JOURNALS else self._default_queues
        queues = request.queues or (kept.queues if kept else default)
        if request.owned or (kept is not None and kept.owned):
            self._spread(request, kept, queues, may_make)
        elif kept is None:
            made = KeptTopic(queues, retention, settled=True)
            self._change({topic: made}, may_make=may_make)
        elif queues > kept.queues and retention == COMPACT:
            raise InvalidArgument(
                f"topic {topic!r} is compacted and keeps its {kept.queues} queues: with more of them"
                " keys would move, and what was last said of each would stay in both places; create"
                " another topic and copy the state"
            )
        elif queues > kept.queues:
            grown = msgspec.structs.replace(kept, queues=queues, settled=False)
            self._change({topic: grown}, may_make=may_make)
        return description_of(topic, self._topics[topic])

    def _spread(
        self, request: CreateTopic, kept: KeptTopic | None, queues: int, may_make: Allowance
    ) -> None:
        topic = request.topic
        made = spread_topics.spread(request, kept, queues)
        if made is None:
            return
        known = self._identities.get(topic)
        if known is not None and request.identity != known:
            raise spread_topics.another_identity(topic)
        self._change({topic: made}, may_make=may_make, identities={topic: request.identity})

    def require_whole(self, topics: Iterable[str]) -> None:
        """Raises InvalidArgument for a topic that is spread over broker groups."""
        for topic in topics:
            kept = self._topics.get(topic)
            if kept is not None and kept.owned:
                raise spread_topics.not_whole(topic)

    def keep_audit(self, retention: str) -> str:
        """Makes the topic of the audit, or closes it again for clients; durable. Returns its retention.

        Args:
            retention: where it is made.

        Raises:
            StoreFull: the disk is full.
        """
        kept = self._topics.get(AUDIT_TOPIC)
        wanted = own_topics.audit_topic(kept, retention)
        if wanted != kept:
            self._change({AUDIT_TOPIC: wanted})
        return wanted.retention

    def freeze(self, request: FreezeQueues) -> tuple[TopicDescription, list[QueueRef]]:
        """Freezes queues or opens them again; durable. Returns the topic and the queues meant.

        Raises:
            TopicNotFound, QueueNotFound: an entry names what does not exist.
            InvalidArgument: neither writing nor reading is meant.
            StoreFull: the disk is full.
        """
        topic = request.topic
        own_topics.refuse_freeze(topic)
        if not (request.writing or request.reading):
            raise InvalidArgument("say what to freeze or thaw: writing, reading, or both")
        meant = [QueueRef(topic, queue_id) for queue_id in dict.fromkeys(request.queues)]
        for queue in meant:
            self._own(queue)
        meant = meant or self.queues_of(topic)
        kept = self._topics[topic]
        numbers = {queue.queue_id for queue in meant}

        def after(frozen: Collection[int]) -> tuple[int, ...]:
            left = set(frozen) | numbers if request.frozen else set(frozen) - numbers
            return tuple(sorted(left))

        changed = msgspec.structs.replace(
            kept,
            unwritable=after(kept.unwritable) if request.writing else kept.unwritable,
            unreadable=after(kept.unreadable) if request.reading else kept.unreadable,
        )
        if changed.unwritable != kept.unwritable:
            changed = msgspec.structs.replace(changed, settled=False)
        if changed != kept:
            self._change({topic: changed})
        return description_of(topic, changed), meant

    def delete(self, topic: str, keep: int, ends: Mapping[int, int]) -> None:
        """Deletes a topic's queues from number `keep` on, all of it with 0; durable.

        Args:
            topic: an existing topic.
            keep: how many queues stay.
            ends: what the store knows as the next offset of each queue that goes.

        Raises:
            TopicNotFound: there is no such topic.
            TopicInUse: messages of the broker's own wait in it.
            StoreFull: the disk is full; nothing was deleted.
        """
        own_topics.refuse_delete(topic)
        kept = self._topics.get(topic)
        if kept is None:
            raise _not_found(topic)
        held = {number: end for number, end in ends.items() if end}
        grave = self._graves.get(topic, KeptGrave(kept.retention, {}))
        graves = {topic: KeptGrave(grave.retention, grave.ends | held)} if held else {}
        left = msgspec.structs.replace(
            kept,
            queues=keep,
            settled=False,
            unwritable=tuple(number for number in kept.unwritable if number < keep),
            unreadable=tuple(number for number in kept.unreadable if number < keep),
        )
        self._change({topic: left if keep else None}, graves)

    def _of(self, queue: QueueRef) -> KeptTopic:
        kept = self._topics.get(queue.topic)
        if kept is None or not 0 <= queue.queue_id < kept.queues:
            raise _missing(queue, kept)
        return kept

    def _own(self, queue: QueueRef) -> KeptTopic:
        kept = self._of(queue)
        spread_topics.require_own(queue, kept)
        return kept

    def _change(
        self,
        changed: Mapping[str, KeptTopic | None],
        buried: Mapping[str, KeptGrave] | None = None,
        *,
        may_make: Allowance = _any_number,
        identities: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        merged = {**self._topics, **changed}
        topics = {topic: kept for topic, kept in merged.items() if kept is not None}
        graves = {**self._graves, **(buried or {})}
        queues = count(topics, graves)
        before = count(self._topics, self._graves)
        if queues > QUEUES_MAX and queues > before:
            raise InvalidArgument(
                f"a broker has at most {QUEUES_MAX} queues over all topics, deleted ones that had"
                f" messages included; this would make {queues}: use fewer queues per topic, or"
                " another broker"
            )
        if queues > before:
            may_make(queues - before)
        identities = identities_of(topics, {**self._identities, **identities})
        try:
            self._file.write(KeptTopics(topics, graves, identities))
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            raise StoreFull(
                f"the disk of {self._file.path} is full and the topic stays as it was; free some"
                " space, then try again"
            ) from error
        self._topics, self._graves, self._identities = topics, graves, identities
        _log.info(
            "topics changed",
            changed=sorted(changed)[:_NAMES_LOGGED_MAX], topics=len(topics), queues=queues,
        )  # fmt: skip


def _checked(topic: str) -> str:
    try:
        return check_topic(topic)
    except ValueError as error:
        raise InvalidArgument(str(error)) from error


def _not_found(topic: str) -> TopicNotFound:
    return TopicNotFound(f"there is no topic {topic!r}; create it first, or correct the name")


def _missing(queue: QueueRef, kept: KeptTopic | None) -> BrokerError:
    """Says that there is no such queue, or no such topic where none is kept."""
    if kept is None:
        return _not_found(queue.topic)
    return QueueNotFound(
        f"topic {queue.topic!r} has queues 0 to {kept.queues - 1}, not {queue.queue_id};"
        " ask for its description again"
    )

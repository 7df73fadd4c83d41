"""
PRODUCE: batches in, appended one after the other, answered when they are durable.

Called by the dispatcher; uses the store. Of a payload only the structure is looked at; those to the
schedule and of transactions are decoded, of those to compacted topics the keys are.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice

from headrace_mq._net.server import Connection
from headrace_mq._runtime.log import get_logger
from headrace_mq.access.resources import JOURNAL_TOPICS, Action, Ask, ResourceKind
from headrace_mq.broker.handlers.throttle import hold_produce
from headrace_mq.broker.peers.peers import Peer
from headrace_mq.broker.quotas.creations import QUEUES
from headrace_mq.broker.schedule import delivery as schedule_delivery
from headrace_mq.broker.state import BrokerState
from headrace_mq.broker.topics.topics import COMPACT
from headrace_mq.broker.transactions import delivery as transaction_delivery
from headrace_mq.errors import (
    BrokerError,
    BrokerStopping,
    CorruptBatch,
    DataCorrupt,
    InvalidArgument,
    MalformedRequest,
    ResponseCode,
    TopicNotFound,
)
from headrace_mq.message import check_topic
from headrace_mq.protocol.batch import BatchHeader, read_header, split_batches
from headrace_mq.protocol.bodies import ProduceAnswer, Produced, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import FLAG_ONEWAY, Frame
from headrace_mq.protocol.keys import keyless
from headrace_mq.protocol.scheduled import SCHEDULE_TOPIC
from headrace_mq.protocol.transactions import TRANSACTION_TOPIC
from headrace_mq.store.log.batch_check import check_decodable

__all__ = ["BATCHES_PER_REQUEST_MAX", "produce"]

# A batch for each of as many queues: some twenty milliseconds of the loop's time.
BATCHES_PER_REQUEST_MAX = 4_096

# The broker's own.
_OWN_IDS = frozenset({schedule_delivery.PRODUCER_ID, transaction_delivery.PRODUCER_ID})

_log = get_logger(__name__)


def produce(state: BrokerState, connection: Connection, frame: Frame) -> tuple[bytes] | None:
    """Appends the batches of a request; each gets a result of its own, in their order.

    Raises:
        BrokerStopping: nothing was appended; try again soon.
        MalformedRequest: the body is not a row of batches; nothing was appended.
        InvalidArgument: there are too many of them; nothing was appended.
        Throttled: a quota is used up, and too many requests wait for it already.
    """
    if state.stopping:
        raise BrokerStopping("the broker is stopping and accepts no messages; try again soon")
    try:
        batches = list(islice(split_batches(frame.body), BATCHES_PER_REQUEST_MAX + 1))
    except DataCorrupt as error:
        raise MalformedRequest(f"the body is not a sequence of record batches: {error}") from error
    if not batches:
        raise MalformedRequest("a PRODUCE request holds at least one record batch")
    if len(batches) > BATCHES_PER_REQUEST_MAX:
        raise InvalidArgument(
            f"a PRODUCE request holds at most {BATCHES_PER_REQUEST_MAX} record batches; send the"
            " others in another one"
        )
    if state.limited and hold_produce(
        state, connection, frame, batches, lambda: _store(state, connection, frame, batches)
    ):
        return None
    return _store(state, connection, frame, batches)


def _store(
    state: BrokerState, connection: Connection, frame: Frame, batches: Sequence[memoryview]
) -> tuple[bytes] | None:
    peer = state.peers.get(connection)
    request = _Request(connection, batches)
    results = [_produce_batch(state, peer, batch, request) for batch in batches]
    if frame.flags & FLAG_ONEWAY:
        return None
    if all(result.code for result in results):
        return (encode(ProduceAnswer(results)),)
    state.acknowledgements.hold(connection, frame.correlation, results, len(frame.body))
    return None


class _Request:
    """The batches that came together, for what is done once for all of them."""

    __slots__ = ("_batches", "_connection", "_refusal", "_tried")

    def __init__(self, connection: Connection, batches: Sequence[memoryview]) -> None:
        self._connection = connection
        self._batches = batches
        self._tried = False
        self._refusal: BrokerError | None = None

    def admit(self, state: BrokerState, topic: str) -> None:
        """Creates a topic, and with it all others that the request names: each time writes a file."""
        try:
            check_topic(topic)
        except ValueError as error:
            raise InvalidArgument(str(error)) from error
        if state.guard is not None and topic not in JOURNAL_TOPICS:
            state.guard.require(self._connection, _create(topic), RequestCode.PRODUCE)
        if not self._tried:
            self._tried = True
            may_make = state.may_make(self._connection, QUEUES)
            named = self._topics(state)
            missing = [] if state.audit is None else sorted(named - state.topics.identities.keys())
            try:
                state.topics.admit(named, may_make=may_make)
            except BrokerError as error:
                self._refusal = error
            self._note(state, [topic for topic in missing if topic in state.topics])
        if self._refusal is not None:
            # A new one: an error that is raised again and again collects all their tracebacks.
            raise type(self._refusal)(str(self._refusal))

    def _note(self, state: BrokerState, made: list[str]) -> None:
        if state.audit is not None and made:
            topics = "; ".join(f"topic:{topic}" for topic in made)
            state.audit.note(self._connection, "produce", "done", resource=topics, detail="create")

    def permit(self, state: BrokerState, topics: Iterable[str], groups: Iterable[str] = ()) -> None:
        """Raises NotPermitted unless the client may send to topics, and for groups of producers."""
        if state.guard is not None:
            for topic in topics:
                state.guard.require_publish(self._connection, topic)
            for group in groups:
                ask = Ask(Action.PUBLISH, ResourceKind.GROUP, group)
                state.guard.require(self._connection, ask, RequestCode.PRODUCE)

    def _topics(self, state: BrokerState) -> set[str]:
        """The topics of all batches that can be read, but for those that may not be made."""
        found = set()
        for batch in self._batches:
            with suppress(DataCorrupt, ValueError):
                found.add(check_topic(read_header(batch).queue.topic))
        guard = state.guard
        if guard is None:
            return found
        return {topic for topic in found if guard.allows(self._connection, _create(topic))}


def _create(topic: str) -> Ask:
    return Ask(Action.CREATE, ResourceKind.TOPIC, topic)


def _produce_batch(
    state: BrokerState, peer: Peer | None, batch: memoryview, request: _Request
) -> Produced:
    try:
        header = read_header(batch)
    except DataCorrupt as error:
        sentence = f"the batch cannot be read, send it again: {error}"
        return Produced("", 0, -1, ResponseCode.CORRUPT_BATCH, sentence)
    queue = header.queue
    try:
        base_offset, duplicate = _append(state, header, batch, request)
    except BrokerError as error:
        return Produced(queue.topic, queue.queue_id, -1, error.code, str(error))
    except Exception:  # noqa: BLE001 - one batch must not take away the answers of those before it
        _log.exception("a batch could not be appended", topic=queue.topic, queue=queue.queue_id)
        sentence = "the broker failed on this batch and wrote the reason to its log; report it"
        return Produced(queue.topic, queue.queue_id, -1, ResponseCode.INTERNAL_ERROR, sentence)
    if peer is not None and header.producer_id != peer.producer_id:
        state.producers.meet(peer, header.producer_id)
    if not duplicate:
        if peer is not None:
            peer.produced += header.count
        now_ms = state.clock.monotonic_ms()
        state.produced.add(queue, now_ms, header.count, header.length)
    return Produced(queue.topic, queue.queue_id, base_offset, duplicate=duplicate)


def _append(
    state: BrokerState, header: BatchHeader, batch: memoryview, request: _Request
) -> tuple[int, bool]:
    if len(batch) > state.batch_bytes_max:
        raise InvalidArgument(
            f"a record batch has at most {state.batch_bytes_max} bytes here, this one has"
            f" {len(batch)}; send smaller batches"
        )
    if header.producer_id in _OWN_IDS:
        raise InvalidArgument(
            f"producer id {header.producer_id} is the broker's own; take a random one of 63 bits"
        )
    check_decodable(batch, header)
    try:
        retention = _admit(state, header, batch, request)
    except BrokerError:
        # What was stored before its producer lost the connection is not refused when it comes
        # again: the producer would send it to another queue, and it would stand in both.
        repeated = state.store.repeated(batch, header)
        if repeated is None:
            raise
        return repeated
    return state.store.append(batch, retention=retention, header=header)


def _admit(state: BrokerState, header: BatchHeader, batch: memoryview, request: _Request) -> str:
    """Returns the retention of the queue if it takes new messages; raises BrokerError if not."""
    state.check_room()
    topic = header.queue.topic
    if state.limited:
        state.backlogs.check(topic)
    if topic == SCHEDULE_TOPIC:
        topics = state.scheduler.check(header, batch)
        request.permit(state, topics)
        state.topics.require_whole(topics)
    elif topic == TRANSACTION_TOPIC:
        topics, groups = state.transactions.check(header, batch)
        request.permit(state, topics, groups)
        state.topics.require_whole(topics)
    elif state.guard is not None:
        request.permit(state, (topic,))
    try:
        retention = state.topics.for_append(header.queue)
    except TopicNotFound:
        request.admit(state, topic)
        retention = state.topics.for_append(header.queue)
    if retention == COMPACT:
        _check_keys(header, batch)
    return retention


def _check_keys(header: BatchHeader, batch: memoryview) -> None:
    try:
        without = keyless(batch, header)
    except DataCorrupt as error:
        raise CorruptBatch(f"the batch cannot be read, send it again: {error}") from error
    if without:
        raise InvalidArgument(
            f"topic {header.queue.topic!r} keeps the last message of each key, and {without} of"
            f" {header.count} messages have none; send each with a key"
        )

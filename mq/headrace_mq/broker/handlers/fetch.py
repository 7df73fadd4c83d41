"""
FETCH: whole batches of many queues in one answer, now or as soon as there are some.

Called by the dispatcher; uses the store. Batches are passed on as the store returns them.
"""

import sys
from collections.abc import Collection, Mapping
from time import perf_counter
from typing import NamedTuple

import msgspec

from headrace_mq._net.server import Connection
from headrace_mq.access.heads import HeadRoom, head_of
from headrace_mq.broker.fetch.long_poll import ParkedFetch
from headrace_mq.broker.fetch.scan import ReadLimits, Scan
from headrace_mq.broker.handlers.throttle import charge_fetched, hold_fetch, room_to_fetch
from headrace_mq.broker.quotas.quotas import Room
from headrace_mq.broker.refusals import refuse
from headrace_mq.broker.state import BrokerState
from headrace_mq.broker.users.guard import Guard
from headrace_mq.errors import BrokerError, InvalidArgument, QueueElsewhere, ResponseCode
from headrace_mq.filters.filter import InvalidFilter
from headrace_mq.message import QueueRef, check_topic
from headrace_mq.protocol.batch import record_count
from headrace_mq.protocol.bodies import (
    Fetch,
    FetchAnswer,
    FetchedQueue,
    Picked,
    decode,
    encode_fetch_answer,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.filter.batch_filter import BatchFilter
from headrace_mq.protocol.frame import Frame

__all__ = [
    "FILTER_CHARACTERS_MAX",
    "QUEUES_PER_FETCH_MAX",
    "answer_nothing",
    "fetch",
    "serve_parked",
]

# As many as one topic has; a consumer of more queues sends several fetches.
QUEUES_PER_FETCH_MAX = 1_024
# Of the different conditions of one fetch: four of the longest ones take ten milliseconds to understand.
FILTER_CHARACTERS_MAX = 8_192
# The numbers of a queue's state in msgpack, at most.
_STATE_BYTES = 48
# What comes from the disk is on its way: a fetch waits for it this long even if it asked for what
# is there at once. Far more than a disk takes that works.
_DISK_WAIT_MS = 5_000
# As many messages as there are: there is no quota.
_ALL = sys.maxsize

_NO_BODY = memoryview(b"")

Parts = tuple[bytes | memoryview, ...]

_new = tuple.__new__


class _Taken(NamedTuple):
    """What an answer is given of one queue, and the offset to go on at where that must be said."""

    batches: list[bytes | memoryview]
    picked: list[Picked]
    size: int
    messages: int
    next: int


_NOTHING = _Taken([], [], 0, 0, -1)


class _Found(NamedTuple):
    """An answer, or None without anything to say, and whether something comes from the disk."""

    answer: Parts | None
    coming: bool


_PAUSED = _Found(None, coming=False)


def fetch(state: BrokerState, connection: Connection, frame: Frame) -> Parts | None:
    """Answers with what there is, or waits for an append or the disk when there is nothing.

    Raises:
        InvalidArgument: a value is out of its range.
        NotPermitted: the user may not read a topic, or not for the group.
        Throttled: a quota is used up, and too many requests wait for it already.
    """
    request = decode(Fetch, frame.body)
    _check(state, request)
    if state.guard is not None:
        _require(state.guard, connection, request)
    peer = state.peers.get(connection)
    if peer is not None:
        peer.reads = True
    # Of a queue that is named twice, the last place counts.
    offsets = {_new(QueueRef, (item.topic, item.queue_id)): item.offset for item in request.queues}
    if state.limited and _hold(state, connection, frame, request, offsets):
        return None
    return _answer(state, connection, frame, request, offsets)


def _answer(
    state: BrokerState,
    connection: Connection,
    frame: Frame,
    request: Fetch,
    offsets: Mapping[QueueRef, int],
) -> Parts | None:
    since_s = perf_counter()
    # Of a group that an operator paused nothing is there.
    paused = request.group in state.limits.paused
    found, coming = _PAUSED if paused else _read(state, connection, request, offsets, offsets)
    wait_ms = min(request.wait_ms, state.settings.fetch_wait_ms_max)
    if coming:
        wait_ms = max(wait_ms, _DISK_WAIT_MS)
    if found:
        state.fetch_times.add(perf_counter() - since_s)
        return found
    if wait_ms == 0 or state.stopping or frame.is_oneway:
        return _nothing()
    parked = ParkedFetch(connection, frame.correlation, request, offsets)
    return None if state.long_poll.park(parked, wait_ms) else _nothing()


def serve_parked(state: BrokerState, parked: ParkedFetch, queues: Collection[QueueRef]) -> bool:
    """Answers a woken fetch from some of its queues; False: there is still nothing to read."""
    if parked.request.group in state.limits.paused:
        return False
    if state.guard is not None and _is_forbidden(state.guard, parked):
        return True
    if state.limited and _owes(state, parked):
        return True
    since_s = perf_counter()
    request, offsets = parked.request, parked.offsets
    if len(queues) == 1 and not (request.filters or request.heads or state.limited):
        (queue,) = queues
        served = _serve_one(state, parked, queue, offsets[queue])
    else:
        found, _ = _read(state, parked.connection, request, offsets, queues)
        served = bool(found)
        if found:
            _hand_over(parked, found)
    if served:
        state.fetch_times.add(perf_counter() - since_s)
    return served


def _serve_one(state: BrokerState, parked: ParkedFetch, queue: QueueRef, offset: int) -> bool:
    """The same from one queue that grew, as most fetches are woken: with as little as possible."""
    request = parked.request
    status, readable = _look_at(state, queue, offset, group=request.group)
    if status is None:
        return False
    found: list[bytes | memoryview] = []
    if readable:
        bytes_max = min(request.bytes_max, state.batch_bytes_max)
        found = state.store.read_now(queue, offset, bytes_max) or []
        if not found:
            return False
    _hand_over(parked, (encode_fetch_answer(FetchAnswer([status])), *found))
    if found:
        messages = sum(map(record_count, found))
        state.note_fetched(request.group, queue, messages, sum(map(len, found)))
    return True


def _hand_over(parked: ParkedFetch, found: Parts) -> None:
    """Writes an answer at once: it has waited for an append and a sync already."""
    parked.connection.gather()
    parked.connection.answer(ResponseCode.OK, parked.correlation, *found)
    parked.connection.flush()


def answer_nothing(parked: ParkedFetch) -> None:
    """Answers a fetch whose time ran out."""
    parked.connection.answer(ResponseCode.OK, parked.correlation, *_nothing())


def _owes(state: BrokerState, parked: ParkedFetch) -> bool:
    """Lets a woken fetch wait for a quota, or refuses it; False: it may be served."""
    connection = parked.connection
    frame = Frame(RequestCode.FETCH, connection.version, 0, parked.correlation, _NO_BODY)
    try:
        return _hold(state, connection, frame, parked.request, parked.offsets)
    except BrokerError as error:
        refuse(connection, frame, error)
        return True


def _is_forbidden(guard: Guard, parked: ParkedFetch) -> bool:
    """Refuses a woken fetch whose user may not read there any more; False: it may be served."""
    connection, request = parked.connection, parked.request
    try:
        _require(guard, connection, request)
    except BrokerError as error:
        frame = Frame(RequestCode.FETCH, connection.version, 0, parked.correlation, _NO_BODY)
        refuse(connection, frame, error)
        return True
    return False


def _require(guard: Guard, connection: Connection, request: Fetch) -> None:
    if request.heads:
        guard.require_heads(connection, _topics(request), RequestCode.FETCH)
    else:
        guard.require_fetch(connection, _topics(request), request.group)


def _topics(request: Fetch) -> set[str]:
    return {item.topic for item in request.queues}


def _hold(
    state: BrokerState,
    connection: Connection,
    frame: Frame,
    request: Fetch,
    offsets: Mapping[QueueRef, int],
) -> bool:
    if state.stopping:
        return False
    # Without the body: it would keep all bytes alive that arrived with it.
    bare = frame._replace(body=_NO_BODY)
    return hold_fetch(
        state,
        connection,
        bare,
        _topics(request),
        lambda: _resume(state, connection, bare, request, offsets),
    )


def _resume(
    state: BrokerState,
    connection: Connection,
    frame: Frame,
    request: Fetch,
    offsets: Mapping[QueueRef, int],
) -> Parts | None:
    """Serves a fetch that has waited; a client that reads nothing gets nothing more for now."""
    if not connection.congested or frame.is_oneway:
        return _answer(state, connection, frame, request, offsets)
    parked = ParkedFetch(connection, frame.correlation, request, offsets)
    wait_ms = state.settings.fetch_wait_ms_max
    return None if state.long_poll.park(parked, wait_ms) else _nothing()


def _nothing() -> Parts:
    return (encode_fetch_answer(FetchAnswer([])),)


def _check(state: BrokerState, request: Fetch) -> None:
    if not 1 <= len(request.queues) <= QUEUES_PER_FETCH_MAX:
        raise InvalidArgument(
            f"a fetch names 1 to {QUEUES_PER_FETCH_MAX} queues, not {len(request.queues)}; send"
            " several fetches"
        )
    if request.bytes_max < 1 or request.wait_ms < 0:
        raise InvalidArgument("bytes_max of a fetch is at least 1, and wait_ms is not negative")
    if request.heads and (request.group or request.filters):
        raise InvalidArgument(
            "heads are for looking at messages: fetch them without group and filters"
        )
    for topic in {item.topic for item in request.queues}:
        if topic not in state.topics:
            try:
                check_topic(topic)
            except ValueError as error:
                raise InvalidArgument(str(error)) from error
    asked = sum(map(len, {one.condition for one in request.filters}))
    if len(request.filters) > QUEUES_PER_FETCH_MAX or asked > FILTER_CHARACTERS_MAX:
        raise InvalidArgument(
            f"a fetch has at most {QUEUES_PER_FETCH_MAX} filters, and together their different"
            f" conditions have at most {FILTER_CHARACTERS_MAX} characters; send several fetches"
        )
    try:
        _batch_filters(state, request)
    except InvalidFilter as error:
        raise InvalidArgument(str(error)) from error


def _batch_filters(state: BrokerState, request: Fetch) -> dict[str, BatchFilter]:
    return {one.topic: state.batch_filters(one.condition) for one in request.filters}


def _read(
    state: BrokerState,
    connection: Connection,
    request: Fetch,
    offsets: Mapping[QueueRef, int],
    queues: Collection[QueueRef],
) -> _Found:
    """Reads whole batches, at least one and at most about `bytes_max`, without waiting.

    `offsets` says from where, for every queue of the request; only `queues` are looked at.
    """
    limit = state.batch_bytes_max
    budget = min(request.bytes_max, limit)
    batch_filters = _batch_filters(state, request)
    room = room_to_fetch(state, connection, _topics(request)) if state.limited else None
    # What a quota leaves over would have been looked through in vain.
    ahead = state.ahead if room is None else None
    bytes_max = state.settings.scan_bytes_max
    scan = Scan(state.store, state.clock, bytes_max, picks=request.picks, ahead=ahead)
    if room is not None:
        budget = min(budget, max(1, room.size))
    hidden, heads = _hidden(state, connection, request), HeadRoom()
    answer = FetchAnswer([], [])
    batches: list[bytes | memoryview] = []
    used, states_bytes, coming = 0, 0, False
    for queue in _in_turn(state, queues):
        batch_filter = batch_filters.get(queue.topic)
        status, readable = _look_at(state, queue, offsets[queue], group=request.group)
        is_full, is_hidden = room is not None and used and room.messages <= 0, queue.topic in hidden
        if status is None or is_full or (is_hidden and heads.is_over):
            continue
        bounds = ReadLimits(budget - used, _ALL if room is None else room.messages, limit - used)
        taken: _Taken | None = _NOTHING
        if readable and batch_filter:
            taken = _selected(scan, queue, offsets[queue], batch_filter, bounds)
        elif readable:
            taken = _whole(state, queue, offsets[queue], bounds, room, first=not used)
            taken = _shown(taken, heads) if is_hidden else taken
        if taken is None:
            coming = True
            continue
        if readable and not taken.batches and taken.next < 0:
            continue
        states_bytes += _STATE_BYTES + len(status.topic) + len(status.sentence)
        if states_bytes > state.states_bytes_max:
            break
        if taken.next >= 0:
            status = msgspec.structs.replace(status, next=taken.next)
        answer.queues.append(status)
        batches += taken.batches
        answer.picked.extend(taken.picked)
        if taken.messages:
            state.note_fetched(request.group, queue, taken.messages, taken.size)
            room = _charged(state, connection, queue, taken, room)
        used += taken.size
        if used >= budget or (batch_filter and scan.is_over):
            break
    return _Found((encode_fetch_answer(answer), *batches) if answer.queues else None, coming)


def _hidden(state: BrokerState, connection: Connection, request: Fetch) -> Collection[str]:
    """The topics of which the user may see heads alone; asked with each answer, because rules change."""
    guard = state.guard
    if guard is None or not request.heads:
        return ()
    return {topic for topic in _topics(request) if guard.hides(connection, topic)}


def _shown(taken: _Taken | None, room: HeadRoom) -> _Taken | None:
    """The heads of what is taken of a queue, as far as the answer has room; what was read for them counts as its size."""
    if taken is None:
        return None
    kept = room.take(taken.batches)
    made: list[bytes | memoryview] = [memoryview(head_of(batch)) for batch in kept]
    size = sum(max(len(one), len(head)) for one, head in zip(kept, made, strict=True))
    return taken._replace(batches=made, size=size, messages=sum(map(record_count, kept)))


def _charged(
    state: BrokerState, connection: Connection, queue: QueueRef, taken: _Taken, room: Room | None
) -> Room | None:
    """Charges quotas for what an answer is given; returns what they have room for then."""
    if room is None:
        return None
    charge_fetched(state, connection, queue.topic, taken.messages, taken.size)
    return room.without(taken.messages, taken.size)


def _selected(
    scan: Scan, queue: QueueRef, offset: int, batch_filter: BatchFilter, bounds: ReadLimits
) -> _Taken | None:
    """What is selected of a queue; None while something of it is still to come."""
    selected = scan.read(queue, offset, batch_filter, bounds)
    if selected is None:
        return None
    found, go_on = selected
    return _Taken(found.batches, found.picked, found.size, found.count, go_on)


def _whole(
    state: BrokerState,
    queue: QueueRef,
    offset: int,
    bounds: ReadLimits,
    room: Room | None,
    *,
    first: bool,
) -> _Taken | None:
    """The next batches of a queue for which the answer and the quotas have room.

    At least one if the answer is empty. None while they come from the disk.
    """
    found = state.store.read_now(queue, offset, bounds.bytes_enough)
    if found is None:
        return None
    size = sum(map(len, found))
    while found and not first and size > bounds.bytes_max:
        size -= len(found.pop())
    if room is not None and found:
        found = room.take(found, map(record_count, found), one=first)
        size = sum(map(len, found))
    return _new(_Taken, (found, [], size, sum(map(record_count, found)), -1))


def _in_turn(state: BrokerState, queues: Collection[QueueRef]) -> Collection[QueueRef]:
    """The queues, beginning at another one each time: who comes first gets most of the answer."""
    if len(queues) <= 1:
        return queues
    start, order = state.next_turn(len(queues)), list(queues)
    return order[start:] + order[:start]


def _look_at(
    state: BrokerState, queue: QueueRef, offset: int, *, group: str
) -> tuple[FetchedQueue | None, bool]:
    """Returns the queue's state, or None without anything to say, and whether it is to be read."""
    try:
        start = state.topics.for_reading(queue)
    except BrokerError as error:
        missing = isinstance(error, QueueElsewhere)
        code = ResponseCode.QUEUE_ELSEWHERE if missing else ResponseCode.QUEUE_NOT_FOUND
        return FetchedQueue(*queue, 0, 0, code, str(error)), False
    first, end = state.store.range(queue)
    # Consumers of a group wait at a frozen queue, as if nothing came.
    if (start is None and group) or (start is not None and offset == end):
        return None, False
    if start is None:
        sentence = f"queue {queue.topic}/{queue.queue_id} is frozen for reading; thaw it first"
        first, end = state.range(queue)
        return FetchedQueue(*queue, first, end, ResponseCode.QUEUE_FROZEN, sentence), False
    first = max(first, start)
    if state.limited and state.backlogs.drops(group):
        # What the group skipped is not for its members either, though it is still there.
        first = max(first, state.offsets.get(group, queue))
    if not first <= offset < end:
        sentence = (
            f"queue {queue.topic}/{queue.queue_id} can be read from offset {first} to {end}, not"
            f" {offset}; continue at one of these"
        )
        return FetchedQueue(*queue, first, end, ResponseCode.OFFSET_OUT_OF_RANGE, sentence), False
    return FetchedQueue(*queue, first, end), True

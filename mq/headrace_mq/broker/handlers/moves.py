"""
RESET_OFFSETS, CLONE_OFFSETS and DELETE_GROUP: where a group shall stand from now on.

All of a request happens or nothing, only while the group has no members, and the answer comes when
it is on disk. A dry run answers the same moves.

Called by the dispatcher; uses the broker's `offsets`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from headrace_mq._net.server import Connection
from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.groups.last_resets import LastReset, hindrance
from headrace_mq.broker.groups.offsets import NEVER
from headrace_mq.broker.handlers.sessions import check_name
from headrace_mq.broker.quotas.creations import OFFSETS
from headrace_mq.broker.state import BrokerState
from headrace_mq.broker.topics.topics import QUEUES_PER_REQUEST_MAX
from headrace_mq.errors import (
    GroupNotFound,
    InvalidArgument,
    OffsetOutOfRange,
    StoreFull,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.administration import (
    CloneOffsets,
    DeleteGroup,
    OffsetMove,
    OffsetMoves,
    ResetOffsets,
)
from headrace_mq.protocol.bodies import decode, encode
from headrace_mq.protocol.frame import Frame

__all__ = ["TARGETS", "clone_offsets", "delete_group", "move", "reset_offsets"]

# Queues that a refusal names.
REASONS_MAX = 5
# Back to where the group stood before the last move.
UNDO = "undo"
# Where a group can be sent.
TARGETS = ("earliest", "latest", "offset", "time", "shift", UNDO)


class _Plan(NamedTuple):
    """A group and its new offsets; NEVER takes an offset away."""

    group: str
    after: Mapping[QueueRef, int]
    dry_run: bool
    # Of an undo: what it takes back, and why it cannot.
    undone: LastReset | None = None
    hindered: str = ""


_log = get_logger(__name__)


def move(queue: QueueRef, held: tuple[int, int], before: int, after: int) -> OffsetMove:
    """Tells what moving an offset means for the messages that a queue holds.

    Args:
        queue: which one.
        held: its first and its end.
        before: where the group stands, or NEVER: then it has passed nothing.
        after: where it shall stand, or NEVER: then it is taken to begin at the first.
    """
    first, end = held
    passed, shall_pass = max(before, first), max(after, first)
    return OffsetMove(
        *queue,
        first,
        end,
        before,
        after,
        redelivered=max(0, passed - shall_pass),
        skipped=max(0, shall_pass - passed),
    )


def reset_offsets(state: BrokerState, connection: Connection, frame: Frame) -> tuple[bytes] | None:
    """Moves a group to an offset, a time, an end, or by a number of messages.

    Raises:
        GroupNotEmpty: it has members.
        GroupNotFound: no topics are named and the group has no offsets.
        TopicNotFound, QueueNotFound, OffsetOutOfRange: an entry names what does not exist.
        InvalidArgument: the target is unknown, there are too many queues for one answer, or an undo cannot be done.
    """
    request = decode(ResetOffsets, frame.body)
    check_name("group", request.group)
    state.groups.require_idle(request.group)
    if request.to not in TARGETS:
        raise InvalidArgument(f"{request.to!r} is no target; use one of {', '.join(TARGETS)}")
    if request.to == UNDO:
        return _apply(state, connection, frame, _undo(state, request))
    queues = _queues(state, request.group, request.topics, request.queues)
    after = {queue: _target(state, request, queue) for queue in queues}
    return _apply(state, connection, frame, _Plan(request.group, after, request.dry_run))


def clone_offsets(state: BrokerState, connection: Connection, frame: Frame) -> tuple[bytes] | None:
    """Lets a group stand where another one stands, which may be at work.

    Raises:
        GroupNotEmpty: the target has members.
        GroupNotFound: the source has no offsets.
        TopicNotFound: a named topic does not exist.
        InvalidArgument: a name is not allowed, or there are too many queues for one answer.
    """
    request = decode(CloneOffsets, frame.body)
    check_name("group", request.target)
    state.groups.require_idle(request.target)
    source = state.offsets.of(request.source)
    after = {
        queue: source[queue]
        for queue in _queues(state, request.source, request.topics, [])
        if queue in source
    }
    if not after:
        raise _no_offsets(request.source)
    return _apply(state, connection, frame, _Plan(request.target, after, request.dry_run))


def delete_group(state: BrokerState, connection: Connection, frame: Frame) -> tuple[bytes] | None:
    """Drops all offsets of a group.

    Raises:
        GroupNotEmpty: it has members.
        GroupNotFound: it has no offsets.
    """
    request = decode(DeleteGroup, frame.body)
    state.groups.require_idle(request.group)
    after = dict.fromkeys(state.offsets.of(request.group), NEVER)
    if not after:
        raise _no_offsets(request.group)
    return _apply(state, connection, frame, _Plan(request.group, after, request.dry_run))


def _undo(state: BrokerState, request: ResetOffsets) -> _Plan:
    """Plans to take the last move of a group back, all of it."""
    group = request.group
    if request.topics or request.queues:
        raise InvalidArgument("an undo takes back all of a move; name no topics and queues")
    reset = state.offsets.resets.get(group)
    if reset is None:
        raise GroupNotFound(
            f"of group {group!r} no move is kept that could be taken back: it was not moved, its move was taken back"
            " already, or many other groups were moved since"
        )
    # A dry run said which move that is, and its asker confirmed this one.
    if request.value not in {0, reset.at_ms}:
        raise InvalidArgument(
            f"group {group!r} was moved once more since you looked, by {reset.by}; look again, with a dry run"
        )
    after, reasons = {}, []
    for queue, (before, put) in reset.moves.items():
        first, end = state.range(queue)
        now = state.offsets.get(group, queue)
        if reason := hindrance(queue, first, (before, put), now):
            reasons.append(reason)
        # What is gone by age cannot be gone back to.
        after[queue] = before if before == NEVER else min(max(before, first), end)
    hindered = ""
    if reasons:
        more = f", and {len(reasons) - REASONS_MAX:,} more" if len(reasons) > REASONS_MAX else ""
        hindered = (
            f"group {group!r} has gone on since it was moved: {'; '.join(reasons[:REASONS_MAX])}{more}. `headrace group"
            " reset` moves it to any place"
        )
    if hindered and not request.dry_run:
        raise InvalidArgument(hindered)
    return _Plan(group, after, request.dry_run, reset, hindered)


def _queues(
    state: BrokerState, group: str, topics: Iterable[str], numbers: Iterable[int]
) -> list[QueueRef]:
    named = list(dict.fromkeys(topics))
    if not named:
        committed = state.offsets.of(group)
        if not committed:
            raise _no_offsets(group)
        named = sorted({queue.topic for queue in committed})
    chosen = list(dict.fromkeys(numbers))
    if not chosen:
        return state.topics.queues_of_all(named, at_most=QUEUES_PER_REQUEST_MAX)
    # Counted first: many names and many numbers are a great many pairs of them.
    if len(named) * len(chosen) > QUEUES_PER_REQUEST_MAX:
        raise InvalidArgument(
            f"one request moves at most {QUEUES_PER_REQUEST_MAX} offsets, not {len(chosen)} of"
            f" each of {len(named)} topics; name fewer at a time"
        )
    queues = [QueueRef(topic, number) for topic in named for number in chosen]
    for queue in queues:
        state.topics.check(queue)
    return queues


def _target(state: BrokerState, request: ResetOffsets, queue: QueueRef) -> int:
    first, end = state.range(queue)
    if request.to == "earliest":
        return first
    if request.to == "latest":
        return end
    if request.to == "time":
        return state.offset_at(queue, request.value)
    if request.to == "shift":
        before = state.offsets.get(request.group, queue)
        # A group that never stood anywhere cannot be shifted; what is gone cannot be gone back to.
        return before if before == NEVER else min(max(before + request.value, first), end)
    if not first <= request.value <= end:
        raise OffsetOutOfRange(
            f"queue {queue.topic}/{queue.queue_id} holds offsets from {first} to {end}, not"
            f" {request.value}; name the queues that hold it"
        )
    return request.value


def _apply(
    state: BrokerState,
    connection: Connection,
    frame: Frame,
    plan: _Plan,
) -> tuple[bytes] | None:
    group, before = plan.group, state.offsets.of(plan.group)
    moves = [
        move(queue, state.range(queue), before.get(queue, NEVER), offset)
        for queue, offset in plan.after.items()
    ]
    at_ms, by, _ = plan.undone or (0, "", {})
    answer = encode(OffsetMoves(not plan.dry_run, moves, plan.hindered, at_ms, by))
    # Before anything is moved: what was done must be answered.
    if len(answer) > state.body_bytes_max:
        raise InvalidArgument(
            f"{len(moves)} offsets do not fit one answer; name fewer topics at a time"
        )
    if plan.dry_run:
        return (answer,)
    kept = [(queue, offset) for queue, offset in plan.after.items() if offset != NEVER]
    may_make = state.may_make(connection, OFFSETS)
    state.offsets.commit(group, kept, backwards=True, may_make=may_make)
    state.offsets.leave(group, plan.after.keys() - dict(kept).keys())
    _keep(state, connection, plan, moves)
    _log.info("offsets of a group moved", group=group, queues=len(moves))
    state.offsets.when_durable(_answer_when_durable(state, connection, frame, answer))
    return None


def _keep(
    state: BrokerState, connection: Connection, plan: _Plan, moves: Iterable[OffsetMove]
) -> None:
    """Keeps what a move has changed, so that it can be taken back; an undo and a deletion leave nothing to take back."""
    if plan.undone is not None or not state.offsets.of(plan.group):
        state.offsets.resets.drop(plan.group)
        return
    changed = {
        QueueRef(one.topic, one.queue_id): (one.before, one.after)
        for one in moves
        if one.before != one.after
    }
    if changed:
        by, last = connection.user or connection.peer, state.offsets.resets.get(plan.group)
        # The time tells two moves of a group apart, also those of one millisecond.
        at_ms = max(state.clock.now_ms(), 0 if last is None else last.at_ms + 1)
        state.offsets.resets.note(plan.group, LastReset(at_ms, by, changed))


def _answer_when_durable(
    state: BrokerState, connection: Connection, frame: Frame, answer: bytes
) -> Callable[[OSError | None], None]:
    def settled(error: OSError | None) -> None:
        if error is not None:
            sentence = (
                f"the offsets are moved, but not on disk yet ({error}); free some space, and look"
                " at them again after a restart"
            )
            state.answer_later(connection, frame, StoreFull(sentence))
        else:
            state.answer_later(connection, frame, answer)

    return settled


def _no_offsets(group: str) -> GroupNotFound:
    return GroupNotFound(
        f"group {group!r} has committed no offsets here; name its topics, or correct the name"
    )

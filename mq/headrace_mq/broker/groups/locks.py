"""
Locks on queues: at most one member of a group handles a queue at a time. PURE.

A lock belongs to a member on one connection and is kept by its heartbeats. It ends when the member
gives it back, leaves, or loses its connection, at once; and it may go to another member when no
heartbeat came for too long. Every grant has an *epoch*, greater than all before it: a commit under
an older one comes from an owner that was overtaken without knowing, and is refused.

    free ──lock──▶ held ──unlock, leave, connection lost──▶ free
                    │ ▲
       no heartbeat ▼ │ heartbeat
                  expired ──lock by another, with a greater epoch──▶ held

Used by the handlers, which say what happened and when. It never knows the clock, connections (a session is
only compared) or offsets.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from headrace_mq.errors import InvalidArgument, StaleLock
from headrace_mq.message import QueueRef

__all__ = ["LOCKS_MAX", "Locks", "Owner"]

# Over all groups, about 300 bytes each.
LOCKS_MAX = 200_000
# Epochs of one start of the broker; the number of the start stands above them.
_EPOCH_BITS = 32

S = TypeVar("S", bound=Hashable)


class Owner(NamedTuple, Generic[S]):
    """A member of a group, on one connection."""

    group: str
    member: str
    session: S


@dataclass(slots=True)
class _Holding(Generic[S]):
    owner: Owner[S]
    renewed_at_ms: int
    queues: set[QueueRef] = field(default_factory=set)


class _Lock(NamedTuple, Generic[S]):
    holding: _Holding[S]
    epoch: int
    since_ms: int


class Locks(Generic[S]):
    """All locks of a broker.

    Args:
        expiry_ms: silence after which a member's locks may go to others.
        epoch: the broker's start number; epochs of locks grow across restarts because of it.
    """

    def __init__(self, *, expiry_ms: int, epoch: int = 0) -> None:
        self._expiry_ms = expiry_ms
        self._epoch = epoch << _EPOCH_BITS
        self._locks: dict[tuple[str, QueueRef], _Lock[S]] = {}
        self._holdings: dict[tuple[str, str], _Holding[S]] = {}

    def __len__(self) -> int:
        """Locks that are held, or expired and not yet taken over."""
        return len(self._locks)

    def lock(
        self, owner: Owner[S], queues: Iterable[QueueRef], *, now_ms: int
    ) -> dict[QueueRef, int]:
        """Locks what is free, expired, or the owner's already; returns the epochs of these.

        It renews all that the owner holds.

        Raises:
            InvalidArgument: there are as many locks as the broker keeps; nothing was changed.
        """
        wanted = list(dict.fromkeys(queues))
        new = sum((owner.group, queue) not in self._locks for queue in wanted)
        if len(self._locks) + new > LOCKS_MAX:
            raise InvalidArgument(
                f"the broker keeps at most {LOCKS_MAX} locks on queues; use fewer groups with ordered"
                " handling, or another broker"
            )
        holding = self._holding(owner, now_ms)
        granted: dict[QueueRef, int] = {}
        for queue in wanted:
            held = self._locks.get((owner.group, queue))
            if held is not None and held.holding is holding:
                granted[queue] = held.epoch
            elif held is None or self._is_expired(held.holding, now_ms):
                if held is not None:
                    self._free(held.holding, queue)
                granted[queue] = self._grant(holding, queue, now_ms)
        self._forget_if_empty(holding)
        return granted

    def unlock(self, owner: Owner[S], queues: Iterable[QueueRef]) -> None:
        """Frees the owner's locks on these queues; those of others stay."""
        holding = self._holdings.get((owner.group, owner.member))
        if holding is not None and holding.owner == owner:
            for queue in holding.queues.intersection(queues):
                self._free(holding, queue)

    def renew(self, owner: Owner[S], *, now_ms: int) -> None:
        """Keeps all that the owner still holds."""
        holding = self._holdings.get((owner.group, owner.member))
        if holding is not None and holding.owner == owner:
            holding.renewed_at_ms = now_ms

    def release(self, group: str, member: str) -> None:
        """Frees everything of a member: it left, expired, or lost its connection."""
        holding = self._holdings.get((group, member))
        if holding is not None:
            for queue in list(holding.queues):
                self._free(holding, queue)

    def holder(self, group: str, queue: QueueRef) -> tuple[str, int] | None:
        """The member that holds the lock on a queue, and since when; None: no member does."""
        held = self._locks.get((group, queue))
        return None if held is None else (held.holding.owner.member, held.since_ms)

    def check(self, owner: Owner[S], queue: QueueRef, epoch: int, *, now_ms: int) -> None:
        """Lets a commit pass, under the epoch of its lock, or 0 for one without a lock.

        Raises:
            StaleLock: the lock was lost, or another owner holds one.
        """
        held = self._locks.get((owner.group, queue))
        if epoch:
            fresh = held is not None and held.epoch == epoch and held.holding.owner == owner
        else:
            fresh = (
                held is None
                or held.holding.owner == owner
                or self._is_expired(held.holding, now_ms)
            )
        if not fresh:
            raise StaleLock(
                f"{owner.member!r} does not hold the lock on queue {queue.topic}/{queue.queue_id} of"
                f" group {owner.group!r} under epoch {epoch}; lock it again, then go on where the"
                " group stands"
            )

    def _holding(self, owner: Owner[S], now_ms: int) -> _Holding[S]:
        known = self._holdings.get((owner.group, owner.member))
        if known is not None and known.owner != owner:
            # The member came back on another connection: what it held ended with the old one.
            self.release(owner.group, owner.member)
            known = None
        if known is None:
            known = self._holdings[owner.group, owner.member] = _Holding(owner, now_ms)
        known.renewed_at_ms = now_ms
        return known

    def _grant(self, holding: _Holding[S], queue: QueueRef, now_ms: int) -> int:
        self._epoch += 1
        holding.queues.add(queue)
        self._locks[holding.owner.group, queue] = _Lock(holding, self._epoch, now_ms)
        return self._epoch

    def _free(self, holding: _Holding[S], queue: QueueRef) -> None:
        holding.queues.discard(queue)
        del self._locks[holding.owner.group, queue]
        self._forget_if_empty(holding)

    def _forget_if_empty(self, holding: _Holding[S]) -> None:
        if not holding.queues:
            self._holdings.pop((holding.owner.group, holding.owner.member), None)

    def _is_expired(self, holding: _Holding[S], now_ms: int) -> bool:
        return now_ms - holding.renewed_at_ms >= self._expiry_ms

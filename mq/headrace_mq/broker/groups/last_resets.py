"""
Where groups stood before an operator moved them: of each group the last move, so that it can be taken back.

    reset   orders/0: 100 ─▶ 0     kept: 100 and 0, when and by whom; the oldest moves are forgotten first
    undo    orders/0:   0 ─▶ 100   unless the group has read on past 100, which would be read twice

Owned by `offsets`, and kept in its file. Pure.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import msgspec

from headrace_mq.message import QueueRef

__all__ = ["KEPT_OFFSETS_MAX", "NEVER", "KeptReset", "LastReset", "LastResets", "hindrance"]

# Over all groups: they stand in the file of offsets, which is written as a whole; some 300 KiB.
KEPT_OFFSETS_MAX = 20_000
# What a queue's offset is before its group's first commit.
NEVER = -1


class LastReset(NamedTuple):
    """A move of a group that an operator made.

    Attributes:
        at_ms: when, in ms since 1970 UTC, by the broker's clock.
        by: the user, or the address of the client where there is no login.
        moves: of each queue that moved where the group stood, and where it was put; -1: nowhere.
    """

    at_ms: int
    by: str
    moves: Mapping[QueueRef, tuple[int, int]]


class KeptReset(msgspec.Struct, frozen=True):
    """The same in the file of offsets: topic -> queue number -> before and after."""

    at_ms: int
    by: str
    moves: dict[str, dict[int, tuple[int, int]]]


class LastResets:
    """The last move of each group, as many as KEPT_OFFSETS_MAX offsets are."""

    def __init__(self) -> None:
        # The oldest first.
        self._groups: dict[str, LastReset] = {}
        self._count = 0
        # As the file has it: it is written far more often than groups are moved.
        self._encoded: bytes | None = None

    def get(self, group: str) -> LastReset | None:
        """Returns the last move of a group; None: none is kept."""
        return self._groups.get(group)

    def note(self, group: str, reset: LastReset) -> None:
        """Keeps a move in place of the one before; the oldest ones of other groups go where there are too many."""
        self.drop(group)
        self._encoded = None
        if not reset.moves or len(reset.moves) > KEPT_OFFSETS_MAX:
            return
        self._groups[group] = reset
        self._count += len(reset.moves)
        while self._count > KEPT_OFFSETS_MAX:
            self.drop(next(iter(self._groups)))

    def drop(self, group: str) -> None:
        """Forgets the move of a group, if there is one."""
        dropped = self._groups.pop(group, None)
        if dropped is not None:
            self._encoded = None
            self._count -= len(dropped.moves)

    def forget(self, queues: Collection[QueueRef]) -> None:
        """Forgets what was moved in queues that are gone."""
        gone = set(queues)
        for group, reset in list(self._groups.items()):
            left = {queue: move for queue, move in reset.moves.items() if queue not in gone}
            if len(left) == len(reset.moves):
                continue
            self._encoded = None
            self._count -= len(reset.moves) - len(left)
            if left:
                self._groups[group] = reset._replace(moves=left)
            else:
                del self._groups[group]

    def load(self, kept: Mapping[str, KeptReset], queues: Collection[QueueRef]) -> None:
        """Takes over what a file has, as far as its queues exist."""
        for group, one in kept.items():
            moves = {
                QueueRef(topic, number): move
                for topic, numbers in one.moves.items()
                for number, move in numbers.items()
                if QueueRef(topic, number) in queues
            }
            self.note(group, LastReset(one.at_ms, one.by, moves))

    def encoded(self) -> bytes:
        """Returns what stands in the file, as JSON."""
        if self._encoded is None:
            self._encoded = msgspec.json.encode(self._kept())
        return self._encoded

    def _kept(self) -> dict[str, KeptReset]:
        found = {}
        for group, reset in self._groups.items():
            topics: dict[str, dict[int, tuple[int, int]]] = {}
            for queue, move in reset.moves.items():
                topics.setdefault(queue.topic, {})[queue.queue_id] = move
            found[group] = KeptReset(reset.at_ms, reset.by, topics)
        return found


def hindrance(queue: QueueRef, first: int, move: tuple[int, int], now: int) -> str:
    """Says why a move of one queue cannot be taken back; empty: it can.

    Args:
        queue: which.
        first: the lowest offset that it holds.
        move: where the group stood before, and where it was put; -1: nowhere.
        now: where it stands.
    """
    before, after = move
    back_to = max(before, first)
    where = f"{queue.topic}/{queue.queue_id}"
    if now == after:
        return ""
    if now < after or now == NEVER:
        stands = "nowhere" if now == NEVER else f"at {now}"
        return f"{where} was put to {after} and stands {stands}: something else has moved it since"
    if now > back_to:
        again = max(back_to, after)
        return f"{where} has read on to {now}: from {again} on {now - again:,} messages would be read twice"
    return ""

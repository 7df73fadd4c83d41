"""
How far a member is in each of its queues: the sliding door of offsets that are done.

    delivered  4 5 6 7 8          what was handed out and is not acknowledged, in order
    done         5   7            acknowledged behind something that is not
    lowest     4                  the offset to commit: all below it is done

Used by a subscription; pure. One lock guards it: messages are acknowledged in the event loop, and offsets
are committed by the thread that polls.
"""

from collections import deque
from threading import Lock

from headrace.transports.base import QueueId

__all__ = ["Door", "Doors"]


class Door:
    """One queue of a member, from its assignment to its loss.

    Args:
        queue: which.
        acknowledged: whether acknowledging moves anything; otherwise nothing is remembered.
    """

    __slots__ = (
        "_delivered",
        "_done",
        "_next",
        "_remembers",
        "committed",
        "epoch",
        "lowest",
        "queue",
    )

    def __init__(self, queue: QueueId, *, acknowledged: bool) -> None:
        self.queue = queue
        # Counts seeks: what was read before the last one is not delivered.
        self.epoch = 0
        # The offset up to which all is done; None: nothing was acknowledged that moved it.
        self.lowest: int | None = None
        # What of it was committed last.
        self.committed: int | None = None
        # The offset after the last message that went out.
        self._next = 0
        self._delivered: deque[int] = deque()
        self._done: set[int] = set()
        self._remembers = acknowledged

    def deliver(self, offset: int) -> None:
        """Notes that a message goes out."""
        if self._remembers:
            self._delivered.append(offset)
        self._next = offset + 1

    def acknowledge(self, offset: int) -> None:
        """Notes that a message is done; of one that did not go out, nothing."""
        if not self._delivered or offset < self._delivered[0] or offset >= self._next:
            return
        self._done.add(offset)
        if self._delivered[0] not in self._done:
            return
        while self._delivered and self._delivered[0] in self._done:
            self._done.remove(self._delivered.popleft())
        self.lowest = self._delivered[0] if self._delivered else self._next

    def seek(self) -> None:
        """Forgets what went out and is not done: it goes out again, or never."""
        self.epoch += 1
        self._delivered.clear()
        self._done.clear()


class Doors:
    """The queues of a member."""

    def __init__(self, *, acknowledged: bool) -> None:
        self._acknowledged = acknowledged
        self._doors: dict[QueueId, Door] = {}
        self._lock = Lock()

    def open(self, queue: QueueId) -> Door:
        """Makes the door of a queue that was just assigned."""
        with self._lock:
            self._doors[queue] = door = Door(queue, acknowledged=self._acknowledged)
            return door

    def close(self, queue: QueueId) -> None:
        """Forgets a queue that is another member's from now on."""
        with self._lock:
            self._doors.pop(queue, None)

    def get(self, queue: QueueId) -> Door | None:
        """Returns the door of a queue; None: it is not this member's."""
        return self._doors.get(queue)

    def deliver(self, door: Door, epoch: int, offset: int) -> bool:
        """Notes that a message goes out; returns False where it must not: its queue is lost, or was sought."""
        with self._lock:
            if self._doors.get(door.queue) is not door or door.epoch != epoch:
                return False
            door.deliver(offset)
            return True

    def acknowledge(self, queue: QueueId, offset: int) -> None:
        """Notes that a message is done."""
        with self._lock:
            door = self._doors.get(queue)
            if door is not None:
                door.acknowledge(offset)

    def seek(self, queue: QueueId) -> tuple[Door, int] | None:
        """Notes a seek; returns the door and its new epoch, or None where the queue is not this member's."""
        with self._lock:
            door = self._doors.get(queue)
            if door is None:
                return None
            door.seek()
            return door, door.epoch

    def moved(self, queues: list[QueueId] | None = None) -> dict[QueueId, int]:
        """Returns the offsets that have moved since they were last returned, of these queues or all."""
        if not self._acknowledged:
            return {}
        found: dict[QueueId, int] = {}
        with self._lock:
            for queue, door in self._doors.items():
                lowest = door.lowest
                if lowest is None or lowest == door.committed or (queues and queue not in queues):
                    continue
                door.committed = found[queue] = lowest
        return found

"""
Which queue a message goes to.

Messages with a key go where `protocol.keys` says, the others round robin.

Sits between: `producer` and the message. Pure.
"""

from collections.abc import Callable, Sequence
from typing import cast

import google_crc32c

from headrace_mq.client.part import Part
from headrace_mq.message import Message
from headrace_mq.protocol.keys import queue_for_key

__all__ = ["Route", "Selector", "queue_for_key"]

# Keys whose queues are remembered, and the longest of them in characters: about 2 MiB for a topic,
# 6 at most.
KNOWN_KEYS_MAX = 16_384
KNOWN_KEY_CHARACTERS_MAX = 64

# Given a message and the topic's number of queues, returns a queue number.
Selector = Callable[[Message, int], int]


class Route:
    """The way into one topic: its number of queues and the next turn of the round robin.

    Args:
        topic: the topic's name.
        queues: its number of queues; may grow while the route is in use.
        selector: chooses instead of key hash and round robin.

    Attributes:
        closed: queues that take no messages, as far as is known.
    """

    __slots__ = ("_gained", "_known", "_learns", "_queues", "_selector", "_turn", "closed", "topic")

    def __init__(self, topic: str, queues: int, selector: Selector | None = None) -> None:
        self.topic = topic
        self._queues = queues
        self._selector = selector
        self._turn = 0
        # Looking a key's queue up takes a fifth of the time of hashing it. Where most keys are new
        # it takes more, so a table that has filled up without being of use is the last one.
        self._known: dict[str, int] = {}
        self._gained, self._learns = 0, True
        # Only the round robin can leave them out.
        self.closed: frozenset[int] = frozenset()

    @property
    def queues(self) -> int:
        """The topic's number of queues."""
        return self._queues

    @queues.setter
    def queues(self, queues: int) -> None:
        if queues != self._queues:
            self._queues = queues
            self._known.clear()

    @property
    def known(self) -> int:
        """Of how many keys the queue is remembered."""
        return len(self._known)

    def choose(self, message: Message) -> int:
        """Returns the queue number for a message; raises ValueError for a selector's wild answer."""
        if self._selector is not None:
            chosen = self._selector(message, self.queues)
            if not 0 <= chosen < self.queues:
                raise ValueError(
                    f"the selector chose queue {chosen}; {self.topic} has queues 0 to"
                    f" {self.queues - 1}"
                )
            return chosen
        if message.key:
            # `queue_for_key` without the call, which every message would pay for.
            number: int = google_crc32c.value(message.key.encode()) % self.queues
            return number
        return self.next_turn()

    def next_turn(self) -> int:
        """The next queue of the round robin; one that is closed only where all of them are."""
        for _ in range(self.queues):
            self._turn = (self._turn + 1) % self.queues
            if self._turn not in self.closed:
                break
        return self._turn

    @property
    def may_move(self) -> bool:
        """Whether messages without a key may go to another queue, and there is one."""
        return self._selector is None and len(self.closed) < self.queues

    def divide(self, part: Part) -> list[tuple[int, Sequence[int]]]:
        """Chooses for many messages, in their order, as `choose` does for each one.

        Returns queue numbers, each with the places of its messages in the part.
        """
        count = len(part)
        if self._selector is None and not part.keys and not self.closed:
            turn, step = self._turn + 1, self.queues
            self._turn = (self._turn + count) % step
            return [
                ((turn + first) % step, range(first, count, step))
                for first in range(min(step, count))
            ]
        places: list[list[int]] = [[] for _ in range(self.queues)]
        # Bound methods and C functions only: this is most of what a message costs here.
        note, step = [found.append for found in places], self.queues
        if self._selector is None and part.keys and all(part.keys):
            for place, queue in enumerate(self._queues_of(part.keys)):
                note[queue](place)
        else:
            for place, message in enumerate(part.messages(self.topic)):
                note[self.choose(message)](place)
        return [(queue, found) for queue, found in enumerate(places) if found]

    def _queues_of(self, keys: Sequence[str]) -> Sequence[int]:
        known, step = self._known, self._queues
        if not self._learns:
            return [hashed % step for hashed in map(google_crc32c.value, map(str.encode, keys))]
        found = list(map(known.get, keys))
        new = found.count(None)
        self._gained += len(keys) - 2 * new
        if not new:
            return cast("list[int]", found)
        queues = [hashed % step for hashed in map(google_crc32c.value, map(str.encode, keys))]
        if max(map(len, keys)) <= KNOWN_KEY_CHARACTERS_MAX:
            known.update(zip(keys, queues, strict=True))
        if len(known) > KNOWN_KEYS_MAX:
            known.clear()
            self._learns, self._gained = self._gained > 0, 0
        return queues

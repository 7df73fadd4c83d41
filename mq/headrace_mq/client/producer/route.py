"""
Which queue a message goes to.

Messages with a key go to the queue that `protocol.keys` computes, the others round robin. Queues that
take no messages get none.

Used by producers. Pure.
"""

from collections.abc import Callable, Collection, Sequence
from typing import cast

from headrace_mq.client.batch.message_columns import MessageColumns
from headrace_mq.message import Message
from headrace_mq.protocol.keys import (
    open_queue_for_key,
    open_queues,
    open_queues_for_keys,
    queue_for_key,
)

__all__ = ["Route", "Selector", "queue_for_key"]

# Keys whose queues are remembered, and the longest of them in characters: about 2 MiB for a topic,
# 6 at most.
KNOWN_KEYS_MAX = 16_384
KNOWN_KEY_CHARACTERS_MAX = 64

# Given a message and the topic's number of queues, returns a queue number.
Selector = Callable[[Message, int], int]


class Route:
    """The way into one topic: its queues that take messages, and the next turn of the round robin.

    Args:
        topic: the topic's name.
        queues: its number of queues.
        selector: chooses instead of key hash and round robin.

    Attributes:
        queues: the topic's number of queues.
        closed: those that take no messages, as far as is known.
        compact: whether the topic keeps the last message of each key: then none goes elsewhere.
    """

    __slots__ = (
        "_gained", "_known", "_learns", "_open", "_selector", "_turn", "closed", "compact",
        "queues", "topic",
    )  # fmt: skip

    def __init__(self, topic: str, queues: int, selector: Selector | None = None) -> None:
        self.topic = topic
        self.queues = queues
        self._selector = selector
        self._turn = 0
        # Looking a key's queue up takes a fifth of the time of hashing it. Where most keys are new
        # it takes more, so a table that has filled up without being of use is the last one.
        self._known: dict[str, int] = {}
        self._gained, self._learns = 0, True
        self.closed: frozenset[int] = frozenset()
        self.compact = False
        # The queues that keys are divided among.
        self._open: Sequence[int] = range(queues)

    def update(self, queues: int, closed: Collection[int] = (), *, compact: bool = False) -> bool:
        """Takes over what the broker says of the topic; whether keys may have other queues now."""
        closed = frozenset(closed)
        if (queues, closed, compact) == (self.queues, self.closed, self.compact):
            return False
        self.queues, self.closed, self.compact = queues, closed, compact
        self._open = open_queues(queues, self.closed, compact=compact)
        self._known.clear()
        return True

    @property
    def known(self) -> int:
        """Of how many keys the queue is remembered."""
        return len(self._known)

    def choose(self, message: Message) -> int:
        """Returns the queue number for a message; raises ValueError for a selector's wild answer."""
        if self._selector is None:
            # A key that is known, without a call: most messages have one.
            queue = self._known.get(message.key)
            if queue is None:
                return self.choose_by_key(message.key)
            self._gained += 1
            return queue
        chosen = self._selector(message, self.queues)
        if not 0 <= chosen < self.queues:
            raise ValueError(
                f"the selector chose queue {chosen}; {self.topic} has queues 0 to {self.queues - 1}"
            )
        return chosen

    def choose_by_key(self, key: str) -> int:
        """Returns the queue number for a message with a key, or without one; no selector is asked."""
        if not key:
            return self.next_turn()
        queue = self._known.get(key)
        if queue is None:
            queue = open_queue_for_key(key, self._open)
            self._learn((key,), (queue,))
        else:
            self._gained += 1
        return queue

    def next_turn(self) -> int:
        """The next queue of the round robin; one that is closed only where all of them are."""
        for _ in range(self.queues):
            self._turn = (self._turn + 1) % self.queues
            if self._turn not in self.closed:
                break
        return self._turn

    @property
    def may_move(self) -> bool:
        """Whether messages may go to another queue than one that takes none."""
        return self._selector is None and not self.compact

    @property
    def is_open(self) -> bool:
        """Whether a queue takes messages, as far as is known."""
        return len(self.closed) < self.queues

    def divide(self, part: MessageColumns) -> list[tuple[int, Sequence[int]]]:
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
        known = self._known
        if not self._learns:
            return open_queues_for_keys(keys, self._open)
        found = list(map(known.get, keys))
        new = found.count(None)
        self._gained += len(keys) - new
        if not new:
            return cast("list[int]", found)
        queues = open_queues_for_keys(keys, self._open)
        self._learn(keys, queues, new)
        return queues

    def _learn(self, keys: Sequence[str], queues: Sequence[int], new: int = 1) -> None:
        """Notes the queues of keys, of which some are new, as long as that saves more than it costs."""
        if not self._learns:
            return
        self._gained -= new
        if max(map(len, keys)) <= KNOWN_KEY_CHARACTERS_MAX:
            self._known.update(zip(keys, queues, strict=True))
        if len(self._known) > KNOWN_KEYS_MAX:
            self._known.clear()
            self._learns, self._gained = self._gained > 0, 0

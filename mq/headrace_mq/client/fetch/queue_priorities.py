"""
Priorities of messages: the queues of a topic in groups, one for each level.

    level 0   queues 0, 3, 6    the number of a queue modulo the number of levels, so queues that
    level 1   queues 1, 4, 7    are added to the topic leave every other queue's level as it is
    level 2   queues 2, 5

A producer that is given `Priorities` puts each message into a queue of its level, so order holds per
key and level. A consumer whose settings name as many levels hands out the highest one first; now and
then the lowest comes first, so that it is never left alone for long.

Used by applications that send, and by `assigned_queues`, which hand out urgent records first. Pure.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from msgspec.structs import replace

from headrace_mq.client.retry_headers import RETRY_PREFIX
from headrace_mq.message import Message, QueueRef
from headrace_mq.protocol.keys import open_queue_for_key
from headrace_mq.settings import ConsumerSettings

__all__ = ["PRIORITY_HEADER", "Priorities", "Urgency", "prioritized", "urgency_of"]

T = TypeVar("T")

# A message's level as decimal text.
PRIORITY_HEADER: Final = "%priority"


def prioritized(message: Message, level: int) -> Message:
    """Returns the message with a level; 0 is the lowest, and the level of all other messages.

    Raises:
        ValueError: the level is negative.
    """
    if level < 0:
        raise ValueError(f"a level is 0 or more, not {level}")
    return replace(message, headers={**message.headers, PRIORITY_HEADER: str(level)})


class Priorities:
    """The levels of a topic; `select` is the selector of its producers.

    Args:
        levels: how many; consumers must use the same number.

    Raises:
        ValueError: fewer than two levels, or more than there may be.
    """

    def __init__(self, levels: int) -> None:
        ConsumerSettings(priorities=levels)
        if levels == 1:
            raise ValueError("one level makes no difference; use at least 2")
        self._levels = levels
        self._turns: Counter[tuple[str, int]] = Counter()

    def select(self, message: Message, queues: int) -> int:
        """Returns the queue for a message: by its key, or in turns, among the queues of its level.

        Raises:
            ValueError: there is no such level, or a level without a queue.
        """
        level = _level_in(message)
        if level >= self._levels:
            raise ValueError(
                f"a message has level {level}, but there are levels 0 to {self._levels - 1}"
            )
        if queues < self._levels:
            raise ValueError(
                f"{message.topic} has {queues} queues, and {self._levels} levels need one each:"
                " add queues to the topic"
            )
        group = range(level, queues, self._levels)
        if message.key:
            return open_queue_for_key(message.key, group)
        turn = self._turns[message.topic, level]
        self._turns[message.topic, level] += 1
        return group[turn % len(group)]


class Urgency:
    """Which queues a consumer takes from first.

    Args:
        levels: of its topics.
        turns: one of so many times the lowest level comes first.
    """

    def __init__(self, levels: int, *, turns: int) -> None:
        self._levels = levels
        self._turns = turns
        self._turn = 0

    def arrange(self, items: Iterable[T], queue_of: Callable[[T], QueueRef]) -> list[T]:
        """Returns items of queues in the order of their levels; those of one level stay in theirs."""
        self._turn = (self._turn + 1) % self._turns
        return sorted(
            items, key=lambda item: self._level_of(queue_of(item)), reverse=self._turn != 0
        )

    def _level_of(self, queue: QueueRef) -> int:
        # What failed once has waited already.
        if queue.topic.startswith(RETRY_PREFIX):
            return self._levels - 1
        return queue.queue_id % self._levels


def urgency_of(settings: ConsumerSettings) -> Urgency | None:
    """Returns what settings ask for; None: every queue is as good as the others."""
    if settings.priorities == 1:
        return None
    return Urgency(settings.priorities, turns=settings.priority_turns)


def _level_in(message: Message) -> int:
    text = message.headers.get(PRIORITY_HEADER, "0") if message.headers else "0"
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"a level is a number of 0 or more, not {text!r}: use `prioritized`")
    return int(text)

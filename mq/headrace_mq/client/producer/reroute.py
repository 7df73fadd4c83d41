"""
Changes the route of a topic without breaking the order of a key.

A producer learns that a queue is frozen for writing, or gone, when the broker refuses a batch or
describes the topic. Then:

    1  the sender of that queue is shut; if keys change their queues, all senders of the topic are
    2  batches in flight are answered; new messages wait behind those that wait
    3  when all shut senders of the topic are quiet, the route changes
    4  their messages go to the senders of the new queues, before any later message

So no message of a key goes to its new queue before all that this producer sent to the old queue is
settled.

Used by `send_buffer`. Never waits and sends nothing itself.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from headrace_mq.client.batch.batch import Batch
from headrace_mq.client.batch.message_columns import MessageColumns
from headrace_mq.client.producer.queue_sender import QueueSender
from headrace_mq.client.producer.route import Route
from headrace_mq.errors import BrokerError, MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns

__all__ = ["PausedSenders", "RouteFacts", "spread"]


class RouteFacts(NamedTuple):
    """What the broker says of a topic: its number of queues, those that take nothing, its kind."""

    queues: int
    closed: frozenset[int]
    compact: bool


class PausedSenders:
    """The shut senders of one producer.

    Args:
        senders: all of its senders, by topic and queue number.
        finish: called with a batch that is given up, and why.

    Attributes:
        senders: those that are shut, as an ordered set.
    """

    def __init__(
        self,
        senders: Mapping[tuple[str, int], QueueSender],
        *,
        finish: Callable[[Batch, MessageQueueError], None],
    ) -> None:
        self._all = senders
        self._finish = finish
        self.senders: dict[QueueSender, None] = {}
        # What the broker said of topics whose shut senders have something on its way.
        self._later: dict[str, RouteFacts] = {}

    def refuse(
        self, route: Route | None, sender: QueueSender, batch: Batch, error: BrokerError
    ) -> bool:
        """Shuts the sender of a refused batch; False where its messages may go nowhere else."""
        if route is None or not route.may_move:
            return False
        sender.refuse(batch, error)
        self.senders[sender] = None
        return True

    def may_change(self, route: Route, facts: RouteFacts) -> bool:
        """Shuts the senders of a topic whose keys change their queues; whether its route may change now.

        Where it may not, the facts are remembered: `ready` returns them in time.
        """
        if route.may_move and facts != (route.queues, route.closed, route.compact):
            for number in range(max(route.queues, facts.queues)):
                sender = self._all.get((route.topic, number))
                if sender is not None and not sender.is_empty:
                    sender.shut = True
                    self.senders[sender] = None
        if all(sender.is_quiet for sender in self._of(route.topic)):
            self._later.pop(route.topic, None)
            return True
        self._later[route.topic] = facts
        return False

    def move(self, route: Route) -> tuple[list[Batch], int]:
        """Takes out what the shut senders of a topic hold, once its route has changed.

        What was refused fails where no queue takes messages.

        Returns:
            Batches for other senders, in their order, and how many bytes they are larger than before.
        """
        moved, grown = list[Batch](), 0
        for batch, refusal in self._vacate(route.topic):
            if refusal is not None and not route.is_open:
                self._finish(batch, refusal)
                continue
            before = batch.size
            parts = spread(batch, route)
            grown += sum(part.size for part in parts) - before
            moved += parts
        return moved, grown

    def fail(self, topic: str, error: MessageQueueError) -> None:
        """Gives up what the quiet ones of a topic hold."""
        for batch, _ in self._vacate(topic):
            self._finish(batch, error)

    def ready(self) -> list[tuple[str, RouteFacts | None]]:
        """The topics whose shut senders are quiet, each with what the broker said of it, if it did."""
        topics = dict.fromkeys(sender.queue.topic for sender in self.senders)
        return [
            (topic, self._later.pop(topic, None))
            for topic in topics
            if all(sender.is_quiet for sender in self._of(topic))
        ]

    def _vacate(self, topic: str) -> list[tuple[Batch, BrokerError | None]]:
        """Opens the quiet ones: what they held, with why the broker refused it if it did."""
        found: list[tuple[Batch, BrokerError | None]] = []
        for sender in [sender for sender in self._of(topic) if sender.is_quiet]:
            refused, error = len(sender.refused), sender.refusal
            left = sender.vacate()
            found += [(batch, error if n < refused else None) for n, batch in enumerate(left)]
            del self.senders[sender]
        return found

    def _of(self, topic: str) -> list[QueueSender]:
        return [sender for sender in self.senders if sender.queue.topic == topic]


T = TypeVar("T")


def spread(batch: Batch, route: Route) -> list[Batch]:
    """Returns batches of the queues that the messages belong to by now, each in its order.

    The batch itself is one of them where all go to the same queue; otherwise it is settled with
    them. What they take of the buffer together may differ from what it took.
    """
    columns = batch.open_up()
    keys: Sequence[str] = columns.keys or [""] * batch.count
    places: dict[int, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(route.choose_by_key(key), []).append(place)
    if len(places) == 1:
        batch.queue = QueueRef(route.topic, next(iter(places)))
        return [batch]
    parts = [
        _part(batch, columns, QueueRef(route.topic, number), chosen)
        for number, chosen in places.items()
    ]
    now: dict[int, tuple[Batch, int]] = {}
    for part, chosen in zip(parts, places.values(), strict=True):
        now |= {place: (part, number) for number, place in enumerate(chosen)}
    batch.scatter([now[place] for place in range(batch.count)])
    return parts


def _part(batch: Batch, columns: Columns, queue: QueueRef, places: Sequence[int]) -> Batch:
    picked = Columns(*(_pick(column, places) for column in columns))
    headers: Sequence[Mapping[str, str]] = picked.headers
    size = MessageColumns(picked.bodies, picked.keys, picked.tags, headers).size
    return batch.derive(queue, picked, size)


def _pick(column: list[T], places: Sequence[int]) -> list[T]:
    return [column[place] for place in places] if column else []

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

__all__ = ["Facts", "ShutLanes", "spread"]


class Facts(NamedTuple):
    """What the broker says of a topic: its number of queues, those that take nothing, its kind."""

    queues: int
    closed: frozenset[int]
    compact: bool


class ShutLanes:
    """The shut lanes of one producer.

    Args:
        lanes: all of its lanes, by topic and queue number.
        finish: called with a batch that is given up, and why.

    Attributes:
        lanes: those that are shut, as an ordered set.
    """

    def __init__(
        self,
        lanes: Mapping[tuple[str, int], QueueSender],
        *,
        finish: Callable[[Batch, MessageQueueError], None],
    ) -> None:
        self._all = lanes
        self._finish = finish
        self.lanes: dict[QueueSender, None] = {}
        # What the broker said of topics whose shut lanes have something on its way.
        self._later: dict[str, Facts] = {}

    def refuse(
        self, route: Route | None, lane: QueueSender, batch: Batch, error: BrokerError
    ) -> bool:
        """Shuts the lane of a refused batch; False where its messages may go nowhere else."""
        if route is None or not route.may_move:
            return False
        lane.refuse(batch, error)
        self.lanes[lane] = None
        return True

    def may_change(self, route: Route, facts: Facts) -> bool:
        """Shuts the lanes of a topic whose keys change their queues; whether its route may change now.

        Where it may not, the facts are remembered: `ready` returns them in time.
        """
        if route.may_move and facts != (route.queues, route.closed, route.compact):
            for number in range(max(route.queues, facts.queues)):
                lane = self._all.get((route.topic, number))
                if lane is not None and not lane.is_empty:
                    lane.shut = True
                    self.lanes[lane] = None
        if all(lane.is_quiet for lane in self._of(route.topic)):
            self._later.pop(route.topic, None)
            return True
        self._later[route.topic] = facts
        return False

    def move(self, route: Route) -> tuple[list[Batch], int]:
        """Takes out what the shut lanes of a topic hold, once its route has changed.

        What was refused fails where no queue takes messages.

        Returns:
            Batches for other lanes, in their order, and how many bytes they are larger than before.
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

    def ready(self) -> list[tuple[str, Facts | None]]:
        """The topics whose shut lanes are quiet, each with what the broker said of it, if it did."""
        topics = dict.fromkeys(lane.queue.topic for lane in self.lanes)
        return [
            (topic, self._later.pop(topic, None))
            for topic in topics
            if all(lane.is_quiet for lane in self._of(topic))
        ]

    def _vacate(self, topic: str) -> list[tuple[Batch, BrokerError | None]]:
        """Opens the quiet ones: what they held, with why the broker refused it if it did."""
        found: list[tuple[Batch, BrokerError | None]] = []
        for lane in [lane for lane in self._of(topic) if lane.is_quiet]:
            refused, error = len(lane.refused), lane.refusal
            left = lane.vacate()
            found += [(batch, error if n < refused else None) for n, batch in enumerate(left)]
            del self.lanes[lane]
        return found

    def _of(self, topic: str) -> list[QueueSender]:
        return [lane for lane in self.lanes if lane.queue.topic == topic]


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

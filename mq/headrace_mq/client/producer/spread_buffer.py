"""
The unacknowledged messages of a producer whose queues are in several broker groups.

    one load:  orders/0  orders/5  orders/2
                  │         │         │
    g1 ◀──────────┴─────────│─────────┘   a request with a batch of each of its queues
    g2 ◀────────────────────┘             another one; away: its batch comes back, and goes again after a pause

A request goes to one group, so that a group that is away or slow holds up its own queues alone. What is for a group that
is away is sent again after a pause, until the time of its messages is up. Its sequence numbers stay, so a batch that was
stored before the connection ended is recognised by the broker.

Used by `Producer`, by way of `buffer_for`.
"""

from headrace_mq._net.link import Link
from headrace_mq.client.batch.batch import Batch
from headrace_mq.client.producer.queue_sender import QueueSender
from headrace_mq.client.producer.send_buffer import SendBuffer
from headrace_mq.client.spread.spread_link import SpreadLink
from headrace_mq.errors import ConnectionLost, MessageQueueError

__all__ = ["SpreadBuffer", "buffer_for"]


class SpreadBuffer(SendBuffer):
    """A `SendBuffer` over a `SpreadLink`.

    The senders of queues are those of a `SendBuffer`: each keeps the order of its queue, and sends again what came back.
    A frozen queue gives its messages to queues of other groups, too.

    Args: as of `SendBuffer`; the link is a `SpreadLink`.
    """

    def _send(self, load: list[tuple[QueueSender, Batch]], parts: list[bytearray]) -> None:
        link = self._link
        assert isinstance(link, SpreadLink)
        places: dict[str | None, list[int]] = {}
        for place, (sender, _) in enumerate(load):
            places.setdefault(link.writer(sender.queue), []).append(place)
        for mine in places.values():
            # Of a group that is away, or has to say first what it has, the link takes nothing: they come back as lost.
            super()._send([load[place] for place in mine], [parts[place] for place in mine])

    def _refused(self, sender: QueueSender, batch: Batch, error: MessageQueueError) -> None:
        if not isinstance(error, ConnectionLost):
            super()._refused(sender, batch, error)
            return
        # Its queue alone waits: the link is still of use to the others, so no event would wake it up.
        sender.returned(batch)
        if not sender.paused:
            self._pause(sender, batch)


def buffer_for(link: Link) -> type[SendBuffer]:
    """Returns the kind of buffer that a link needs.

    Args:
        link: of the producer; a `SpreadLink` where its address names several broker groups.
    """
    return SpreadBuffer if isinstance(link, SpreadLink) else SendBuffer

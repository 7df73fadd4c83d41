"""
Messages that are sent without an acknowledgement.

Those of one queue go together at the end of a tick, without a producer id: the broker stores what
arrives. No message is kept after the tick, so none is sent again.

Used by `Producer`. Does not wait for acknowledged messages, which it may overtake.
"""

import asyncio

from headrace_mq._net.link import Link
from headrace_mq._runtime.clock import Clock
from headrace_mq.client.batch.batch import Batch
from headrace_mq.message import Message, QueueRef
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.settings import ProducerSettings

__all__ = ["Oneway"]


class Oneway:
    """The unacknowledged messages of the current tick.

    Args:
        link: the connection to the broker.
        settings: limits of a batch.
        clock: tells born times.
    """

    def __init__(self, link: Link, settings: ProducerSettings, clock: Clock) -> None:
        self._link = link
        self._settings = settings
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._batches: dict[QueueRef, Batch] = {}

    def take(self, queue: QueueRef, message: Message, size: int) -> bool:
        """Sends a message at the end of this tick; False: the connection to its broker takes nothing now."""
        if not (self._link.is_ready and self._link.serves(queue)):
            return False
        batch = self._batches.get(queue)
        if batch is not None and not self._has_room(batch, size):
            self._send(self._batches.pop(queue))
            batch = None
        if batch is None:
            if not self._batches:
                self._loop.call_soon(self.flush)
            batch = self._batches[queue] = Batch(queue)
        batch.add(message, size, self._clock.now_ms())
        return True

    def flush(self) -> None:
        """Sends what is there, or loses it where the connection ended within this tick."""
        batches, self._batches = self._batches, {}
        for batch in batches.values():
            self._send(batch)

    def _has_room(self, batch: Batch, size: int) -> bool:
        return (
            batch.count < self._settings.batch_messages_max
            and batch.size + size <= self._settings.batch_bytes_max
        )

    def _send(self, batch: Batch) -> None:
        encoded = batch.encode(producer_id=0, first_sequence=0, codec=self._settings.codec)
        self._link.tell(RequestCode.PRODUCE, encoded)

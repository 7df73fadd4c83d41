"""
Heartbeats through the event topic, so that a projection that stands still shows a lag when no events come.

A beat is one message in every queue. Readers pass over it: to them it is the rejection of a command that
no caller sends. The first beat that a projection has not read tells since when it stands still.

Used by `watch`; writes to the event topic.
"""

import asyncio
from typing import Final

from headrace._runtime.clock import Clock, SystemClock
from headrace._runtime.ids import new_id
from headrace._runtime.log import get_logger
from headrace.domain.stream import EventStream, Rejection
from headrace.events.publisher import HEARTBEAT
from headrace.serialization import Serializer
from headrace.transports.base import Outgoing, Transport

__all__ = ["Heart"]

log = get_logger(__name__)

# Keys that are tried for each queue until one leads there: that many lead to all but one in e^32.
_KEYS_PER_QUEUE: Final = 32


class Heart:
    """Beats in every queue of an application's event topic.

    Args:
        app_name: names the topic.
        transport: where it is.
        serializer: encodes beats as every reader expects messages.
        period_ms: between two beats.
        clock: dates beats.
    """

    def __init__(
        self,
        *,
        app_name: str,
        transport: Transport,
        serializer: Serializer,
        period_ms: int,
        clock: Clock | None = None,
    ) -> None:
        self._topic = f"{app_name}.events"
        self._transport = transport
        self._serializer = serializer
        self._period_ms = period_ms
        self._clock = clock or SystemClock()
        # The key that leads to each queue.
        self._keys: dict[int, str] = {}

    async def run(self) -> None:
        """Beats until cancelled; a failed beat is logged, and the next one comes in its turn."""
        while True:
            await asyncio.sleep(self._period_ms / 1_000)
            try:
                await self.beat()
            except Exception as error:  # noqa: BLE001 - the lag shows what is away; logged
                log.warning("heartbeat missed", topic=self._topic, error=repr(error))

    async def beat(self) -> None:
        """Sends one beat to every queue; raises what the transport raises."""
        queues = {each.queue[1] for each in await self._transport.waiting(self._topic, {})}
        if queues <= self._keys.keys():
            for key in self._keys.values():
                await self._send(key)
            return
        # The first beats find a key for each queue. With more queues the keys lead elsewhere, so find them again.
        self._keys.clear()
        for number in range(_KEYS_PER_QUEUE * len(queues)):
            key = f"{HEARTBEAT}/{number}"
            self._keys.setdefault(await self._send(key), key)
            if queues <= self._keys.keys():
                return

    async def _send(self, key: str) -> int:
        """Returns the number of the queue that a beat went to."""
        beat = EventStream(
            aggregate_type=HEARTBEAT,
            aggregate_id=key,
            version=None,
            command_id=new_id(),
            correlation_id=key,
            recorded_at=self._clock.now(),
            rejection=Rejection(
                error="",
                sentence="",
                command_name=HEARTBEAT,
                command_version=1,
                command_data={},
            ),
        )
        message = Outgoing(
            topic=self._topic,
            key=key,
            tag=HEARTBEAT,
            headers={"kind": "rejection", "version": "", "command": beat.command_id},
            body=self._serializer.encode_stream(beat),
        )
        return (await self._transport.publish(message)).queue

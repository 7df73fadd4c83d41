"""
What one process manager does with events: events and rejections in, commands out, at least once.

What it sends has ids derived from what caused it, so a stream that comes twice sends nothing twice.
The streams of one aggregate are reacted to one after another, those of many aggregates at once; a
stream is acknowledged when all its commands are durable in the queue.

    the queue or the database is away   tried again until it is back, with pauses
    a handler raises, or a stream       tried again `error_retries_max` times, then its aggregate is
    does not decode                     parked: what follows of it waits for `headrace process
                                        retry`, everything else flows

Sits between: the reader of the event topic and the command bus. Must never know a broker.
"""

import asyncio
from functools import partial
from typing import Final

from headrace._runtime.clock import Clock, SystemClock
from headrace._runtime.tasks import finish
from headrace.domain.stream import EventStream
from headrace.handlers.transactions import ReaderTransactions
from headrace.processes.letters import reactions
from headrace.processes.outbox import EnvelopeSender, Outbox
from headrace.processes.process_manager import ProcessManager
from headrace.processes.progress import ProcessProgress, is_rejection, version_before
from headrace.projections.tables.read_models import ReadModels
from headrace.serialization import Serializer
from headrace.settings import Settings
from headrace.subscriptions.foreign import stream_or_none
from headrace.subscriptions.outages import is_outage
from headrace.subscriptions.reader import KeyReaction, Reader
from headrace.transports.base import Incoming, Transport

__all__ = ["ProcessManagerRunner"]

# Streams being reacted to at once: enough to fill the queue's group commits, little memory.
_STREAMS_IN_FLIGHT_MAX: Final = 500
# Between two looks for commands that have come near; they are due in months.
_SWEEP_MS: Final = 60_000


class ProcessManagerRunner(KeyReaction):
    """Feeds one process manager.

    Args:
        manager: what reacts.
        app_name: names the event topic and the consumer group.
        read_models: the database that keeps what is parked.
        transport: brings the events.
        bus: takes the commands.
        serializer: decodes the events.
        settings: attempts and pauses.
        clock: dates letters.
        sweep_ms: how often it looks for commands that have come near.
    """

    def __init__(  # noqa: PLR0913 - the parts it is put together from, all by name
        self,
        *,
        manager: ProcessManager,
        app_name: str,
        read_models: ReadModels,
        transport: Transport,
        bus: EnvelopeSender,
        serializer: Serializer,
        settings: Settings,
        clock: Clock | None = None,
        sweep_ms: int = _SWEEP_MS,
    ) -> None:
        self._manager = manager
        self._progress = ProcessProgress(manager.name)
        self._serializer = serializer
        self._settings = settings
        self._clock = clock or SystemClock()
        self._outbox = Outbox(manager.name, bus, read_models, serializer, self._clock)
        self._sweep_ms = sweep_ms
        self.reader = Reader(
            transport,
            group=f"{app_name}.process.{manager.name}",
            topic=f"{app_name}.events",
            settings=settings,
            about={"process_manager": manager.name},
            clock=self._clock,
        )
        self._transactions = ReaderTransactions(self.reader, read_models)
        # Of the aggregates that have come since the subscription began.
        self._parked: set[str] = set()

    async def run(self) -> None:
        """Works until cancelled; a subscription that breaks is made again after a pause."""
        await self.reader.run_by_key(self, in_flight_max=_STREAMS_IN_FLIGHT_MAX)

    async def begin(self) -> None:
        """Forgets what was known of parked aggregates."""
        self._parked.clear()

    async def select(self, messages: list[Incoming]) -> list[Incoming]:
        """Acknowledges what causes nothing; learns which aggregates of the others are parked."""
        rest: list[Incoming] = []
        keys: set[str] = set()
        for message in messages:
            behind = message.key in keys or self.reader.is_under_way(message.key)
            if not behind and self._is_no_concern(message):
                self.reader.ack(message)
            else:
                rest.append(message)
                keys.add(message.key)
        if keys:
            self._parked |= await self._transactions.run(
                partial(self._progress.parked.among, aggregate_ids=keys), "read what is parked"
            )
        return rest

    def _is_no_concern(self, message: Incoming) -> bool:
        """Whether a message causes nothing, whatever came before it."""
        try:
            stream = self._stream_in(message)
            return stream is None or not self._manager.concerns(stream)
        except Exception:  # noqa: BLE001 - met again where it is tried again, logged and parked
            return False

    def _stream_in(self, message: Incoming) -> EventStream | None:
        decode = self._serializer.decode_published
        return stream_or_none(decode, message.body, message.queue, message.offset)

    async def react(self, message: Incoming) -> None:
        """Sends what a message causes, lets it wait or parks its aggregate; acknowledges it."""
        if not (message.key in self._parked and await self._wait(message)):
            try:
                await self.reader.attempt(
                    partial(self._send, message), "react", final=self.reader.faults()
                )
            except Exception as error:  # noqa: BLE001 - user code raises what it likes; logged, parked
                await self._park(message, error)
        self.reader.ack(message)

    async def _wait(self, message: Incoming) -> bool:
        """Lets a message wait behind its aggregate's letter; False: it is no longer parked."""
        if self._is_no_concern(message):
            return True
        kept: bool = await self._transactions.run(
            partial(self._progress.keep, message=message), "let an event wait"
        )
        if not kept:
            self._parked.discard(message.key)
        return kept

    async def _send(self, message: Incoming) -> None:
        stream = self._stream_in(message)
        for envelope in () if stream is None else reactions(self._manager, stream):
            await self.reader.attempt(
                partial(self._outbox.send_envelope, envelope),
                "send a command",
                final=lambda error: not is_outage(error),
            )

    async def _park(self, message: Incoming, error: Exception) -> None:
        park = partial(
            self._progress.park_at,
            message=message,
            version=None if is_rejection(message) else version_before(message),
            error=error,
            now=self._clock.now(),
            letters_max=self._settings.projection_letters_max,
        )
        await self._transactions.park(message, error, park)
        self._parked.add(message.key)

    async def alongside(self) -> None:
        """Sends what was due in years, when it has come near."""
        await self.reader.persist(self._outbox.try_again, "begin")
        while True:
            await self.reader.persist(
                lambda: finish(self._outbox.sweep()), "send what has come near"
            )
            await asyncio.sleep(self._sweep_ms / 1_000)

"""
What a process manager does with events: events and rejections in, commands out, at least once.

The ids of commands are derived from the event, so a stream that comes twice has no second effect. Streams
of one aggregate are handled one after another, those of different aggregates at once. A stream is
acknowledged when all its commands are durable in the queue.

    the queue or a database is away     retry, with pauses, until it is back
    a handler raises, or a stream       retry `error_retries_max` times, then park the aggregate: its
    does not decode                     later events wait for `headrace parked retry`; all other
                                        aggregates go on

Used by `App`; the reader of the event topic calls it with messages. It knows no broker.
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

# Streams that are handled at once: enough to fill the queue's group commits, little memory.
_STREAMS_IN_FLIGHT_MAX: Final = 500
# Between two sweeps for stored commands; these are due in months.
_SWEEP_MS: Final = 60_000


class ProcessManagerRunner(KeyReaction):
    """Calls one process manager with events, and sends its commands.

    Args:
        manager: the process manager.
        app_name: the application's name; part of the names of the event topic and the consumer group.
        read_models: the database of the letters.
        transport: delivers the events.
        bus: takes the commands.
        serializer: decodes the events.
        settings: attempts and pauses.
        clock: gives the time for letters.
        sweep_ms: time between two looks for stored commands that are due soon enough, in milliseconds.
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
        # Ids of parked aggregates, of those that had messages since the subscription began.
        self._parked: set[str] = set()

    async def run(self) -> None:
        """Runs until cancelled; subscribes again after an error."""
        await self.reader.run_by_key(self, in_flight_max=_STREAMS_IN_FLIGHT_MAX)

    async def begin(self) -> None:
        """Forgets which aggregates are parked."""
        self._parked.clear()

    async def select(self, messages: list[Incoming]) -> list[Incoming]:
        """Acknowledges messages that cause no command; reads which of the other aggregates are parked."""
        rest: list[Incoming] = []
        keys: set[str] = set()
        for message in messages:
            behind = message.key in keys or self.reader.is_under_way(message.key)
            if not behind and self._causes_nothing(message):
                self.reader.ack(message)
            else:
                rest.append(message)
                keys.add(message.key)
        if keys:
            self._parked |= await self._transactions.run(
                partial(self._progress.parked.among, aggregate_ids=keys), "read what is parked"
            )
        return rest

    def _causes_nothing(self, message: Incoming) -> bool:
        """Whether a message causes no command, independent of earlier messages."""
        try:
            stream = self._stream_in(message)
            return stream is None or not self._manager.concerns(stream)
        except Exception:  # noqa: BLE001 - `react` meets it again, and retries, logs and parks
            return False

    def _stream_in(self, message: Incoming) -> EventStream | None:
        decode = self._serializer.decode_published
        return stream_or_none(decode, message.body, message.queue, message.offset)

    async def react(self, message: Incoming) -> None:
        """Sends a message's commands, or holds it, or parks its aggregate; then acknowledges it."""
        if not (message.key in self._parked and await self._wait(message)):
            try:
                await self.reader.attempt(
                    partial(self._send, message), "react", final=self.reader.faults()
                )
            except Exception as error:  # noqa: BLE001 - user code raises what it likes; logged, parked
                await self._park(message, error)
        self.reader.ack(message)

    async def _wait(self, message: Incoming) -> bool:
        """Adds a message to those that wait; returns False if its aggregate is no longer parked."""
        if self._causes_nothing(message):
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
        """Sends stored commands when they are due soon enough."""
        await self.reader.persist(self._outbox.try_again, "begin")
        while True:
            await self.reader.persist(
                lambda: finish(self._outbox.sweep()), "send what has come near"
            )
            await asyncio.sleep(self._sweep_ms / 1_000)

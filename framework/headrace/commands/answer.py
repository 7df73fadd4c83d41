"""
The end of a command: its reply and its acknowledgement.

Used by the workers, which know how each command ended; uses the transport. Nothing is acknowledged
here before its caller says that it is safe.
"""

import asyncio
from collections.abc import Callable, Sequence

from headrace._runtime.log import get_logger
from headrace._runtime.tasks import TaskSet
from headrace._runtime.work import CommandWork
from headrace.bus import REPLY_CORRELATION, REPLY_TO
from headrace.commands.submission import CommandDelivery
from headrace.domain.stream import EventStream
from headrace.results import CommandResult, Reply, encode_reply
from headrace.transports.base import Place, Transport

__all__ = ["Answering", "result_of"]

log = get_logger(__name__)

# A reply is sent at most once; one that takes longer must not hold up acknowledgements.
REPLY_MS_MAX = 1_000


def result_of(stream: EventStream, place: Place | None) -> Reply:
    """The result of a command whose stream is stored and published, without its value."""
    rejection, changed = stream.rejection, stream.events or stream.messages
    return Reply(
        status="executed" if changed else "rejected" if rejection else "unchanged",
        aggregate_id=stream.aggregate_id,
        command_id=stream.command_id,
        version=stream.seen_version if stream.version is None else stream.version,
        place=place,
        error="" if rejection is None else rejection.error,
        sentence="" if rejection is None else rejection.sentence,
    )


class Answering:
    """Answers and acknowledges deliveries.

    Args:
        transport: carries replies.
        tasks: runs what must wait for the transport.
        finished: called once per acknowledged delivery.
        work: counts the outcomes.
    """

    def __init__(
        self,
        *,
        transport: Transport,
        tasks: TaskSet,
        finished: Callable[[], None],
        work: CommandWork | None = None,
    ) -> None:
        self._outcomes = (work or CommandWork()).outcomes
        self._send_reply = transport.reply
        self._tasks = tasks
        self._finished = finished
        # Sent by one task, which runs while there are any: most transports take a reply at once.
        self._replies: list[tuple[CommandDelivery, bytes]] = []
        self._replying = False

    def answer(
        self,
        deliveries: Sequence[CommandDelivery],
        result: CommandResult | Reply,
        value_json: str | None = None,
    ) -> None:
        """Replies to the callers of the deliveries, and acknowledges them all."""
        self._outcomes[result.status] += 1
        reply: bytes | None = None
        for delivery in deliveries:
            if REPLY_TO not in delivery.message.headers:
                self.acknowledge([delivery])
                continue
            if reply is None:
                reply = encode_reply(result, value_json=value_json)
            self._replies.append((delivery, reply))
        if self._replies and not self._replying:
            self._replying = True
            self._tasks.start("replies", self._reply_all())

    def acknowledge(self, deliveries: Sequence[CommandDelivery]) -> None:
        """Acknowledges deliveries without an answer."""
        for delivery in deliveries:
            self.confirm(delivery)
            self._finished()

    def confirm(self, delivery: CommandDelivery) -> None:
        """Acknowledges a delivery that has left already."""
        try:
            delivery.subscription.ack(delivery.message)
        except Exception as error:  # noqa: BLE001 - the subscription may be closed by its adapter
            # The message comes again, is recognised, and is acknowledged then.
            log.info("acknowledgement not taken", error=repr(error))

    async def _reply_all(self) -> None:
        while self._replies:
            replies, self._replies = self._replies, []
            try:
                async with asyncio.timeout(REPLY_MS_MAX / 1_000):
                    for delivery, body in replies:
                        await self._reply(delivery, body)
            except TimeoutError:
                # A caller without a reply asks again and is answered from the store.
                log.warning("replies took too long", replies=len(replies), limit_ms=REPLY_MS_MAX)
            self.acknowledge([delivery for delivery, _ in replies])
        self._replying = False

    async def _reply(self, delivery: CommandDelivery, body: bytes) -> None:
        headers = delivery.message.headers
        correlation = headers.get(REPLY_CORRELATION, "")
        try:
            await self._send_reply(headers[REPLY_TO], correlation, body)
        except Exception as error:  # noqa: BLE001 - the caller may be gone; its timeout covers it
            log.debug("reply not delivered", correlation=correlation, error=repr(error))

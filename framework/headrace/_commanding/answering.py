"""
The end of a command: its reply, its acknowledgement, or its place among the dead letters.

Sits between: the lanes, which know what became of a command, and the transport. Nothing is
acknowledged here before its caller says that it is safe.
"""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from headrace._commanding.deciding import Failed
from headrace._commanding.submission import Delivery
from headrace._domain.stream import EventStream
from headrace._runtime.backoff import Backoff
from headrace._runtime.tasks import TaskSet
from headrace.bus import REPLY_CORRELATION, REPLY_TO, CommandResult, command_topic, encode_reply
from headrace.transports.base import Outgoing, Place, Transport

__all__ = ["Answering", "dead_letter_topic", "result_of"]

log = structlog.get_logger(__name__)

# Replies are a courtesy, at most once: those that take longer must not hold up acknowledgements.
REPLY_MS_MAX = 1_000
# Dead letters carry their reason in a header; longer reasons are in the log.
REASON_CHARACTERS_MAX = 1_000


def dead_letter_topic(name: str) -> str:
    """The topic of an application's commands that could not be handled."""
    return f"{command_topic(name)}.dead"


def result_of(stream: EventStream, place: Place | None) -> CommandResult:
    """The result of a command whose stream is stored and published, without its value."""
    rejection = stream.rejection
    return CommandResult(
        status="executed" if rejection is None else "rejected",
        aggregate_id=stream.aggregate_id,
        command_id=stream.command_id,
        version=stream.version,
        place=place,
        error="" if rejection is None else rejection.error,
        sentence="" if rejection is None else rejection.sentence,
    )


class Answering:
    """Answers and acknowledges deliveries.

    Args:
        name: the application's name.
        transport: carries replies and dead letters.
        tasks: runs what must wait for the transport.
        backoff: how long to wait before a dead letter is published again.
        finished: called once per acknowledged delivery.
    """

    def __init__(
        self,
        *,
        name: str,
        transport: Transport,
        tasks: TaskSet,
        backoff: Backoff,
        finished: Callable[[], None],
    ) -> None:
        self._dead_letter_topic = dead_letter_topic(name)
        self._transport = transport
        self._tasks = tasks
        self._backoff = backoff
        self._finished = finished
        # Sent by one task, which runs while there are any: most transports take a reply at once.
        self._replies: list[tuple[Delivery, bytes]] = []
        self._replying = False

    def answer(
        self,
        deliveries: Sequence[Delivery],
        result: CommandResult,
        value_json: str | None = None,
    ) -> None:
        """Replies to whoever waits for one of the deliveries, and acknowledges them all."""
        reply: bytes | None = None
        for delivery in deliveries:
            if REPLY_TO not in delivery.message.headers:
                self._acknowledge(delivery)
                continue
            if reply is None:
                reply = encode_reply(result, value_json=value_json)
            self._replies.append((delivery, reply))
        if self._replies and not self._replying:
            self._replying = True
            self._tasks.start("replies", self._reply_all())

    def park(
        self, deliveries: Sequence[Delivery], failed: Failed, *, aggregate_id: str, command_id: str
    ) -> None:
        """Publishes a command that cannot be handled as a dead letter, then answers "failed"."""
        log.error(
            "command parked",
            aggregate_id=aggregate_id,
            command_id=command_id,
            error=failed.error,
            sentence=failed.sentence,
        )
        result = CommandResult(
            status="failed",
            aggregate_id=aggregate_id,
            command_id=command_id,
            error=failed.error,
            sentence=failed.sentence,
        )
        self._tasks.start("park", self._park(deliveries, failed, result))

    async def _park(
        self, deliveries: Sequence[Delivery], failed: Failed, result: CommandResult
    ) -> None:
        message = deliveries[0].message
        letter = Outgoing(
            topic=self._dead_letter_topic,
            key=message.key,
            tag=message.tag,
            headers={
                **message.headers,
                "error": failed.error,
                "why": failed.sentence[:REASON_CHARACTERS_MAX],
            },
            body=message.body,
        )
        await self._backoff.persist(
            lambda: self._transport.publish(letter), what="publish a dead letter", unless=()
        )
        self.answer(deliveries, result)

    async def _reply_all(self) -> None:
        while self._replies:
            replies, self._replies = self._replies, []
            try:
                async with asyncio.timeout(REPLY_MS_MAX / 1_000):
                    for delivery, body in replies:
                        await self._reply(delivery, body)
            except TimeoutError:
                # Whoever got none asks again and is answered from the store.
                log.warning("replies took too long", replies=len(replies), limit_ms=REPLY_MS_MAX)
            for delivery, _ in replies:
                self._acknowledge(delivery)
        self._replying = False

    async def _reply(self, delivery: Delivery, body: bytes) -> None:
        headers = delivery.message.headers
        correlation = headers.get(REPLY_CORRELATION, "")
        try:
            await self._transport.reply(headers[REPLY_TO], correlation, body)
        except Exception as error:  # noqa: BLE001 - the caller may be gone; its timeout covers it
            log.debug("reply not delivered", correlation=correlation, error=repr(error))

    def _acknowledge(self, delivery: Delivery) -> None:
        try:
            delivery.subscription.ack(delivery.message)
        except Exception as error:  # noqa: BLE001 - the subscription may be closed by its adapter
            # The message comes again, is recognised, and is acknowledged then.
            log.info("acknowledgement not taken", error=repr(error))
        self._finished()

"""
Calls the handlers of application messages: at least once, in the order of each aggregate.

    a handler raises, or a message     retry `error_retries_max` times, with pauses that double; then
    does not decode                    publish it to the dead-letter topic, and go on with the next one

Used by `App`; the reader of the message topic calls it with messages. It knows no store.
"""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, get_type_hints

from headrace._runtime.log import get_logger
from headrace._runtime.tracebacks import traceback_of
from headrace.domain.message import ApplicationMessage, MessageContext
from headrace.errors import DefinitionError
from headrace.events.publisher import message_topic
from headrace.resources.parameters import GIVEN, wanted_by
from headrace.serialization import Serializer
from headrace.settings import Settings
from headrace.subjects.hidden import hide_personal
from headrace.subscriptions.reader import KeyReaction, Reader
from headrace.transports.base import Incoming, Outgoing, Transport

__all__ = ["MessageHandler", "MessageRunner", "message_type_of"]

log = get_logger(__name__)

# It may have further parameters, which are resources.
MessageHandler = Callable[..., Awaitable[None]]

# Messages that are handled at once: enough for handlers that wait for other systems, little memory.
_IN_FLIGHT_MAX: Final = 500
# A dead letter has its error in a header; the log has the whole of a longer one.
_REASON_CHARACTERS_MAX: Final = 1_000
# A larger message has no room for a traceback in the broker's 4 MiB: that is in the log alone.
_TRACED_BYTES_MAX: Final = 4_000_000


def message_type_of(handler: Any) -> type[ApplicationMessage]:
    """Returns the message type of a handler.

    Raises:
        DefinitionError: it is not `async def f(message: SomeMessage, context: MessageContext)`.
    """
    name = getattr(handler, "__qualname__", repr(handler))
    arguments = list(inspect.signature(handler).parameters)
    hint = get_type_hints(handler).get(arguments[0]) if arguments else None
    if (
        not inspect.iscoroutinefunction(handler)
        or len(arguments) < GIVEN
        or not (isinstance(hint, type) and issubclass(hint, ApplicationMessage))
    ):
        raise DefinitionError(
            f"message handler {name}: write it as"
            " `async def f(message: SomeMessage, context: MessageContext) -> None`"
        )
    wanted_by(handler)
    return hint


class MessageRunner(KeyReaction):
    """Calls the message handlers of one application.

    Args:
        name: the application's name; part of the names of its topic and consumer group.
        handlers: the handlers by message type.
        transport: delivers the messages.
        serializer: decodes them.
        settings: attempts and pauses.
    """

    def __init__(
        self,
        *,
        name: str,
        handlers: dict[type[ApplicationMessage], list[MessageHandler]],
        transport: Transport,
        serializer: Serializer,
        settings: Settings,
    ) -> None:
        self._topic = message_topic(name)
        self._dead_letter_topic = f"{self._topic}.dead"
        self._handlers = handlers
        self._transport = transport
        self._serializer = serializer
        self._settings = settings
        self._reader = Reader(
            transport, group=self._topic, topic=self._topic, settings=settings, about={"app": name}
        )

    async def run(self) -> None:
        """Runs until cancelled; subscribes again after an error."""
        queues = self._settings.event_queues
        await self._transport.ensure_topic(self._topic, queues=queues, forever=False)
        await self._transport.ensure_topic(self._dead_letter_topic, queues=1, forever=True)
        await self._reader.run_by_key(self, in_flight_max=_IN_FLIGHT_MAX)

    async def react(self, message: Incoming) -> None:
        """Calls the handlers of a message, or publishes it to the dead-letter topic."""
        done = 0

        async def handle() -> None:
            nonlocal done
            decoded, context = self._serializer.decode_message(message.body)
            # A retry begins with the handler that failed.
            for handler in self._handlers.get(type(decoded), [])[done:]:
                await _call(handler, decoded, context)
                done += 1

        try:
            await self._reader.attempt(handle, "handle a message", final=self._reader.faults())
        except Exception as error:
            log.exception("a message cannot be handled", tag=message.tag)
            await self._park(message, error)
        self._reader.ack(message)

    async def _park(self, incoming: Incoming, error: Exception) -> None:
        traced = len(incoming.body) <= _TRACED_BYTES_MAX
        letter = Outgoing(
            topic=self._dead_letter_topic,
            key=incoming.key,
            tag=incoming.tag,
            headers={
                **incoming.headers,
                "error": type(error).__name__,
                "why": str(error)[:_REASON_CHARACTERS_MAX],
                **({"traceback": traceback_of(error)} if traced else {}),
            },
            body=incoming.body,
        )
        await self._reader.persist(lambda: self._transport.publish(letter), "publish a dead letter")


async def _call(
    handler: MessageHandler, message: ApplicationMessage, context: MessageContext
) -> None:
    try:
        await handler(message, context)
    except Exception as error:  # noqa: BLE001 - of users' code; raised again
        told = hide_personal(error, (message,))
    else:
        return
    raise told

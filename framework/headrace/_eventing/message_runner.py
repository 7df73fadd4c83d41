"""
Application messages to their handlers: at least once, in the order of each aggregate.

    a handler raises, or a message     tried again `error_retries_max` times, with pauses that double;
    does not decode                    then published among the dead letters, and the next one goes on

Sits between: a subscription to the message topic and the user's handlers. Knows no store.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, get_type_hints

import structlog

from headrace._domain.message import ApplicationMessage, MessageContext
from headrace._eventing.publisher import message_topic
from headrace._runtime.backoff import Backoff
from headrace.errors import DefinitionError
from headrace.serialization import Serializer
from headrace.settings import Settings
from headrace.transports.base import Incoming, Outgoing, Subscription, Transport

__all__ = ["MessageHandler", "MessageRunner", "message_type_of"]

log = structlog.get_logger(__name__)

MessageHandler = Callable[[Any, MessageContext], Awaitable[None]]

# Messages being handled at once: enough for handlers that wait for other systems, little memory.
_IN_FLIGHT_MAX: Final = 500
# Dead letters carry their reason in a header; longer reasons are in the log.
_REASON_CHARACTERS_MAX: Final = 1_000
_HANDLER_ARGUMENTS: Final = 2


def message_type_of(handler: Any) -> type[ApplicationMessage]:
    """Returns what a handler handles.

    Raises:
        DefinitionError: it is not `async def f(message: SomeMessage, context: MessageContext)`.
    """
    name = getattr(handler, "__qualname__", repr(handler))
    arguments = list(inspect.signature(handler).parameters)
    hint = get_type_hints(handler).get(arguments[0]) if arguments else None
    if (
        not inspect.iscoroutinefunction(handler)
        or len(arguments) != _HANDLER_ARGUMENTS
        or not (isinstance(hint, type) and issubclass(hint, ApplicationMessage))
    ):
        raise DefinitionError(
            f"message handler {name}: write it as"
            " `async def f(message: SomeMessage, context: MessageContext) -> None`"
        )
    return hint


class MessageRunner:
    """Feeds the handlers of one application.

    Args:
        name: the application's name; of its topic and its consumer group.
        handlers: by message type.
        transport: brings the messages.
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
        self._backoff = Backoff(ms_min=settings.retry_ms_min, ms_max=settings.retry_ms_max)
        self._room = asyncio.Semaphore(_IN_FLIGHT_MAX)
        # The waiting messages of each aggregate of which one is being handled.
        self._waiting: dict[str, deque[Incoming]] = {}

    async def run(self) -> None:
        """Works until cancelled; a subscription that breaks is made anew after a pause."""
        queues = self._settings.event_queues
        await self._transport.ensure_topic(self._topic, queues=queues, forever=False)
        await self._transport.ensure_topic(self._dead_letter_topic, queues=1, forever=True)
        failures = 0
        while True:
            try:
                subscription = await self._transport.subscribe(self._topic, [self._topic])
                failures = 0
                try:
                    await self._follow(subscription)
                finally:
                    await subscription.aclose()
            except Exception as error:  # noqa: BLE001 - adapters raise what they like; logged, repeated
                failures += 1
                log.warning("will subscribe to messages again", error=repr(error))
            await self._backoff.pause(max(1, failures))

    async def _follow(self, subscription: Subscription) -> None:
        self._room = asyncio.Semaphore(_IN_FLIGHT_MAX)
        self._waiting.clear()
        async with asyncio.TaskGroup() as handling:
            while True:
                for incoming in await subscription.poll():
                    await self._room.acquire()
                    if incoming.key in self._waiting:
                        self._waiting[incoming.key].append(incoming)
                        continue
                    self._waiting[incoming.key] = deque([incoming])
                    handling.create_task(self._handle_in_order(subscription, incoming.key))

    async def _handle_in_order(self, subscription: Subscription, key: str) -> None:
        waiting = self._waiting[key]
        while waiting:
            incoming = waiting.popleft()
            await self._handle(incoming)
            subscription.ack(incoming)
            self._room.release()
        del self._waiting[key]

    async def _handle(self, incoming: Incoming) -> None:
        done = 0
        attempt = 0
        while True:
            try:
                message, context = self._serializer.decode_message(incoming.body)
                handlers = self._handlers.get(type(message), [])
                # Those that have handled it are not called again for the sake of a later one.
                while done < len(handlers):
                    await handlers[done](message, context)
                    done += 1
                return
            except Exception as error:  # noqa: BLE001 - user code raises what it likes; logged, parked
                attempt += 1
                log.warning(
                    "a message was not handled",
                    tag=incoming.tag,
                    attempt=attempt,
                    error=repr(error),
                )
                if attempt > self._settings.error_retries_max:
                    await self._park(incoming, error)
                    return
            await self._backoff.pause(attempt)

    async def _park(self, incoming: Incoming, error: Exception) -> None:
        letter = Outgoing(
            topic=self._dead_letter_topic,
            key=incoming.key,
            tag=incoming.tag,
            headers={
                **incoming.headers,
                "error": type(error).__name__,
                "why": str(error)[:_REASON_CHARACTERS_MAX],
            },
            body=incoming.body,
        )
        await self._backoff.persist(
            lambda: self._transport.publish(letter), what="publish a dead letter", unless=()
        )

"""
Sends messages from programs without an event loop: scripts, threads, notebooks.

A separate thread runs the event loop with the producer. Any number of threads may send at
the same time, and their messages go together in batches.

Used by applications; wraps a `Producer`. Knows nothing of the wire.
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import Any, TypeVar

from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.producer.route import Selector
from headrace_mq.errors import Closed
from headrace_mq.message import Message, SendResult
from headrace_mq.settings import ProducerSettings

__all__ = ["BlockingProducer"]

R = TypeVar("R")


class BlockingProducer:
    """A producer with blocking methods; use it in a `with` block, from any thread without an event loop.

    Args:
        address: the broker's `host:port`.
        settings: limits of batches, buffer and time.
        selector: given a message and the topic's queue count, returns a queue number.

    Raises:
        ConnectionLost: no broker answered in time; the sentence says what to check.
        ValueError: the address, or the codec of the settings, cannot be used.
    """

    def __init__(
        self,
        address: str,
        settings: ProducerSettings | None = None,
        *,
        selector: Selector | None = None,
    ) -> None:
        self._loop = asyncio.new_event_loop()
        # A daemon, so that a script that forgot to close still ends.
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="headrace-producer", daemon=True
        )
        self._closed = False
        self._closing = threading.Lock()
        self._thread.start()
        try:
            self._producer = self._wait(_started(address, settings, selector))
        except BaseException:
            self._closed = True
            self._end_loop()
            raise

    def close(self) -> None:
        """Sends the messages that wait, for the send timeout at most, and then closes."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        try:
            asyncio.run_coroutine_threadsafe(self._producer.aclose(), self._loop).result()
        finally:
            self._end_loop()

    def __enter__(self) -> "BlockingProducer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def send(self, message: Message) -> SendResult:
        """Sends one message and returns its queue and offset once it is durable.

        Raises:
            ValueError, TypeError, SendTimeout, TopicNotFound, BrokerError, Closed: as
                `Producer.send`.
        """
        return self._wait(self._producer.send(message))

    def send_many(self, messages: Iterable[Message]) -> list[SendResult]:
        """Sends messages, in order per queue, and returns their places in the same order.

        Raises:
            ValueError, TypeError, SendTimeout, TopicNotFound, BrokerError, Closed: as
                `Producer.send_many`.
        """
        return list(self._wait(self._producer.send_many(messages)))

    def send_soon(self, message: Message) -> Future[SendResult]:
        """Sends one message without waiting; the future ends as `send` would.

        Messages of one thread keep their order. Raises Closed if the producer is not open; the
        future raises any other failure.
        """
        return self._submit(self._producer.send(message))

    def send_oneway(self, message: Message) -> bool:
        """Sends one message without an acknowledgement; `Producer.send_oneway` says what may get lost.

        Raises:
            ValueError, TypeError, TopicNotFound, ConnectionLost, RequestTimeout, Closed: as there.
        """
        return self._wait(self._producer.send_oneway(message))

    def create_topic(self, topic: str, queues: int = 0, retention: str = "transient") -> None:
        """Creates a topic, or confirms that it exists with at least these settings.

        Raises:
            TopicExists, RequestTimeout, Closed: as `Producer.create_topic`.
        """
        self._wait(self._producer.create_topic(topic, queues, retention))

    def _wait(self, work: Coroutine[Any, Any, R]) -> R:
        future = self._submit(work)
        try:
            return future.result()
        except BaseException:
            # Ctrl-C in the waiting thread: no thread waits for it any more.
            future.cancel()
            raise

    def _submit(self, work: Coroutine[Any, Any, R]) -> Future[R]:
        if self._closed:
            work.close()
            raise Closed("the producer is closed; make a new one")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _started(
    address: str, settings: ProducerSettings | None, selector: Selector | None
) -> Producer:
    producer = Producer(address, settings, selector=selector)
    await producer.start()
    return producer

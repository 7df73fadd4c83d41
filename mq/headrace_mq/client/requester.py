"""
Requests and replies through the broker: a message goes out, one reply comes back.

    requester ── message (reply-to, correlation) ──▶ topic ──▶ consumer, responder
        ▲                                                              │
        └────────────── PUSHED_REPLY (correlation) ◀── REPLY ──────────┘

The message is stored like any other and delivered at least once. The broker passes the reply on to
the requester's own connection at most once, and does not store it. When a reply is lost the request
times out, and the caller decides whether to ask again.

Used by applications; uses a `Producer`, which receives the replies.
"""

import asyncio
import itertools
import uuid
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from msgspec.structs import replace

from headrace_mq._runtime.log import get_logger
from headrace_mq.client.producer.producer import Producer
from headrace_mq.errors import Closed, ReplyUndeliverable, RequestTimeout
from headrace_mq.message import Message, Record

__all__ = ["IN_FLIGHT_MAX", "ReplyAddress", "Requester", "address_of", "answering", "reply_to"]

CLIENT_HEADER = "%reply-to"
CORRELATION_HEADER = "%reply-correlation"
# Requests that wait for their reply at a time; each costs about 1 KiB. Further ones wait for a
# place, within their own time.
IN_FLIGHT_MAX = 65_536

_log = get_logger(__name__)


class ReplyAddress(NamedTuple):
    """The client that a reply goes to, and the request that it answers."""

    client_id: str
    correlation: str


class Requester:
    """Sends requests and waits for their replies.

    Safe to use from many tasks of one event loop. It takes all replies to its producer, so use one
    requester for each producer.

    Args:
        producer: sends the requests; started and closed by its owner.
        in_flight_max: requests that wait for their reply at a time.
    """

    def __init__(self, producer: Producer, *, in_flight_max: int = IN_FLIGHT_MAX) -> None:
        self._producer = producer
        self._places = asyncio.Semaphore(in_flight_max)
        self._waiting: dict[str, asyncio.Future[bytes]] = {}
        # Another requester of the same producer may have asked before: its replies are not ours.
        self._name = uuid.uuid4().hex
        self._numbers = itertools.count()
        self._closed = False
        producer.on_reply(self._received)

    def __len__(self) -> int:
        """Requests that wait for their reply."""
        return len(self._waiting)

    async def request(self, message: Message, timeout_ms: int) -> bytes:
        """Sends a message and returns the body of the first reply to it.

        Args:
            message: with at most 62 headers.
            timeout_ms: covers everything: waiting for a place, sending, handling, and the way back.

        Raises:
            RequestTimeout: no reply in time; the request may or may not have been handled.
            ValueError, TypeError, SendTimeout, BrokerError: it was not sent, as with `send`.
            Closed: the requester or its producer is closed.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1_000), self._places:
                return await self._ask(message)
        except TimeoutError as error:
            raise RequestTimeout(
                f"no reply from topic {message.topic!r} within {timeout_ms} ms; check that its"
                " consumers run, then send the request again"
            ) from error

    def close(self) -> None:
        """Ends every waiting request with `Closed`; replies that come now are dropped."""
        self._closed = True
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(Closed("the requester is closed; make a new one"))

    async def _ask(self, message: Message) -> bytes:
        if self._closed:
            raise Closed("the requester is closed; make a new one")
        correlation = f"{self._name}-{next(self._numbers)}"
        address = {CLIENT_HEADER: self._producer.client_id, CORRELATION_HEADER: correlation}
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[correlation] = reply
        try:
            await self._producer.send(replace(message, headers={**message.headers, **address}))
            return await reply
        finally:
            del self._waiting[correlation]
            # No caller waits for it any more.
            reply.cancel()

    def _received(self, correlation: str, body: bytes) -> None:
        waiting = self._waiting.get(correlation)
        if waiting is None or waiting.done():
            _log.info("a reply was dropped: it came too late, or twice", correlation=correlation)
            return
        waiting.set_result(body)


def address_of(record: Record) -> ReplyAddress | None:
    """Returns the address for a reply; None for a record that is not a request."""
    client_id = record.headers.get(CLIENT_HEADER)
    correlation = record.headers.get(CORRELATION_HEADER)
    if not client_id or not correlation:
        return None
    return ReplyAddress(client_id, correlation)


async def reply_to(producer: Producer, record: Record, body: bytes) -> bool:
    """Replies to a request; False if its requester is not connected (any more).

    Raises:
        ValueError: the record is not a request.
        ConnectionLost, RequestTimeout: it is unknown whether the reply was passed on.
    """
    address = address_of(record)
    if address is None:
        raise ValueError(
            f"record {record.offset} of {record.queue.topic}/{record.queue.queue_id} asks for no"
            f" reply: it has no headers {CLIENT_HEADER!r} and {CORRELATION_HEADER!r}"
        )
    try:
        await producer.reply(*address, body)
    except ReplyUndeliverable as error:
        _log.info("a reply was dropped: its requester is gone", reason=str(error))
        return False
    return True


def answering(
    producer: Producer, handler: Callable[[Record], Awaitable[bytes]]
) -> Callable[[Record], Awaitable[None]]:
    """Returns a handler for `Consumer.run` that replies with what `handler` returns.

    A record that is not a request is handled too, and its result is dropped. A handler that raises
    is called again, as always; the requester gets no reply until it succeeds. A requester whose reply
    was lost may ask again, so `handler` must be safe to call twice.
    """

    async def answer(record: Record) -> None:
        body = await handler(record)
        if address_of(record) is not None:
            await reply_to(producer, record, body)

    return answer

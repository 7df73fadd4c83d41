"""
Gathers transactions that are begun at about the same time, and prepares them together.

While bundles are on their way others gather; so the more there is to do the less each costs.

Sits between: `transactions`, whose callers wait, and the producer that sends bundles.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from headrace_mq._runtime.clock import Clock
from headrace_mq.client.part import MESSAGE_OVERHEAD_BYTES, Part
from headrace_mq.client.routing import Route
from headrace_mq.errors import MessageQueueError, SendTimeout
from headrace_mq.message import Message, QueueRef, SendResult
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.protocol.bodies import encode
from headrace_mq.protocol.transactions import (
    TRANSACTION_TOPIC,
    Bundle,
    BundlePart,
)

__all__ = ["BUNDLES_ON_WAY_MAX", "Bundling"]

# Bundles on their way at a time: one at the broker's disk, and one behind it.
BUNDLES_ON_WAY_MAX = 2

Send = Callable[[Message], Awaitable[SendResult]]

_log = structlog.get_logger(__name__)


class _Gathered:
    """Transactions that are prepared together; `prepared` gets (number, place) of each."""

    __slots__ = ("ids", "messages", "owners", "prepared", "size")

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.messages: list[Message] = []
        self.owners: list[int] = []
        self.prepared: list[asyncio.Future[tuple[int, int]]] = []
        self.size = 0

    def settle(self, number: int) -> None:
        """It is prepared under a number."""
        for place, prepared in enumerate(self.prepared):
            if not prepared.done():
                prepared.set_result((number, place))

    def fail(self, error: MessageQueueError) -> None:
        """Whether it is prepared is not known, or it is not."""
        for prepared in self.prepared:
            if not prepared.done():
                # One error object raised by every sender would collect all their tracebacks.
                prepared.set_exception(type(error)(*error.args))


class Bundling:
    """The transactions of one producer that are being prepared.

    Args:
        group: the producers that may answer for them.
        client_id: who is asked first.
        send: sends a message and waits until it is durable.
        codec: how batches are compressed.
        transactions_max, bytes_max: of one bundle.
        clock: tells when messages are born.
    """

    def __init__(
        self,
        *,
        group: str,
        client_id: str,
        send: Send,
        codec: str,
        transactions_max: int,
        bytes_max: int,
        clock: Clock,
    ) -> None:
        self._group, self._client_id = group, client_id
        self._send = send
        self._codec = codec
        self._transactions_max, self._bytes_max = transactions_max, bytes_max
        self._clock = clock
        # Asking for the running loop is a system call, so it is done once.
        self._loop = asyncio.get_running_loop()
        self.routes: dict[str, Route] = {}
        self._gathered: _Gathered | None = None
        self._line: list[_Gathered] = []
        self._on_way: set[asyncio.Task[None]] = set()
        self._departing = False

    def add(
        self, transaction_id: str, messages: Sequence[Message], size: int
    ) -> asyncio.Future[tuple[int, int]]:
        """Takes a transaction whose messages were checked and whose topics have routes.

        The future ends with the number of its bundle and its place there, when that is durable.
        Cancelling it does not take the transaction back.
        """
        gathered = self._gathered
        if gathered is not None and (
            len(gathered.ids) >= self._transactions_max or gathered.size + size > self._bytes_max
        ):
            self._line.append(gathered)
            gathered = None
        if gathered is None:
            gathered = self._gathered = _Gathered()
        place = len(gathered.ids)
        gathered.ids.append(transaction_id)
        gathered.messages += messages
        gathered.owners += [place] * len(messages)
        gathered.size += size + MESSAGE_OVERHEAD_BYTES
        if not self._departing and len(self._on_way) < BUNDLES_ON_WAY_MAX:
            self._departing = True
            self._loop.call_soon(self._depart)
        prepared: asyncio.Future[tuple[int, int]] = self._loop.create_future()
        gathered.prepared.append(prepared)
        return prepared

    async def drained(self) -> None:
        """Waits until nothing is on its way any more."""
        while self._departing or self._on_way:
            if self._on_way:
                await asyncio.wait(self._on_way)
            await asyncio.sleep(0)

    def _depart(self) -> None:
        self._departing = False
        while len(self._on_way) < BUNDLES_ON_WAY_MAX:
            if self._line:
                gathered = self._line.pop(0)
            elif self._gathered is not None:
                gathered, self._gathered = self._gathered, None
            else:
                return
            task = asyncio.create_task(self._prepare(gathered), name="prepare transactions")
            self._on_way.add(task)
            task.add_done_callback(self._arrived)

    def _arrived(self, task: asyncio.Task[None]) -> None:
        self._on_way.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("transactions could not be prepared", exc_info=error)
        self._depart()

    async def _prepare(self, gathered: _Gathered) -> None:
        try:
            body = self._encoded(gathered)
            number = (await self._send(Message(topic=TRANSACTION_TOPIC, body=body))).offset
        except MessageQueueError as error:
            gathered.fail(error)
        except BaseException:
            gathered.fail(_unknown())
            raise
        else:
            if number < 0:
                gathered.fail(_unknown())
            gathered.settle(number)

    def _encoded(self, gathered: _Gathered) -> bytes:
        now_ms = self._clock.now_ms()
        parts: list[BundlePart] = []
        messages, owners = gathered.messages, gathered.owners
        topics = {message.topic for message in messages}
        for topic in sorted(topics):
            places = range(len(messages))
            mine = messages
            if len(topics) > 1:
                at = [place for place in places if messages[place].topic == topic]
                mine, mine_owners = (
                    [messages[place] for place in at],
                    [owners[place] for place in at],
                )
            else:
                mine_owners = owners
            part = Part.of(mine)
            for queue_id, chosen in self.routes[topic].divide(part):
                picked = part.pick(chosen)
                columns = Columns(
                    list(picked.keys),
                    list(picked.tags),
                    [dict(headers) for headers in picked.headers],
                    list(picked.bodies),
                    [],
                )
                batch = encode_batch(
                    QueueRef(topic, queue_id), columns, born_first_ms=now_ms, codec=self._codec
                )
                parts.append(BundlePart(bytes(batch), [mine_owners[place] for place in chosen]))
        gathered.messages, gathered.owners = [], []
        return encode(Bundle(self._group, self._client_id, gathered.ids, parts))


def _unknown() -> SendTimeout:
    return SendTimeout(
        "unknown outcome: whether the transaction was prepared is not known; if it was, its checker"
        " will be asked"
    )

"""
Gathers transactions that are begun at about the same time, and prepares them together.

While one bundle is on its way, transactions gather for the next one. So the more transactions there
are, the less each costs.

Used by `TransactionalProducer`, whose callers wait; sends with a `Producer`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import TypeVar

from headrace_mq._runtime.clock import Clock
from headrace_mq._runtime.log import get_logger
from headrace_mq.client.batch.message_columns import MESSAGE_OVERHEAD_BYTES, MessageColumns
from headrace_mq.client.producer.route import Route
from headrace_mq.errors import MessageQueueError, SendTimeout
from headrace_mq.message import Message, QueueRef, SendResult
from headrace_mq.protocol.batch import Columns, encode_batch
from headrace_mq.protocol.bodies import encode
from headrace_mq.protocol.transactions import (
    TRANSACTION_TOPIC,
    Bundle,
    BundlePart,
)

__all__ = ["BUNDLES_ON_WAY_MAX", "PrepareBatcher"]

# Bundles on their way at a time: one at the broker's disk, and one behind it.
BUNDLES_ON_WAY_MAX = 2

Send = Callable[[Message], asyncio.Future[SendResult]]
T = TypeVar("T")

_log = get_logger(__name__)


class _Gathered:
    """Transactions that are prepared together; each one's future gets (number, place).

    A list per field, with one entry for each of them.
    """

    __slots__ = ("futures", "messages", "names", "owned", "size")

    def __init__(self) -> None:
        self.names: list[str] = []
        self.owned: list[Sequence[Message]] = []
        self.futures: list[asyncio.Future[tuple[int, int]]] = []
        self.messages = 0
        self.size = 0

    def settle(self, number: int) -> None:
        """It is prepared under a number."""
        for place, prepared in enumerate(self.futures):
            try:
                prepared.set_result((number, place))
            except asyncio.InvalidStateError:
                # Its sender was cancelled; to ask each one first would cost more than the rest.
                continue

    def fail(self, error: MessageQueueError) -> None:
        """Whether it is prepared is not known, or it is not."""
        for prepared in self.futures:
            if not prepared.done():
                # One error object raised by every sender would collect all their tracebacks.
                prepared.set_exception(type(error)(*error.args))


class PrepareBatcher:
    """The transactions of one producer that are being prepared.

    Args:
        group: the producers that may answer for them.
        client_id: of the producer, which the broker asks first.
        send: hands a message over; the future ends when it is durable.
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
        self._new_future: Callable[[], asyncio.Future[tuple[int, int]]] = self._loop.create_future
        self.routes: dict[str, Route] = {}
        self._gathered: _Gathered | None = None
        self._line: deque[_Gathered] = deque()
        self._on_way: set[asyncio.Future[SendResult]] = set()
        self._departing = False

    def add(
        self, transaction_id: str, messages: Sequence[Message], size: int
    ) -> asyncio.Future[tuple[int, int]]:
        """Takes a transaction whose messages were checked and whose topics have routes.

        The future ends with the number of its bundle and its place there, when that is durable.
        Cancelling it does not take the transaction back.
        """
        gathered = self._gathered
        if gathered is None or gathered.size + size > self._bytes_max:
            if gathered is not None:
                self._fill(gathered)
            gathered = self._gathered = _Gathered()
        prepared = self._new_future()
        futures = gathered.futures
        futures.append(prepared)
        gathered.names.append(transaction_id)
        gathered.owned.append(messages)
        gathered.messages += len(messages)
        gathered.size += size + MESSAGE_OVERHEAD_BYTES
        if len(futures) >= self._transactions_max:
            # Within the tick: the broker works on it while the others of the tick prepare theirs.
            self._fill(gathered)
        elif not self._departing and len(self._on_way) < BUNDLES_ON_WAY_MAX:
            self._departing = True
            self._loop.call_soon(self._depart)
        return prepared

    async def drained(self) -> None:
        """Waits until nothing is on its way any more."""
        while self._departing or self._on_way:
            if self._on_way:
                await asyncio.wait(self._on_way)
            await asyncio.sleep(0)

    def _fill(self, gathered: _Gathered) -> None:
        self._line.append(gathered)
        self._gathered = None
        if len(self._on_way) < BUNDLES_ON_WAY_MAX:
            self._send_off(self._line.popleft())

    def _depart(self) -> None:
        self._departing = False
        while len(self._on_way) < BUNDLES_ON_WAY_MAX:
            if self._line:
                gathered = self._line.popleft()
            elif self._gathered is not None:
                gathered, self._gathered = self._gathered, None
            else:
                return
            self._send_off(gathered)

    def _send_off(self, gathered: _Gathered) -> None:
        try:
            sent = self._send(Message(topic=TRANSACTION_TOPIC, body=self._encoded(gathered)))
        except MessageQueueError as error:
            gathered.fail(error)
        except Exception as error:  # noqa: BLE001 - every caller in the bundle gets it
            _log.error("transactions could not be prepared", exc_info=error)
            gathered.fail(_unknown())
        else:
            self._on_way.add(sent)
            sent.add_done_callback(partial(self._arrived, gathered))

    def _arrived(self, gathered: _Gathered, sent: asyncio.Future[SendResult]) -> None:
        self._on_way.discard(sent)
        error = None if sent.cancelled() else sent.exception()
        if sent.cancelled():
            gathered.fail(_unknown())
        elif error is None and sent.result().offset >= 0:
            gathered.settle(sent.result().offset)
        else:
            gathered.fail(error if isinstance(error, MessageQueueError) else _unknown())
        self._depart()

    def _encoded(self, gathered: _Gathered) -> bytes:
        now_ms = self._clock.now_ms()
        parts: list[BundlePart] = []
        owned = gathered.owned
        messages = list(chain.from_iterable(owned))
        owners: Sequence[int] = range(len(owned))
        if len(messages) > len(owned):
            owners = [place for place, mine in enumerate(owned) for _ in mine]
        topics = {message.topic for message in messages}
        for topic in sorted(topics):
            mine, mine_owners = messages, owners
            if len(topics) > 1:
                at = [place for place, message in enumerate(messages) if message.topic == topic]
                mine = [messages[place] for place in at]
                mine_owners = [owners[place] for place in at]
            # Each was measured when it was taken, and their total does not matter.
            part = MessageColumns.measured(mine, 0)
            for queue_id, chosen in self.routes[topic].divide(part):
                batch = encode_batch(
                    QueueRef(topic, queue_id),
                    _columns(part, chosen),
                    born_first_ms=now_ms,
                    codec=self._codec,
                )
                parts.append(BundlePart(bytes(batch), list(map(mine_owners.__getitem__, chosen))))
        return encode(Bundle(self._group, self._client_id, gathered.names, parts))


def _columns(part: MessageColumns, places: Sequence[int]) -> Columns:
    """The messages at some places as a batch has them: a column of defaults only is empty."""
    keys, tags = _entries(part.keys, places), _entries(part.tags, places)
    headers = [dict(one) for one in _entries(part.headers, places)]
    return Columns(
        keys if any(keys) else [],
        tags if any(tags) else [],
        headers if any(headers) else [],
        _entries(part.bodies, places),
        [],
    )


def _entries(column: Sequence[T], places: Sequence[int]) -> list[T]:
    return [column[place] for place in places] if column else []


def _unknown() -> SendTimeout:
    return SendTimeout(
        "unknown outcome: whether the transaction was prepared is not known; if it was, its checker"
        " will be asked"
    )

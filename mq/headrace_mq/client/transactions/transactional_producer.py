"""
Sends messages that become visible only if the application's own transaction was committed.

First a message is prepared: it is durable at the broker, and no consumer sees it. Then the application
does its work, and decides. If the producer dies in between, the broker asks it after its restart, or
another producer of its group, and the checker finds out whether the work was done.

Used by applications. Wires `prepare_batcher`, `decision_batcher` and `checks` together.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Protocol

import msgspec
from msgspec.structs import replace

from headrace_mq._net.link import Link, LinkSettings
from headrace_mq._runtime.async_block import AsyncBlock
from headrace_mq._runtime.clock import Clock, SystemClock
from headrace_mq.client.batch.message_size import (
    UNKNOWN_BYTES,
    measure,
    message_bytes_max,
    quick_size,
)
from headrace_mq.client.names import client_id_of
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.producer.route import Route
from headrace_mq.client.transactions.checks import Checker, CheckResponder, Decision
from headrace_mq.client.transactions.decision_batcher import DecisionBatcher
from headrace_mq.client.transactions.prepare_batcher import BUNDLES_ON_WAY_MAX, PrepareBatcher
from headrace_mq.errors import Closed, MessageQueueError, TopicNotFound
from headrace_mq.message import Message
from headrace_mq.protocol.bodies import DescribeTopics, TopicsAnswer
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.scheduled import SCHEDULE_TOPIC
from headrace_mq.protocol.transactions import (
    BUNDLE_BYTES_MAX,
    NAME_BYTES_MAX,
    NAME_SURELY_SHORT,
    TRANSACTION_TOPIC,
)
from headrace_mq.settings import ProducerSettings, TransactionSettings

__all__ = ["Local", "Transaction", "TransactionalProducer"]

# The most that a bundle needs for each message in addition to it: a batch and its place in it.
_BATCH_BYTES_MAX = 512
# Below this no broker refuses a transaction for its size.
_SURELY_BYTES = 32 << 10
# Asking an enum for a member costs as much as a call.
_COMMIT, _UNKNOWN = Decision.COMMIT, Decision.UNKNOWN


class _End(Protocol):
    """Brings a decision to the broker."""

    async def __call__(self, transaction: "Transaction", *, commit: bool) -> None: ...


class Transaction(msgspec.Struct, eq=False, frozen=True):
    """A prepared transaction, to be committed or rolled back once.

    Attributes:
        id: identifies the transaction for a checker.
        number, index: its place at the broker.
    """

    id: str
    number: int
    index: int
    _end: _End

    async def commit(self) -> None:
        """Makes the messages visible, durably on return. You may repeat it.

        Raises:
            DecidedOtherwise: the transaction was rolled back before, or given up after its last check.
            RequestTimeout, BrokerError: the outcome is unknown; the checker will be asked.
        """
        await self._end(self, commit=True)

    async def rollback(self) -> None:
        """Drops the messages, durably on return. You may repeat it. Raises like `commit`."""
        await self._end(self, commit=False)


# What the application does between preparing and deciding.
Local = Callable[[Transaction], Awaitable[Decision]]


class TransactionalProducer(AsyncBlock):
    """Sends messages together with work elsewhere: both happen, or neither does.

    Safe to use from many tasks of one event loop; concurrent transactions go together in bundles.

    Args:
        address: the broker's `host:port`.
        group: the producers that may answer for each other's transactions; their checkers look into
            the same database.
        checker: says what became of a transaction; you may use the decorator `checker` instead.
        settings: limits of batches, buffer and time.
        transactions: limits of bundles and checks.
        clock: gives born times.
    """

    def __init__(
        self,
        address: str,
        *,
        group: str,
        checker: Checker | None = None,
        settings: ProducerSettings | None = None,
        transactions: TransactionSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not 1 <= len(group.encode()) <= NAME_BYTES_MAX:
            raise ValueError(f"the name of a group has 1 to {NAME_BYTES_MAX} bytes")
        self._settings = settings or ProducerSettings()
        self._limits = transactions or TransactionSettings()
        self._clock = clock or SystemClock()
        self._group = group
        self._checker = checker
        # What it carries is compressed already, and bounded by how many bundles are on their way.
        carrying = replace(
            self._settings,
            codec="none",
            buffer_bytes_max=max(
                self._settings.buffer_bytes_max, BUNDLES_ON_WAY_MAX * BUNDLE_BYTES_MAX
            ),
        )
        self._producer = Producer(address, carrying, clock=self._clock)
        self._link = Link(
            address,
            client_id=client_id_of(self._settings.name),
            settings=LinkSettings.of(self._settings),
        )
        self._decisions: DecisionBatcher | None = None
        self._preparer: PrepareBatcher | None = None
        self._ids, self._prefix = count(1), f"{self._link.client_id}-"
        self._running: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._open = False

    def checker(self, checker: Checker) -> Checker:
        """Sets the checker, as a decorator; use it before `start`."""
        self._checker = checker
        return checker

    async def start(self) -> None:
        """Connects, waiting for the broker for the send timeout at most, and begins to answer checks.

        Raises:
            ConnectionLost: no broker answered in time; the sentence says what to check.
            ValueError: there is no checker, or the codec of the settings is not installed.
        """
        if self._checker is None:
            raise ValueError(
                "a transactional producer needs a checker, which decides transactions whose"
                " process died; pass one"
            )
        await self._producer.start()
        try:
            await self._producer.create_topic(TRANSACTION_TOPIC, 1)
            await self._link.start(self._settings.send_timeout_ms)
        except BaseException:
            await self._producer.aclose()
            raise
        self._decisions = DecisionBatcher(self._link, self._group, self._settings.send_timeout_ms)
        self._preparer = PrepareBatcher(
            group=self._group,
            client_id=self._link.client_id,
            send=self._producer.send_soon,
            codec=self._settings.codec,
            transactions_max=self._limits.bundle_transactions_max,
            bytes_max=self._limits.bundle_bytes_max,
            clock=self._clock,
        )
        checking = CheckResponder(
            self._link,
            self._decisions,
            group=self._group,
            checker=self._checker,
            running=self._running,
            settings=self._limits,
        )
        self._tasks = [
            asyncio.create_task(checking.run(), name="answer checks"),
            asyncio.create_task(self._refresh_routes(), name="transaction routes"),
        ]
        self._open = True

    async def aclose(self) -> None:
        """Sends the last decisions to the broker, then closes; undecided transactions stay prepared."""
        if not self._open:
            return
        self._open = False
        await self._bundles.drained()
        # What was just prepared may decide in this moment.
        await asyncio.sleep(0)
        await self._ends.drained()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._link.aclose()
        await self._producer.aclose()

    async def send_in_transaction(
        self, messages: Message | Sequence[Message], local: Local, *, transaction_id: str = ""
    ) -> Decision:
        """Prepares messages, does the application's work, and sends them if it says so.

        If it returns COMMIT, the messages are visible, durably. After ROLLBACK they are gone, and after
        UNKNOWN the checker will be asked. It raises what `local` raises, and then the checker will be
        asked too, because a failed commit of a database may have happened.

        Args:
            messages: of any topics; all become visible, or none.
            local: does the work, once, when the messages are durable.
            transaction_id: identifies the transaction for the checker; random by default.

        Raises:
            ValueError, TypeError: a message cannot be sent; nothing was done.
            SendTimeout, BrokerError: the messages may or may not be prepared; `local` did not run.
            DecidedOtherwise: `local` took longer than the checks, and its decision came too late.
            RequestTimeout: `local` ran; the broker may or may not know its decision.
            Closed: the producer is not open.
        """
        if isinstance(messages, Message):
            messages = (messages,)
        name = transaction_id or f"{self._prefix}{next(self._ids)}"
        prepared = self._take(name, messages) or await self._route_and_take(name, messages)
        try:
            number, index = await prepared
            decision = await local(Transaction(name, number, index, self._end))
            if decision is not _UNKNOWN:
                # As `_ends` says it, at a third of the price; what was prepared has been open.
                end = self._decisions.end  # type: ignore[union-attr]  # it has been open
                await end(number, index, commit=decision is _COMMIT)
        finally:
            self._running.discard(name)
        return decision

    async def begin(
        self, messages: Message | Sequence[Message], *, transaction_id: str = ""
    ) -> Transaction:
        """Prepares messages; you commit the transaction or roll it back.

        Until you do, this process's checker is not asked; if the process is gone, another one's is.
        Raises what `send_in_transaction` raises.
        """
        if isinstance(messages, Message):
            messages = (messages,)
        name = transaction_id or f"{self._prefix}{next(self._ids)}"
        prepared = self._take(name, messages) or await self._route_and_take(name, messages)
        try:
            number, index = await prepared
        except BaseException:
            self._running.discard(name)
            raise
        return Transaction(name, number, index, self._end)

    async def _end(self, transaction: Transaction, *, commit: bool) -> None:
        if not self._open:
            raise Closed("the producer is closed; the broker asks the checker of its group")
        await self._ends.end(transaction.number, transaction.index, commit=commit)
        self._running.discard(transaction.id)

    @property
    def _bundles(self) -> PrepareBatcher:
        if self._preparer is None:
            raise _not_open()
        return self._preparer

    @property
    def _ends(self) -> DecisionBatcher:
        if self._decisions is None:
            raise _not_open()
        return self._decisions

    def _take(
        self, name: str, messages: Sequence[Message]
    ) -> asyncio.Future[tuple[int, int]] | None:
        """Checks a transaction and hands it over; None where a topic has no route yet.

        Raises:
            ValueError, TypeError: it cannot be sent; the sentence says why.
            Closed: the producer is not open.
        """
        if not self._open or self._preparer is None:
            raise _not_open()
        if not messages or (len(name) > NAME_SURELY_SHORT and len(name.encode()) > NAME_BYTES_MAX):
            raise ValueError(
                f"a transaction has one message or more, and an id of at most {NAME_BYTES_MAX} bytes"
            )
        if name in self._running:
            raise ValueError(f"transaction {name!r} is under way here; give each its own id")
        routes, routed = self._preparer.routes, True
        # About the most bytes that it can take on the wire.
        size = _BATCH_BYTES_MAX * len(messages)
        for message in messages:
            if message.topic in routes and (quick := quick_size(message)) < UNKNOWN_BYTES:
                size += quick
            else:
                size += self._measure_one(message)
                routed = routed and message.topic in routes
        if size > _SURELY_BYTES and size > (limit := message_bytes_max(self._link.frame_bytes_max)):
            raise ValueError(
                f"a transaction of {size} bytes is over the broker's limit of {limit}; send"
                " references to the content, or raise the broker's frame_bytes_max"
            )
        if not routed:
            return None
        self._running.add(name)
        return self._preparer.add(name, messages, size)

    async def _route_and_take(
        self, name: str, messages: Sequence[Message]
    ) -> asyncio.Future[tuple[int, int]]:
        while True:
            await self._find_routes({message.topic for message in messages})
            taken = self._take(name, messages)
            if taken is not None:
                return taken

    def _measure_one(self, message: Message) -> int:
        if message.topic in {TRANSACTION_TOPIC, SCHEDULE_TOPIC}:
            raise ValueError("name the topics that the messages are for, not the broker's own")
        return measure(message, message_bytes_max(self._link.frame_bytes_max))

    async def _find_routes(self, topics: set[str], *, create_missing: bool = True) -> None:
        answer = await self._link.ask(
            TopicsAnswer,
            RequestCode.DESCRIBE_TOPICS,
            DescribeTopics(topics=sorted(topics), create_missing=create_missing),
            timeout_ms=self._settings.send_timeout_ms,
        )
        routes = self._bundles.routes
        for found in answer.topics:
            route = routes.get(found.topic)
            if route is None:
                route = routes[found.topic] = Route(found.topic, found.queues)
            compact = found.retention == "compact"
            route.update(found.queues, found.unwritable, compact=compact)
        missing = topics - routes.keys()
        if missing:
            raise TopicNotFound(
                f"topic {min(missing)!r} does not exist and the broker does not create topics by"
                " itself; create it first"
            )

    async def _refresh_routes(self) -> None:
        while True:
            await asyncio.sleep(self._limits.route_refresh_ms / 1_000)
            with suppress(MessageQueueError):
                await self._find_routes(set(self._bundles.routes), create_missing=False)


def _not_open() -> Closed:
    return Closed("the producer is not open: start it first, and do not use it once closed")

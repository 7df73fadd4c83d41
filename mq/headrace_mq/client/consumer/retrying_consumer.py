"""
A consumer that retries: it reads the group's retry topic and sends failed records there.

Used by applications; wires `Consumer`, a `Producer` and the policies of `retries.retries`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from headrace_mq._runtime.async_block import AsyncBlock
from headrace_mq._runtime.clock import Clock
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.fetch.damage import DamageLog
from headrace_mq.client.group.allocation import Strategy
from headrace_mq.client.group.contract import retries_told
from headrace_mq.client.handlers.execution import check_async
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.retries.retries import RetryPolicy
from headrace_mq.client.retry_headers import restored, retry_topic
from headrace_mq.message import QueueRef, Record
from headrace_mq.settings import ConsumerSettings, ProducerSettings, RetrySettings

__all__ = ["RetryingConsumer"]


class RetryingConsumer(AsyncBlock):
    """A consumer whose failed records come again later, and in the end go to the dead letters.

    It reads the group's retry topic in addition to your topics, and has its own producer.
    The handler gets retried records as they were in their own topic; `origin_of` says which
    attempt it is.

    Args:
        address: the broker's `host:port`.
        group: the group; all its members must retry in the same way.
        topics: one or more, with or without conditions, as with `Consumer`; retried records come
            without regard to conditions.
        settings: of the consumer.
        retry: delays, and how often; an operator's settings of the group (`headrace group set`)
            override them.
        strategy: how queues are divided, as with `Consumer`.
        clock: the time.
    """

    def __init__(
        self,
        address: str,
        *,
        group: str,
        topics: Sequence[str] | Mapping[str, str],
        settings: ConsumerSettings | None = None,
        retry: RetrySettings | None = None,
        strategy: Strategy | None = None,
        clock: Clock | None = None,
    ) -> None:
        if isinstance(topics, str):
            raise ValueError("a consumer needs the name of its group and a list of topics")  # noqa: TRY004 - as Consumer says it
        self._retry_topic = retry_topic(group)
        self._settings = retry or RetrySettings()
        named = ProducerSettings(name=settings.name) if settings is not None else None
        self._producer = Producer(address, named, clock=clock)
        self.consumer = Consumer(
            address,
            group=group,
            topics={
                **(topics if isinstance(topics, Mapping) else dict.fromkeys(topics, "")),
                self._retry_topic: "",
            },
            settings=settings,
            strategy=strategy,
            clock=clock,
        )
        self.consumer.contract["the retries"] = retries_told(self._settings)
        self._policy = RetryPolicy(self._producer, group, self._settings, self.consumer.rules)

    async def start(self) -> None:
        """Connects, makes the retry topic and joins the group. Raises as `Consumer.start`."""
        await self._producer.start()
        try:
            await self._producer.create_topic(self._retry_topic, self._settings.queues)
            await self.consumer.start()
        except BaseException:
            await self._producer.aclose()
            raise

    async def aclose(self) -> None:
        """Lets `run` finish its current records, commits, leaves the group, and closes."""
        try:
            await self.consumer.aclose()
        finally:
            await self._producer.aclose()

    @property
    def assignment(self) -> frozenset[QueueRef]:
        """The queues that this member has now, including those of the retry topic."""
        return self.consumer.assignment

    @property
    def damage(self) -> DamageLog:
        """Messages that could not be read and were left out, as `Consumer.damage`."""
        return self.consumer.damage

    async def run(self, handler: Callable[[Record], Awaitable[None]]) -> None:
        """Handles records until the consumer is closed, as `Consumer.run` does."""
        check_async(handler)

        async def handle(record: Record) -> None:
            await handler(restored(record))

        await self.consumer.run(handle, on_failure=self._policy)

    async def run_batches(
        self,
        handler: Callable[[Sequence[Record]], Awaitable[None]],
        *,
        records_max: int,
        wait_ms: int,
    ) -> None:
        """Handles several records of a queue at a time, as `Consumer.run_batches` does.

        A batch that fails is retried record by record, each on its own.
        """
        check_async(handler)

        async def handle(records: Sequence[Record]) -> None:
            await handler([restored(record) for record in records])

        await self.consumer.run_batches(
            handle, records_max=records_max, wait_ms=wait_ms, on_failure=self._policy
        )

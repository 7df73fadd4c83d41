"""
A transport by its setting.

Used by the composition root, which has a setting; makes one of the adapters.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from headrace._runtime.clock import MovedClock
from headrace.errors import DefinitionError, ExtraMissing
from headrace.transports.base import Transport
from headrace.transports.kafka.address import KafkaAddress, is_kafka

if TYPE_CHECKING:  # the extra of Kafka may not be installed
    from headrace.transports.kafka.schedule import Schedule

__all__ = ["open_transport", "require_broker"]


@asynccontextmanager
async def open_transport(
    broker: str | None,
    *,
    name: str = "",
    within_ms: int | None = None,
    schedule: "Callable[[], Awaitable[Schedule]] | None" = None,
    dispatches: bool = False,
    trace_share: float = 0.0,
    clock: MovedClock | None = None,
) -> AsyncIterator[Transport]:
    """Opens the transport over a broker, or one within this process; closed with the block.

    Args:
        broker: its `host:port`, or `kafka://host:port,…`; None: messages stay in this process.
        name: what this process is called there; empty: it has a random name.
        within_ms: how long to wait for the broker; None: as long as a message may wait for it.
        schedule: opens what keeps messages for later where the queue does not: at Kafka.
        dispatches: whether this process publishes what is due there.
        trace_share: share of the messages, 0 to 1, of which the broker keeps when subscriptions got them and were done.
            In this process nothing keeps that.
        clock: decides when messages within this process are due; None: the machine's.

    Raises:
        BrokerUnreachable: no broker answered in time.
        DefinitionError: the address is none; the sentence says what to write.
        ExtraMissing: the client of Kafka is not installed.
        ValueError: the name has other characters than letters, digits, '.', '_' and '-', or more than 100.
    """
    if broker is None:
        from headrace.transports.local import LocalTransport

        transport: Transport = LocalTransport(
            clock, call_later=None if clock is None else clock.call_later
        )
    elif is_kafka(broker):
        if trace_share:
            raise DefinitionError(
                "a Kafka cluster keeps no trace of messages; leave trace_share at 0, or use Headrace's own broker"
            )
        transport = await _at_kafka(broker, name, within_ms, schedule, dispatches=dispatches)
    else:
        from headrace.transports.queue import QueueTransport

        queue = QueueTransport(broker, name=name, trace_share=trace_share)
        await queue.start(within_ms=within_ms)
        transport = queue
    try:
        yield transport
    finally:
        await transport.aclose()


async def require_broker(broker: str, *, within_ms: int) -> None:
    """Returns when a broker answers.

    Args:
        broker: as for `open_transport`.
        within_ms: how long to wait.

    Raises:
        TimeoutError, OSError, HeadraceError, MessageQueueError: none does; the sentence says why.
    """
    if not is_kafka(broker):
        from headrace_mq.admin.client import AdminClient

        async with AdminClient(broker, timeout_ms=within_ms) as admin:
            await admin.topics()
        return
    from headrace.transports.kafka.topics import ClusterTopics

    topics = ClusterTopics(KafkaAddress.parse(broker), "headrace.health")
    await asyncio.to_thread(topics.brokers, within_ms / 1_000)


async def _at_kafka(
    broker: str,
    name: str,
    within_ms: int | None,
    schedule: "Callable[[], Awaitable[Schedule]] | None",
    *,
    dispatches: bool,
) -> Transport:
    try:
        address = KafkaAddress.parse(broker)
    except ValueError as error:
        raise DefinitionError(f"broker: {error}") from error
    try:
        from headrace.transports.kafka.transport import KafkaTransport
    except ImportError as error:
        raise ExtraMissing(
            "the client of Kafka is not installed; pip install 'headrace[kafka]'"
        ) from error
    kept = None if schedule is None else await schedule()
    try:
        found = KafkaTransport(address, name=name, schedule=kept, dispatches=dispatches)
    except BaseException:
        if kept is not None:
            await kept.aclose()
        raise
    try:
        await found.start(within_ms=within_ms)
    except BaseException:
        await found.aclose()
        raise
    return found

"""Replies reach the process of their address, and no other one that shares its partition."""

import asyncio

from headrace.testing.conformance.subscriptions import fresh, outgoing
from headrace.testing.kafka import MockKafka
from headrace.transports.base import Place
from headrace.transports.kafka.transport import KafkaTransport


async def test_a_reply_goes_into_no_other_topic(
    cluster: MockKafka, transport: KafkaTransport
) -> None:
    topic = fresh("t")
    await transport.ensure_topic(topic, queues=1, forever=True)
    await transport.reply(f"{topic}/0/anybody", "c", b"forged")
    assert await transport.publish(outgoing(topic, 0)) == Place(0, 0)


async def test_replies_of_one_partition_are_told_apart(cluster: MockKafka) -> None:
    transports = [KafkaTransport(cluster.address(), topics=cluster.topics) for _ in range(12)]
    came: list[asyncio.Queue[tuple[str, bytes]]] = [asyncio.Queue() for _ in transports]
    for transport, queue in zip(transports, came, strict=True):
        transport.on_reply(lambda *reply, queue=queue: queue.put_nowait(reply))
        await transport.start()
    addresses = [transport.reply_address for transport in transports]
    # More processes than partitions.
    assert len({address.rpartition("/")[0] for address in addresses}) < len(addresses)
    for number, address in enumerate(addresses):
        await transports[0].reply(address, f"c-{number}", str(number).encode())
    async with asyncio.timeout(30):
        got = [await queue.get() for queue in came]
    assert got == [(f"c-{number}", str(number).encode()) for number in range(len(got))]
    assert all(queue.empty() for queue in came)
    for transport in transports:
        await transport.aclose()

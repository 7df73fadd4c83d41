"""A consumer process that retries, killed again and again between a failure and its acknowledgement."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.client.batch.message_size import message_bytes_max
from headrace_mq.client.consumer.retrying_consumer import RetryingConsumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.retries.retries import GiveUp
from headrace_mq.message import HEADERS_MAX, Message, Record
from headrace_mq.settings import BrokerSettings, StoreSettings

# Fails each record twice; says so, and what it handled.
RETRYING = """
import asyncio, structlog, sys
from headrace_mq import ConsumerSettings, RetryingConsumer
from headrace_mq.client.retry_headers import origin_of
from headrace_mq.client.retries.retries import RetryAfter

async def handle(record):
    origin = origin_of(record)
    attempt = origin.attempt if origin else 0
    print("said", "failed" if attempt < 2 else "handled", record.offset, flush=True)
    if attempt < 2:
        raise RetryAfter(10)

# Every failure is logged with its traceback, which would take most of the time.
structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))

async def main(address):
    settings = ConsumerSettings(heartbeat_ms=100, commit_interval_ms=20)
    consumer = RetryingConsumer(address, group="g", topics=["t"], settings=settings)
    async with consumer:
        await consumer.run(handle)

asyncio.run(main(sys.argv[1]))
"""
COUNT, KILLS = 200, 4
FRAME_BYTES_MAX = BrokerSettings(store=StoreSettings(directory=Path())).frame_bytes_max


async def test_no_record_is_lost_however_often_the_consumer_is_killed_while_it_retries(
    broker: Any, start_child: Any
) -> None:
    async with Producer(broker.address) as producer:
        await producer.create_topic("t", 1)
        sent = await producer.send_many(
            [Message(topic="t", key=f"{n % 20}", body=b"x") for n in range(COUNT)]
        )
    wanted = {result.offset for result in sent}
    handled: set[int] = set()
    failures = 0
    for kill in range(KILLS + 1):
        consumer = await start_child(RETRYING, broker.address)
        said: list[str] = []
        while wanted - handled and (kill == KILLS or len(said) < COUNT // 3):
            said.append(await consumer.heard("said"))
            what, offset = said[-1].split()
            if what == "handled":
                handled.add(int(offset))
        # In the middle of failing and retrying; the last one is only tidied up.
        await consumer.end()
        # What was handled and committed in the meantime does not come again.
        said += consumer.rest("said")
        handled |= {int(each.split()[1]) for each in said if each.startswith("handled")}
        failures += sum(each.startswith("failed") for each in said)
    assert handled == wanted
    assert failures >= 2 * COUNT


@pytest.mark.parametrize("kind", ["headers", "size"])
async def test_poison_that_cannot_be_copied_holds_up_nothing_behind_it(
    broker: Any, kind: str
) -> None:
    """Its letter says where it stands, and a resend finds it there."""
    headers = {f"h{n}": "x" for n in range(HEADERS_MAX)} if kind == "headers" else {}
    body = (
        b"poison"
        if kind == "headers"
        else b"poison".ljust(message_bytes_max(FRAME_BYTES_MAX) - 100)
    )
    poison = Message(topic="t", key="k", body=body, headers=headers)
    handled: list[bytes] = []
    behind = asyncio.Event()

    async def handle(record: Record) -> None:
        handled.append(record.body[:6])
        if record.body.startswith(b"poison"):
            raise GiveUp("never")
        behind.set()

    async with Producer(broker.address) as producer:
        await producer.create_topic("t", 1)
        await producer.send(poison)
        await producer.send(Message(topic="t", key="k", body=b"behind"))
    retrying = RetryingConsumer(broker.address, group="g", topics=["t"])
    async with AdminClient(broker.address) as admin:
        async with retrying:
            running = asyncio.create_task(retrying.run(handle))
            await behind.wait()
        await running
        assert handled == [b"poison", b"behind"]
        (letter,) = await admin.dead_letters("g")
        assert letter.origin is not None
        assert (letter.origin.topic, letter.origin.offset) == ("t", 0)
        assert (letter.origin.reason, letter.origin.apart) == ("GiveUp: never", True)

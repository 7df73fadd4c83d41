"""A consumer process that retries, killed again and again between a failure and its acknowledgement."""

from typing import Any

from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message

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

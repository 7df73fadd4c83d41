"""A process that sends dead letters again is killed in the middle of it, again and again."""

from collections import Counter
from typing import Any

from headrace_mq.admin.client import AdminClient
from headrace_mq.admin.tail import TAIL_MAX
from headrace_mq.client.handlers.failures import Failure
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.retries.retries import GiveUp, RetryPolicy
from headrace_mq.client.retry_headers import retry_topic
from headrace_mq.message import QueueRef, Record

# Sends all of them again, and says how far it got.
RESENDER = """
import asyncio, sys
from headrace_mq.admin.client import AdminClient
from headrace_mq.admin.dead_letters import ResendSettings

async def main(address):
    settings = ResendSettings(per_second=500, together_max=TOGETHER)
    async with AdminClient(address) as admin:
        def say(count):
            print("said", count, flush=True)
        await admin.resend_all("g", settings=settings, progress=say)
        print("said over", flush=True)

asyncio.run(main(sys.argv[1]))
"""
LETTERS, TOGETHER, KILLS = 400, 20, 5


async def bury(address: str) -> None:
    async with Producer(address) as producer:
        policy = RetryPolicy(producer, "g")
        for number in range(LETTERS):
            record = Record(
                queue=QueueRef("t", 0), offset=number, key="k", tag="", headers={},
                body=b"%d" % number, born_at_ms=1, stored_at_ms=2,
            )  # fmt: skip
            await policy.decide(Failure(record, GiveUp("never"), 1))


async def arrivals(admin: AdminClient) -> Counter[int]:
    """How often each letter came back to its group."""
    if retry_topic("g") not in {found.topic for found in await admin.topics()}:
        return Counter()
    end = await admin.tail(retry_topic("g"), TAIL_MAX)
    return Counter(int(record.body) for record in end.records)


async def marked(admin: AdminClient) -> set[int]:
    """The letters of which it is durable that they were sent again."""
    return {
        one.id
        for one in await admin.dead_letters("g", limit=LETTERS)
        if one.resent_at_ms is not None
    }


async def test_no_command_is_lost_and_no_marked_command_is_sent_twice(
    broker: Any, start_child: Any
) -> None:
    await bury(broker.address)
    code = RESENDER.replace("TOGETHER", str(TOGETHER))
    async with AdminClient(broker.address) as admin:
        for kill in range(KILLS):
            before, sent = await marked(admin), await arrivals(admin)
            resender = await start_child(code, broker.address)
            said = await resender.heard("said")
            while said != "over" and int(said) < TOGETHER * (kill + 1):
                said = await resender.heard("said")
            await resender.end()
            after = await arrivals(admin)
            assert all(after[one] == sent[one] for one in before)
            # At least once: what is marked is there.
            assert await marked(admin) <= set(after)
        resender = await start_child(code, broker.address)
        while (await resender.heard("said")) != "over":
            pass
        counts = await arrivals(admin)
        assert set(counts) == set(range(LETTERS)) == await marked(admin)
        assert counts.total() <= LETTERS + KILLS * TOGETHER
        assert await admin.purge("g", resent=True) == LETTERS
        await broker.kill()
        await broker.start()
        assert await admin.dead_letters("g") == []

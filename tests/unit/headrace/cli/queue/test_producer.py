"""`headrace producer` as an operator meets it, against a broker in a process of its own."""

import asyncio

from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message


def test_producers_at_work_are_listed(run, topic, broker_address) -> None:
    async def listed() -> None:
        async with Producer(broker_address) as producer:
            await producer.send_many([Message(topic=topic, body=b"x")] * 3)
            shown = await asyncio.to_thread(run, "producer", "list")
            told = await asyncio.to_thread(run, "producer", "list", "--json")
        assert shown.rows[0] == [
            "client", "user", "address", "software", "connected (UTC)", "messages", "bytes in", "bytes out",
            "held up",
        ]  # fmt: skip
        (one,) = [one for one in told.json if one["produced"] == 3]
        assert sorted(one) == [
            "address", "client_id", "groups", "produced", "received_bytes", "roles", "sent_bytes",
            "since_ms", "software", "throttled_ms", "user",
        ]  # fmt: skip
        assert [row[5] for row in shown.rows if row[0] == one["client_id"]] == ["3"]

    asyncio.run(listed())

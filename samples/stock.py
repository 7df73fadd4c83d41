"""
The stock of a shop as a topic of latest states: what is left of each article, and nothing older.

A program that starts reads all of it and then follows the changes; it needs no other service and no database:

    headrace broker --data var/broker
    python -m samples.stock 127.0.0.1:9876

Used by a shop that counts, and by readers that must know what is left.
"""

import asyncio
import sys
from collections.abc import Mapping

from headrace_mq import AdminClient, ConsumerSettings, Message, Producer, PullConsumer, QueueRef

__all__ = ["TOPIC", "Stock", "announce", "main"]

TOPIC = "stock"
# How long to wait for what others announce before looking whether to go on; any time will do.
WAIT_MS = 100


async def announce(producer: Producer, left: Mapping[str, int | None]) -> None:
    """Says how much is left of articles; None takes one out of the range.

    A message without a body deletes its key: the article, and after a day the message too.
    """
    await producer.send_many(
        [
            Message(topic=TOPIC, key=article, body=b"" if count is None else b"%d" % count)
            for article, count in left.items()
        ]
    )


class Stock:
    """What is left of each article, as it was announced; kept up to date with `follow`.

    Args:
        reader: open, and used by this object alone.

    Attributes:
        left: article to count.
    """

    def __init__(self, reader: PullConsumer) -> None:
        self._reader = reader
        self.left: dict[str, int] = {}

    async def load(self, admin: AdminClient) -> None:
        """Reads the topic from its beginning to where it ends now."""
        ends = {QueueRef(TOPIC, one.queue_id): one.end for one in await admin.ranges([TOPIC])}
        await self._reader.assign(ends)
        # The place, not the last message: a compaction may have taken that.
        while any(self._reader.position(queue) < end for queue, end in ends.items()):
            await self.follow()

    async def follow(self) -> None:
        """Takes in what was announced since, or waits a moment for it."""
        for record in await self._reader.fetch(timeout_ms=WAIT_MS):
            if record.body:
                self.left[record.key] = int(record.body)
            else:
                self.left.pop(record.key, None)


async def main(broker: str) -> dict[str, int]:
    """Announces some stock, and returns what a reader that starts afterwards knows."""
    async with Producer(broker) as producer:
        await producer.create_topic(TOPIC, queues=2, retention="compact")
        await announce(producer, {"pen": 100, "ink": 20, "cap": 7})
        for sold in range(1, 11):
            await announce(producer, {"pen": 100 - sold})
        await announce(producer, {"cap": None})
    settings = ConsumerSettings(start="earliest")
    async with AdminClient(broker) as admin, PullConsumer(broker, settings=settings) as reader:
        stock = Stock(reader)
        await stock.load(admin)
    return stock.left


if __name__ == "__main__":
    print(asyncio.run(main(sys.argv[1])))

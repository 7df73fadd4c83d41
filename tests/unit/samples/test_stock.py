"""The stock that every reader knows as a whole."""

from headrace_mq import ConsumerSettings, Producer, PullConsumer
from headrace_mq.admin.client import AdminClient
from headrace_mq.settings import BrokerSettings, StoreSettings
from headrace_mq.testing.embedded import DIRECTORY, broker
from samples.stock import Stock, announce, main


async def test_a_reader_that_starts_knows_what_is_left_of_each_article() -> None:
    async with broker() as address:
        assert await main(address) == {"pen": 90, "ink": 20}
        settings = ConsumerSettings(start="earliest")
        async with (
            AdminClient(address) as admin,
            Producer(address) as producer,
            PullConsumer(address, settings=settings) as reader,
        ):
            stock = Stock(reader)
            await stock.load(admin)
            await announce(producer, {"pen": 3, "ink": None})
            while stock.left != {"pen": 3}:
                await stock.follow()


async def test_it_knows_the_same_when_the_topic_was_compacted() -> None:
    store = StoreSettings(
        directory=DIRECTORY, compact_segment_bytes=64 << 10, compact_lag_ms=0,
        compact_interval_ms=1, compact_bytes_per_s=0, tombstone_ms=1,
    )  # fmt: skip
    async with broker(BrokerSettings(store=store)) as address:
        await main(address)
        async with AdminClient(address) as admin, Producer(address) as producer:
            count = 0
            while (await admin.status()).compaction.removed < 100:
                await announce(producer, {f"article {n}": count for n in range(100)})
                count += 1
        assert await main(address) == {"pen": 90, "ink": 20} | {
            f"article {n}": count - 1 for n in range(100)
        }

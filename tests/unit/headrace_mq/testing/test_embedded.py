"""A broker, and a name server, in the test's own process."""

from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message
from headrace_mq.settings import BrokerSettings, StoreSettings
from headrace_mq.testing import ManualClock, broker, memory_disk, name_server, take
from headrace_mq.testing.embedded import DIRECTORY


async def test_a_sent_message_is_received() -> None:
    async with broker() as address:
        async with Producer(address) as producer:
            await producer.send_many([Message(topic="t", body=b"%d" % n) for n in range(100)])
        async with Consumer(address, group="g", topics=["t"]) as consumer:
            records = await take(consumer, 100)
    assert sorted(int(record.body) for record in records) == list(range(100))
    assert not DIRECTORY.exists()


async def test_a_disk_that_is_used_again_holds_what_was_stored() -> None:
    disk = memory_disk()
    async with broker(disk=disk) as address, Producer(address) as producer:
        await producer.send(Message(topic="t", body=b"kept"))
    disk.cut_power()
    async with (
        broker(disk=disk) as address,
        Consumer(address, group="g", topics=["t"]) as consumer,
    ):
        assert [record.body for record in await take(consumer, 1)] == [b"kept"]


async def test_the_brokers_time_is_the_clocks() -> None:
    clock = ManualClock(1_000_000_000_000)
    clock.advance(5)
    async with broker(clock=clock) as address:
        async with Producer(address) as producer:
            await producer.send(Message(topic="t", body=b"a"))
        async with Consumer(address, group="g", topics=["t"]) as consumer:
            (record,) = await take(consumer, 1)
    assert record.stored_at_ms == 1_000_000_000_005


async def test_settings_count_but_for_the_port() -> None:
    store = StoreSettings(directory=DIRECTORY, segment_bytes=1 << 20)
    settings = BrokerSettings(store=store, default_queues=7, port=1)
    async with broker(settings) as address, Producer(address) as producer:
        results = await producer.send_many([Message(topic="t", body=b"a") for _ in range(14)])
    assert {result.queue.queue_id for result in results} == set(range(7))


async def test_two_brokers_run_side_by_side() -> None:
    async with broker() as one, broker() as other:
        assert one != other


async def test_a_name_server_is_ready_at_once_unless_a_test_wants_it_otherwise() -> None:
    async with name_server() as server, name_server(not_ready_ms=60_000) as later:
        assert server.routes("", "").ready
        assert not later.routes("", "").ready
        assert server.address != later.address

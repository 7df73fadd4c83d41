"""A broker whose machine's clock is wrong for a while, and started again: what it held is still there."""

from pathlib import Path

import pytest

from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.server import Broker
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message, QueueRef
from headrace_mq.settings import BrokerSettings, StoreSettings
from headrace_mq.testing.clock import ManualClock

HOUR_MS = 3_600_000
QUEUE = QueueRef("t", 0)


@pytest.fixture
def settings(tmp_path: Path) -> BrokerSettings:
    store = StoreSettings(directory=tmp_path / "broker", segment_bytes=64 << 10)
    return BrokerSettings(port=0, default_queues=1, store=store)


async def send(broker: Broker, count: int) -> None:
    async with Producer(broker.address) as producer:
        for _ in range(count):
            await producer.send(Message(topic="t", body=bytes(4_000)))


def passes(broker: Broker, count: int = 30) -> None:
    """The retention timer's work, as often as it takes for everything that may go."""
    assert broker._deletion is not None
    for _ in range(count):
        broker._deletion.run()


def held(broker: Broker) -> int:
    assert broker._state is not None
    first, end = broker._state.store.range(QUEUE)
    return end - first


@pytest.mark.parametrize(
    "wrong_ms", [-8 * 24 * HOUR_MS, 8 * 24 * HOUR_MS, -50 * 365 * 24 * HOUR_MS]
)
@pytest.mark.parametrize("end", ["stopped", "machine booted"])
async def test_a_clock_that_was_wrong_for_a_second_deletes_nothing_at_the_next_start(
    settings: BrokerSettings, wrong_ms: int, end: str
) -> None:
    clock = ManualClock()
    async with Broker(settings, clock=clock) as broker:
        await send(broker, 100)
        clock.set(clock.now_ms() + wrong_ms)
        clock.advance(1_000)
        await send(broker, 30)
        clock.set(clock.now_ms() - wrong_ms)
        await send(broker, 30)
        passes(broker)
        assert held(broker) == 160
    if end == "machine booted":
        clock.reboot(clock.now_ms() + 5_000)
    async with Broker(settings, clock=clock) as broker:
        passes(broker)
        assert held(broker) == 160
        # And what does age goes: all but the segment that is written to.
        clock.advance(settings.store.unconsumed_ms_max + 1)
        await broker._keep_time()
        passes(broker)
        assert held(broker) < 20


async def test_a_directory_of_the_version_before_has_nothing_that_was_seen_to_age(
    settings: BrokerSettings,
) -> None:
    clock = ManualClock()
    async with Broker(settings, clock=clock) as broker:
        await send(broker, 100)
    (settings.store.directory / "metadata" / "timeline.json").unlink()
    clock.advance(30 * 24 * HOUR_MS)
    async with Broker(settings, clock=clock) as broker:
        passes(broker)
        assert held(broker) == 100
        clock.advance(settings.store.unconsumed_ms_max)
        await broker._keep_time()
        passes(broker)
        assert held(broker) < 20


async def test_a_damaged_timeline_ages_nothing_and_refuses_nothing(
    settings: BrokerSettings,
) -> None:
    clock = ManualClock()
    async with Broker(settings, clock=clock) as broker:
        await send(broker, 100)
    path = settings.store.directory / "metadata" / "timeline.json"
    path.write_bytes(path.read_bytes()[:-3] + b"\0\0\0")
    clock.advance(30 * 24 * HOUR_MS)
    async with Broker(settings, clock=clock) as broker:
        passes(broker)
        assert held(broker) == 100


async def test_a_jump_is_an_alarm_that_outlives_a_restart(settings: BrokerSettings) -> None:
    clock = ManualClock()

    async def alarm(broker: Broker) -> str:
        async with AdminClient(broker.address) as admin:
            return (await admin.status()).clock_alarm

    async with Broker(settings, clock=clock) as broker:
        assert await alarm(broker) == ""
        clock.set(clock.now_ms() - 3 * HOUR_MS)
        assert "set back by 10,800 s" in await alarm(broker)
    async with Broker(settings, clock=clock) as broker:
        assert "set back by 10,800 s" in await alarm(broker)
        clock.advance(24 * HOUR_MS)
        assert await alarm(broker) == ""


async def test_members_and_locks_expire_by_silence_when_the_clock_is_set(
    settings: BrokerSettings,
) -> None:
    clock = ManualClock()
    async with Broker(settings, clock=clock) as broker:
        await send(broker, 1)
        state = broker._state
        assert state is not None
        async with Consumer(broker.address, group="g", topics=["t"]) as consumer:
            (record,) = await consumer.poll()
            for leap_ms in (-8 * 24 * HOUR_MS, 16 * 24 * HOUR_MS, -8 * 24 * HOUR_MS):
                clock.set(clock.now_ms() + leap_ms)
                await broker._expire_members()
                assert len(state.groups.members("g")) == 1
            consumer.ack(record)
        # Its last commit was taken under its lock.
        assert state.offsets.get("g", QUEUE) == 1
        async with Consumer(broker.address, group="g", topics=["t"]):
            # Heartbeats wait meanwhile: nothing here gives way. The first scan sees the pause.
            clock.advance(settings.member_expiry_ms + 1)
            await broker._expire_members()
            await broker._expire_members()
            assert state.groups.members("g") == []

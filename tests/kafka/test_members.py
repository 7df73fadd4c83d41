"""Members that come, go, stand still or are two by mistake: no message is lost, and keys keep their order."""

import asyncio
import random
import signal
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from headrace.settings import Settings
from headrace.testing.conformance.subscriptions import fresh, outgoing, take
from headrace.transports.base import Incoming
from headrace.transports.kafka.address import KafkaAddress
from headrace.transports.kafka.transport import KafkaTransport
from samples.kafka import KafkaBrokers
from tests.integration.exactly_once.conftest import Bank
from tests.kafka.test_exactly_once import serving, settled

pytestmark = pytest.mark.timeout(300)

PROTOCOLS = ["session.timeout.ms=6000", "group.protocol=consumer"]
KEYS, MESSAGES = 20, 3_000


async def connected(brokers: KafkaBrokers, options: str, name: str = "") -> KafkaTransport:
    transport = KafkaTransport(KafkaAddress.parse(f"{brokers.address}?{options}"), name=name)
    await transport.start()
    return transport


@pytest.mark.parametrize("options", PROTOCOLS)
async def test_in_a_storm_of_members_nothing_is_lost(
    one_broker: KafkaBrokers, options: str
) -> None:
    transport = await connected(one_broker, options)
    topic, group = fresh("t"), fresh("g")
    await transport.ensure_topic(topic, queues=6, forever=True)
    got: dict[str, list[int]] = defaultdict(list)
    chance = random.Random(1)

    async def follow(polls: int) -> None:
        member = await transport.subscribe(group, [topic])
        try:
            async with asyncio.timeout(10):
                for _ in range(polls):
                    found: list[Incoming] = await member.poll()
                    for each in found:
                        got[each.key].append(int(each.body))
                        member.ack(each)
        except TimeoutError:
            # The others have all queues.
            pass
        await member.aclose()

    async def storm() -> None:
        while sum(len(set(each)) for each in got.values()) < MESSAGES:
            await asyncio.gather(*[follow(chance.randint(1, 5)) for _ in range(3)])

    sending = asyncio.create_task(storm())
    for first in range(0, MESSAGES, 100):
        await asyncio.gather(
            *[
                transport.publish(outgoing(topic, number, f"k-{number % KEYS}"))
                for number in range(first, first + 100)
            ]
        )
    async with asyncio.timeout(200):
        await sending
    for key, numbers in got.items():
        # What comes again begins further back, and none is left out: first occurrences are in order.
        seen = list(dict.fromkeys(numbers))
        assert seen == sorted(seen), key
    assert sum(len(set(each)) for each in got.values()) == MESSAGES
    await transport.aclose()


async def test_two_processes_of_one_name_are_told(one_broker: KafkaBrokers) -> None:
    options = PROTOCOLS[0]
    first, second = [await connected(one_broker, options, "service-1") for _ in range(2)]
    topic, group = fresh("t"), fresh("g")
    await first.ensure_topic(topic, queues=1, forever=True)
    await first.publish(outgoing(topic, 0))
    early = await first.subscribe(group, [topic])
    for each in await take(early, 1):
        early.ack(each)
    late = await second.subscribe(group, [topic])

    async def poll_on() -> None:
        while True:
            await early.poll()

    with pytest.raises(HeadraceError, match="same name"):
        await asyncio.wait_for(poll_on(), 60)
    await first.publish(outgoing(topic, 1))
    assert await take(late, 1)
    for each in (early, late):
        await each.aclose()
    for transport in (first, second):
        await transport.aclose()


@pytest.mark.parametrize("options", PROTOCOLS)
async def test_a_service_that_stood_still_comes_back(
    three_brokers: KafkaBrokers, tmp_path: Path, options: str
) -> None:
    bank = Bank()
    with KafkaBrokers(tmp_path / "kafka", jars=three_brokers.jars) as brokers, ExitStack() as stack:
        settings = Settings(
            broker=f"{brokers.address}?{options}",
            event_store=f"sqlite:///{tmp_path}/events.db",
            read_models=f"sqlite:///{tmp_path}/read.db",
            result_timeout_ms=5_000,
            result_resend_ms=1_000,
        )
        services = [
            stack.enter_context(serving(settings, tmp_path / f"service-{number}.log"))
            for number in range(2)
        ]
        async with bank.app.client(settings) as bus:
            await bank.begin(bus)
            for part in range(3):
                going = asyncio.create_task(bank.go_on(bus, part, 3))
                # For longer than a session: the other one takes over, and this one finds that out.
                services[part % 2].signal(signal.SIGSTOP)
                await going
                services[part % 2].signal(signal.SIGCONT)
        assert (await settled(bank, settings)).faults() == []

"""Deployments with quotas and limited backlogs, one per seed, under all the faults of the others.

Limits come, change and go. Whatever was acknowledged is delivered, in order, and in the end everybody has
caught up, though limits stay.
"""

import sys
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from headrace_mq.broker.quotas.throttle import Throttle
from headrace_mq.errors import MessageQueueError
from headrace_mq.protocol.limits import NO_RATES, Rates
from headrace_mq.settings import BrokerSettings

TOPIC = "t"
SEEDS, SEEDS_PER_TEST = 12, 4
# A planted defect is found within so many seeds.
SEEDS_PER_DEFECT = 20


class Limited:
    """Put before a world: what its clients send and read is limited."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.faults = [*self.faults, "limit", "limit", "unlimit", "hurry", "hurry", "forgive"]

    def _settings(self) -> BrokerSettings:
        # Even the smallest is enough for the calm at the end.
        drawn = self.chosen
        return replace(
            super()._settings(),
            topic_produce_messages=drawn.choice((0, 10, 100)),
            client_fetch_messages=drawn.choice((0, 20, 200)),
            throttle_ms_max=drawn.choice((100, 1_000, 5_000)),
            quota_burst_ms=drawn.choice((100, 1_000)),
        )

    async def limit(self) -> None:
        """Gives the topic, or a client, a quota."""
        chosen = self.chosen
        rates = Rates(
            produce_messages=chosen.choice((0, 10, 100)),
            produce_bytes=chosen.choice((0, 2_000, 20_000)),
            fetch_messages=chosen.choice((0, 20, 200)),
            fetch_bytes=chosen.choice((0, 4_000, 40_000)),
        )
        hosts = [process.host for process in self.producers]
        hosts += [member.process.host for member in self.members]
        await self._set(*chosen.choice((("topic", TOPIC), ("client", chosen.choice(hosts)))), rates)

    async def unlimit(self) -> None:
        """Takes the topic's quota away."""
        await self._set("topic", TOPIC, None)

    async def hurry(self) -> None:
        """Lets producers wait for a group, or be refused, when it is too far behind."""
        group = self.chosen.choice(self.options.groups)
        limit = self.chosen.randint(1, 40), self.chosen.choice(("block", "reject"))
        with suppress(MessageQueueError):
            async with self._admin() as admin:
                await admin.limit_backlog(group, *limit)

    async def forgive(self) -> None:
        """Lets a group be behind again."""
        with suppress(MessageQueueError):
            async with self._admin() as admin:
                await admin.unlimit_backlog(self.chosen.choice(self.options.groups))

    async def _set(self, kind: Any, name: str, rates: Rates | None) -> None:
        with suppress(MessageQueueError):
            async with self._admin() as admin:
                if rates is None or rates == NO_RATES:
                    await admin.remove_quota(kind, name)
                else:
                    await admin.set_quota(kind, name, rates)


@pytest.fixture
def limited(world: type[Any]) -> type[Any]:
    """Worlds whose clients have quotas."""
    return type("LimitedWorld", (Limited, world), {})


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_a_throttled_client_loses_nothing_keeps_the_order_and_catches_up(
    limited: Any, first: int
) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        life = limited(seed)
        broken = life.run()
        if broken:
            sys.stdout.write("\n".join([*life.sim.trace.lines, ""]))
            promises = "\n".join(f"{promise}: {sentence}" for promise, sentence in broken)
            pytest.fail(f"seed {seed}\n{promises}")


@pytest.mark.timeout(300)
def test_the_simulation_finds_a_broker_that_forgets_a_held_request(
    limited: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Throttle, "look", lambda _self: None)
    monkeypatch.setattr(limited, "faults", ("come",))
    for seed in range(SEEDS_PER_DEFECT):
        if "stuck" in {promise for promise, _ in limited(seed).run()}:
            return
    pytest.fail(f"{SEEDS_PER_DEFECT} seeds did not find it")

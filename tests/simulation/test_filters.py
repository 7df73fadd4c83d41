"""Deployments whose groups want some of the messages, one per seed, under all the faults of the others.

What is wanted and was acknowledged is delivered, in order; nothing else is; and in the end everybody has caught
up, with what nobody wanted behind them.
"""

import sys
from typing import Any

import pytest

from headrace_mq.broker.fetch.scan import Scan
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.filters.filter import Filter
from headrace_mq.settings import ConsumerSettings
from headrace_mq.testing.history import Acknowledged, Event, Sent

TOPIC = "t"
WANTED = "_key IN ('key-0', 'key-2')"
SEEDS, SEEDS_PER_TEST = 12, 4
# A planted defect is found within so many seeds.
SEEDS_PER_DEFECT = 20


def is_wanted(body: bytes) -> bool:
    """Bodies tell their key: `producer/key/number`."""
    return body.split(b"/")[1] in {b"key-0", b"key-2"}


class Filtering:
    """Put before a world: its groups want two of the keys, and are to hear of no other."""

    def _consumer(self, group: str, settings: ConsumerSettings) -> Any:
        topics = {TOPIC: WANTED}
        return Consumer(
            "broker:9876", group=group, topics=topics, settings=settings, clock=self.clock
        )

    def note(self, event: Event) -> None:
        # What nobody wants counts as never sent: to whom it is delivered all the same, it is unknown.
        if not isinstance(event, Sent | Acknowledged) or is_wanted(event.body):
            super().note(event)

    async def _read_log(self) -> None:
        await super()._read_log()
        self.all_bodies = set(self.log.values())
        self.log = {place: body for place, body in self.log.items() if is_wanted(body)}


@pytest.fixture
def filtering(world: type[Any]) -> type[Any]:
    """Worlds whose groups want some of the messages."""
    return type("FilteringWorld", (Filtering, world), {})


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_a_filtered_consumer_gets_its_messages_in_order_and_no_others(
    filtering: Any, first: int
) -> None:
    passed_over = 0
    for seed in range(first, first + SEEDS_PER_TEST):
        life = filtering(seed)
        broken = life.run()
        if broken:
            sys.stdout.write("\n".join([*life.sim.trace.lines, ""]))
            promises = "\n".join(f"{promise}: {sentence}" for promise, sentence in broken)
            pytest.fail(f"seed {seed}\n{promises}")
        passed_over += len(life.all_bodies) - len(life.log)
    assert passed_over


def found(filtering: Any) -> set[str]:
    """The promises that the first seed breaks that breaks one."""
    for seed in range(SEEDS_PER_DEFECT):
        broken = filtering(seed).run()
        if broken:
            return {promise for promise, _ in broken}
    pytest.fail(f"{SEEDS_PER_DEFECT} seeds did not find it")


@pytest.mark.timeout(300)
def test_a_broker_that_passes_over_what_it_has_not_looked_at_is_found_out(
    filtering: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    through = Scan.through

    def hurried(self: Scan, queue: Any, *rest: Any) -> Any:
        gathering, _ = through(self, queue, *rest)
        return gathering, self._store.range(queue)[1] + 1

    monkeypatch.setattr(Scan, "through", hurried)
    assert "skipped" in found(filtering)


@pytest.mark.timeout(300)
def test_a_broker_and_readers_that_let_everything_pass_are_found_out(
    filtering: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Filter, "places_in", lambda _self, count, *_: list(range(count)))
    assert "changed" in found(filtering)

"""When a loop stays awake behind what arrives, and when it goes to sleep."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace_mq._net import busy_poll
from headrace_mq._net.busy_poll import BusyPoll, busy_poll_of
from headrace_mq.broker.server import Broker
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.client.producer.producer import Producer
from headrace_mq.settings import (
    BrokerSettings,
    ConsumerSettings,
    ProducerSettings,
    StoreSettings,
)


class Loop:
    """Calls what is to be called when the test says so, and counts what gives way in between."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def turn(self) -> int:
        """One turn; returns how many callbacks wait for the next, which then does not sleep."""
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()
        return len(self.soon)


class Moment:
    def __init__(self) -> None:
        self.us = 0

    def __call__(self) -> float:
        return self.us / 1e6


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def moment() -> Moment:
    return Moment()


@pytest.fixture
def poll(loop: Any, moment: Moment) -> BusyPoll:
    return BusyPoll(loop, 300, now=moment)


def test_the_first_arrival_lets_the_loop_sleep(poll: BusyPoll, loop: Loop) -> None:
    poll.arrived()
    assert loop.turn() == 0


def test_arrivals_far_apart_let_the_loop_sleep(poll: BusyPoll, loop: Loop, moment: Moment) -> None:
    for _ in range(3):
        poll.arrived()
        moment.us += 301
        assert loop.turn() == 0


def test_a_close_arrival_keeps_the_loop_awake_for_as_long(
    poll: BusyPoll, loop: Loop, moment: Moment
) -> None:
    poll.arrived()
    moment.us = 300
    poll.arrived()
    for us in (301, 400, 599):
        moment.us = us
        assert loop.turn() == 1
    moment.us = 601
    assert loop.turn() == 0


def test_new_messages_prolong_busy_polling_without_a_second_loop(
    poll: BusyPoll, loop: Loop, moment: Moment
) -> None:
    for moment.us in (0, 200, 400, 600):
        poll.arrived()
        assert loop.turn() == (1 if moment.us else 0)
    moment.us = 899
    assert loop.turn() == 1
    moment.us = 901
    assert loop.turn() == 0


def test_a_loop_that_slept_stays_awake_again_when_arrivals_are_close_again(
    poll: BusyPoll, loop: Loop, moment: Moment
) -> None:
    for moment.us in (0, 100, 1_000):
        poll.arrived()
        loop.turn()
    assert loop.turn() == 0
    moment.us = 1_100
    poll.arrived()
    assert loop.turn() == 1


def test_every_turn_lets_others_go_first(
    poll: BusyPoll, loop: Loop, moment: Moment, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways: list[int] = []
    monkeypatch.setattr(busy_poll, "_give_way", lambda: ways.append(moment.us))
    for moment.us in (0, 100, 200):
        poll.arrived()
        loop.turn()
    assert ways == [100, 200]


def test_without_a_time_there_is_none(loop: Any) -> None:
    assert busy_poll_of(loop, 0) is None
    assert isinstance(busy_poll_of(loop, 1), BusyPoll)


async def test_settings_of_both_sides_reach_their_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: set[float] = set()
    monkeypatch.setattr(BusyPoll, "arrived", lambda poll: told.add(poll._poll_s))
    store = StoreSettings(directory=tmp_path)
    broker = Broker(BrokerSettings(store=store, port=0, busy_poll_us=100))
    await broker.start()
    slow = ConsumerSettings(busy_poll_us=300)
    async with (
        Producer(broker.address, ProducerSettings(busy_poll_us=200)),
        Consumer(broker.address, group="g", topics=["orders"], settings=slow),
    ):
        assert told == {100e-6, 200e-6, 300e-6}
    await broker.aclose()

"""The way of a process manager's commands: the queue at once, or the database until they are near."""

from datetime import timedelta
from typing import Any

import pytest

from headrace.errors import CommandRefused
from headrace.processes.outbox import Outbox
from headrace.processes.process_manager import AHEAD_MS_MAX
from headrace.serialization import CommandEnvelope
from headrace_mq.protocol.scheduled import AHEAD_MS_MAX as BROKER_AHEAD_MS_MAX


class Bus:
    """Takes commands; fails when told to."""

    def __init__(self) -> None:
        self.sent: list[CommandEnvelope] = []
        self.away = False
        self.too_large = ""

    async def send_envelope(self, envelope: CommandEnvelope) -> None:
        if self.away:
            raise CommandRefused("away")
        if envelope.command_id == self.too_large:
            raise CommandRefused("no") from ValueError("too large")
        self.sent.append(envelope)

    @property
    def ids(self) -> list[str]:
        return [each.command_id for each in self.sent]


@pytest.fixture
def bus() -> Bus:
    return Bus()


@pytest.fixture
def outbox(bus: Bus, read_models: Any, serializer: Any, clock: Any) -> Outbox:
    return Outbox("reminding", bus, read_models, serializer, clock)


@pytest.fixture
def envelope(domain: Any, clock: Any) -> Any:
    def make(command_id: str, ahead: timedelta | None) -> CommandEnvelope:
        return CommandEnvelope(
            command=domain.Add(counter_id="a", amount=1),
            command_id=command_id,
            correlation_id="c",
            items={"who": "ann"},
            due=None if ahead is None else clock.now() + ahead,
        )

    return make


def test_commands_given_to_the_queue_are_within_the_brokers_limit() -> None:
    assert AHEAD_MS_MAX + 86_400_000 == BROKER_AHEAD_MS_MAX


async def test_near_commands_go_to_the_queue_and_far_ones_when_they_are_near(
    outbox: Outbox, bus: Bus, envelope: Any, clock: Any
) -> None:
    far = envelope("far", timedelta(days=3_650))
    for each in (envelope("now", None), envelope("near", timedelta(days=365)), far, far):
        await outbox.send_envelope(each)
    assert bus.ids == ["now", "near"]
    clock.advance(3_285 * 86_400_000 - 1)
    assert await outbox.sweep() == 0
    clock.advance(1)
    bus.away = True
    with pytest.raises(CommandRefused):
        await outbox.sweep()
    bus.away = False
    assert await outbox.sweep() == 1
    assert bus.sent[2] == far
    assert await outbox.sweep() == 0


async def test_a_command_that_can_never_be_sent_stops_no_other_and_is_tried_by_the_next_start(
    outbox: Outbox, bus: Bus, envelope: Any, clock: Any, logs: Any
) -> None:
    for command_id in ("large", "small"):
        await outbox.send_envelope(envelope(command_id, timedelta(days=366)))
    bus.too_large = "large"
    clock.advance(86_400_000)
    assert await outbox.sweep() == 1
    assert (await outbox.sweep(), bus.ids) == (0, ["small"])
    assert [each["command_id"] for each in logs] == ["large"]
    bus.too_large = ""
    await outbox.try_again()
    assert (await outbox.sweep(), bus.ids) == (1, ["small", "large"])


@pytest.mark.parametrize("step", [timedelta(days=-30), timedelta(days=3_650)])
async def test_a_clock_that_is_set_neither_delays_commands_that_are_near_nor_hurries_others(
    outbox: Outbox, bus: Bus, envelope: Any, clock: Any, step: timedelta
) -> None:
    await outbox.send_envelope(envelope("far", timedelta(days=375)))
    await outbox.send_envelope(envelope("farther", timedelta(days=1_000)))
    clock._start += step
    assert await outbox.sweep() == 0
    clock.advance(10 * 86_400_000)
    assert (await outbox.sweep(), bus.ids) == (1, ["far"])

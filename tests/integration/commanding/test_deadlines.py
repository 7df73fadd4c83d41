"""A command that comes too late is rejected once and for all, and its deadline travels with it."""

from datetime import UTC, datetime, timedelta

import pytest

from headrace import Settings
from headrace.bus import CommandBus
from headrace.serialization import CommandEnvelope
from samples.bank import app
from samples.bank.accounts import OpenAccount

OPEN = OpenAccount(account_id="ann", owner="Ann")
PAST = datetime(2026, 1, 31, tzinfo=UTC)


async def test_an_expired_command_stays_rejected_with_any_later_deadline() -> None:
    async with app.run_local() as bank:
        late = await bank.bus.execute(OPEN, command_id="1", deadline=PAST)
        assert (late.status, late.error) == ("rejected", "CommandExpired")
        again = await bank.bus.execute(OPEN, command_id="1")
        assert again == late
        assert (await bank.bus.execute(OPEN, command_id="2", deadline=timedelta(hours=1))).ok
        # What was decided in time stays decided.
        assert (await bank.bus.execute(OPEN, command_id="2", deadline=PAST)).ok


def test_a_deadline_comes_back_from_the_wire_and_is_left_out_where_there_is_none() -> None:
    serializer = app.serializer
    for deadline in (None, datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC)):
        envelope = CommandEnvelope(
            command=OPEN, command_id="1", correlation_id="1", deadline=deadline
        )
        body = serializer.encode_command(envelope)
        assert (b"deadline" in body) is (deadline is not None)
        assert serializer.decode_command(body) == envelope


async def test_a_deadline_without_a_zone_is_refused() -> None:
    async with app.run_local(Settings()) as bank:
        bus: CommandBus = bank.bus
        with pytest.raises(ValueError, match="has no time zone; give one, or a timedelta"):
            await bus.send(OPEN, deadline=datetime(2026, 1, 31))  # noqa: DTZ001 - that is the point

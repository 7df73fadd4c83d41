"""Commands in the database: found while nobody has sent them and they are near, then noted."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import select, update

from headrace.errors import SubjectKeysAway
from headrace.processes.kept_commands import (
    command_row,
    find_unsent,
    mark_sent,
    try_again,
)
from headrace.serialization import CommandEnvelope
from headrace.stores.database.tables import process_commands


class Kept:
    """Commands of one process in a database, a transaction per call."""

    def __init__(self, models: Any, serializer: Any, clock: Any, domain: Any) -> None:
        self.models, self.serializer, self.clock, self.domain = models, serializer, clock, domain

    async def keep(
        self, command_id: str, days: int | None = None, *, delay: timedelta | None = None
    ) -> None:
        envelope = CommandEnvelope(
            command=self.domain.Add(counter_id="a", amount=1),
            command_id=command_id,
            correlation_id="c",
            due=delay if days is None else self.clock.now() + timedelta(days=days),
        )
        row = command_row("copies", "i", 1, envelope, self.serializer, self.clock.now())
        async with self.models.begin() as connection:
            await connection.execute(process_commands.insert().values(row))

    async def unsent(self, days: int = 0) -> list[str]:
        return sorted(each.command_id for each in await self.envelopes(days))

    async def envelopes(self, days: int = 0) -> list[CommandEnvelope]:
        return await self.models.transact(
            partial(
                find_unsent,
                process="copies",
                made_before=self.clock.now(),
                now=self.clock.now(),
                due_before=self.clock.now() + timedelta(days=days),
                serializer=self.serializer,
            )
        )


@pytest.fixture
def kept(read_models: Any, serializer: Any, clock: Any, domain: Any) -> Kept:
    return Kept(read_models, serializer, clock, domain)


async def test_commands_due_in_years_wait_until_they_are_near(kept: Kept) -> None:
    await kept.keep("now")
    await kept.keep("soon", days=9)
    await kept.keep("far", days=4_000)
    assert await kept.unsent() == ["now"]
    assert await kept.unsent(days=9) == ["now", "soon"]
    assert await kept.unsent(days=4_000) == ["far", "now", "soon"]
    await kept.models.transact(partial(mark_sent, process="copies", command_ids=["now", "soon"]))
    assert await kept.unsent(days=4_000) == ["far"]


@pytest.mark.parametrize("days", [-1, 0, 400])
async def test_a_delay_stays_one_however_the_clock_is_set(kept: Kept, days: int) -> None:
    delay = timedelta(minutes=15)
    await kept.keep("later", delay=delay)
    kept.clock._start += timedelta(days=days)
    (envelope,) = await kept.envelopes(days=365)
    assert envelope.due == delay


async def test_one_of_a_class_that_is_gone_is_left_out_and_said_until_code_may_know_it(
    kept: Kept, logs: Any
) -> None:
    await kept.keep("known")
    await kept.keep("gone")
    body = select(process_commands.c.body).where(process_commands.c.command_id == "gone")
    async with kept.models.begin() as connection:
        known = (await connection.execute(body)).scalar_one()
        gone = update(process_commands).where(process_commands.c.command_id == "gone")
        await connection.execute(gone.values(body=known.replace('"Add"', '"Gone"')))
    assert await kept.unsent() == ["known"]
    assert await kept.unsent() == ["known"]
    (said,) = logs
    assert (said["log_level"], said["command_id"]) == ("error", "gone")
    async with kept.models.begin() as connection:
        refused = select(process_commands.c.refused).where(process_commands.c.command_id == "gone")
        assert "cannot be read" in (await connection.execute(refused)).scalar_one()
        await connection.execute(gone.values(body=known))
    await kept.models.transact(partial(try_again, process="copies"))
    assert await kept.unsent() == ["gone", "known"]


async def test_a_command_whose_key_is_away_is_not_noted_as_refused(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    await kept.keep("now")

    def away(_: bytes) -> CommandEnvelope:
        raise SubjectKeysAway("the keys are away")

    with monkeypatch.context() as patched:
        patched.setattr(kept.serializer, "decode_command", away)
        with pytest.raises(SubjectKeysAway):
            await kept.unsent()
    assert await kept.unsent() == ["now"]


async def test_a_clock_that_was_set_back_delays_no_earlier_command(kept: Kept) -> None:
    await kept.keep("before")
    kept.clock._start -= timedelta(days=1)
    assert await kept.unsent() == ["before"]

"""The service refuses what a sender may not send, by itself, and without a trace in the aggregate."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from headrace import AggregateId, App, Command, CommandContext, Principal, Settings
from headrace.app import RunningApp

CLERK = Principal("ann", frozenset({"clerk"}))
GUEST = Principal("bob", frozenset({"guest"}))


class Note(Command):
    desk: AggregateId


class Shred(Command):
    desk: AggregateId


class Desk:
    """An application whose clerks take notes, and what its handlers saw."""

    def __init__(self) -> None:
        self.app = App("desk")
        self.seen: list[str] = []
        self.broken = False

        @self.app.handles
        async def note(command: Note, context: CommandContext) -> None:
            self.seen.append(f"note of {context.principal}")

        @self.app.handles
        async def shred(command: Shred, context: CommandContext) -> None:
            self.seen.append(f"shredded by {context.principal}")
            if self.broken:
                raise ZeroDivisionError

        self.app.allow("clerk", Note)


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
async def running(desk: Desk, tmp_path: Path) -> AsyncIterator[RunningApp]:
    settings = Settings(
        after_parked="hold", error_retries_max=0, read_models=f"sqlite:///{tmp_path}/read.db"
    )
    async with desk.app.run_local(settings) as running:
        yield running


async def test_a_sender_without_the_role_is_refused_and_nothing_is_stored_or_parked(
    desk: Desk, running: RunningApp
) -> None:
    with capture_logs() as logs:
        refused = await running.bus.execute(Note(desk="d"), command_id="1", principal=GUEST)
    assert (refused.status, refused.error) == ("rejected", "CommandNotAllowed")
    assert refused.sentence.startswith("bob may not send Note: none of its roles may")
    (line,) = [each for each in logs if each["event"] == "audit"]
    assert (line["user"], line["action"], line["outcome"]) == ("bob", "send Note", "refused")
    assert desk.seen == []
    assert await running.store.find_command("d", "1") is None
    assert await running.letters.store.count() == 0
    # It is not stored: the same command is handled when its sender may send it.
    desk.app.allow("guest", Note)
    allowed = await running.bus.execute(Note(desk="d"), command_id="1", principal=GUEST)
    assert (allowed.ok, desk.seen) == (True, ["note of bob"])


async def test_a_command_that_no_declaration_names_is_refused_but_not_of_the_application_itself(
    desk: Desk, running: RunningApp
) -> None:
    assert not (await running.bus.execute(Shred(desk="d"), principal=CLERK)).ok
    assert (await running.bus.execute(Shred(desk="d"))).ok
    assert (await running.bus.execute(Note(desk="d"), principal=CLERK)).ok
    assert desk.seen == ["shredded by None", "note of ann"]


async def test_a_refused_command_is_not_held_behind_a_parked_one(
    desk: Desk, running: RunningApp
) -> None:
    desk.broken = True
    assert (await running.bus.execute(Shred(desk="d"))).status == "failed"
    refused = await running.bus.execute(Note(desk="d"), principal=GUEST)
    assert refused.error == "CommandNotAllowed"
    held = await running.bus.execute(Note(desk="d"), principal=CLERK)
    assert held.error == "Held"
    assert await running.letters.store.count() == 2


async def test_a_command_that_was_done_before_a_role_was_taken_away_stays_done(
    desk: Desk, running: RunningApp
) -> None:
    done = await running.bus.execute(Note(desk="d"), command_id="1", principal=CLERK)
    desk.app.allowances._commands.clear()
    assert await running.bus.execute(Note(desk="d"), command_id="1", principal=CLERK) == done
    again = await running.bus.execute(Note(desk="d"), command_id="2", principal=CLERK)
    assert again.error == "CommandNotAllowed"
    assert desk.seen == ["note of ann"]


async def test_refused_and_allowed_commands_of_one_aggregate_at_once_get_their_own_answers(
    desk: Desk, running: RunningApp
) -> None:
    senders = [CLERK, GUEST] * 50
    results = await asyncio.gather(
        *(running.bus.execute(Note(desk="d"), principal=one) for one in senders)
    )
    assert [each.ok for each in results] == [True, False] * 50
    assert len(desk.seen) == 50

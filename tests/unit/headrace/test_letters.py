"""What an operator may do with letters, with and without an application that listens."""

from datetime import UTC, datetime

import pytest

from headrace.errors import CommandTimeout, HeadraceError, LetterNotFound
from headrace.letters import RESUME, CommandLetters
from headrace.stores.base import CommandLetter, LetterState
from headrace.stores.memory.letters import MemoryCommandLetters
from headrace.transports.local import LocalTransport


def letter(command_id: str, state: LetterState) -> CommandLetter:
    return CommandLetter(
        aggregate_id="a",
        command_id=command_id,
        name="Ship",
        state=state,
        parked_at=datetime(2026, 1, 31, tzinfo=UTC),
        error="ValueError",
        sentence="broken",
        key="a",
        headers={},
        body=b"{}",
    )


@pytest.fixture
async def store() -> MemoryCommandLetters:
    store = MemoryCommandLetters()
    await store.park([letter("1", LetterState.HOLDING), letter("2", LetterState.HELD)])
    await store.park([letter("3", LetterState.PARKED)])
    return store


@pytest.fixture
async def transport() -> LocalTransport:
    transport = LocalTransport()
    await transport.ensure_topic("app.commands", queues=1, forever=False)
    return transport


def wishes(transport: LocalTransport) -> list[tuple[str, str]]:
    return [
        (message.key, message.headers[RESUME])
        for message in transport.queue(("app.commands", 0)).messages
    ]


async def test_letters_are_read_in_order_and_found_by_number(store: MemoryCommandLetters) -> None:
    letters = CommandLetters("app", store)
    assert [each.command_id for each in await letters.read()] == ["1", "2", "3"]
    assert [each.command_id for each in await letters.read(after=1, limit=1)] == ["2"]
    assert (await letters.find(3)).command_id == "3"
    with pytest.raises(LetterNotFound, match="there is no letter 4"):
        await letters.find(4)


async def test_a_retry_reaches_the_application_and_has_a_timeout(
    store: MemoryCommandLetters, transport: LocalTransport
) -> None:
    letters = CommandLetters("app", store, transport)
    with pytest.raises(CommandTimeout, match="does the application run"):
        await letters.retry(1, timeout_ms=1)
    with pytest.raises(
        HeadraceError, match=r"command 2 \(letter 2\) is held behind 1 \(letter 1\)"
    ):
        await letters.retry(2)
    assert wishes(transport) == [("a", "1")]


async def test_only_a_skip_of_a_letter_with_held_commands_needs_the_application(
    store: MemoryCommandLetters, transport: LocalTransport
) -> None:
    alone = CommandLetters("app", store)
    with pytest.raises(HeadraceError, match="name the broker"):
        await alone.skip(1)
    with pytest.raises(HeadraceError, match="name the broker"):
        await alone.retry(1)
    await alone.skip(3)
    assert [each.command_id for each in await alone.read()] == ["1", "2"]
    await CommandLetters("app", store, transport).skip(1)
    assert [each.command_id for each in await alone.read()] == ["2"]
    assert wishes(transport) == [("a", "")]


async def test_a_letter_that_was_parked_again_meanwhile_is_still_skipped(
    store: MemoryCommandLetters, transport: LocalTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = store.finish

    async def interrupted(found: CommandLetter) -> bool:
        monkeypatch.setattr(store, "finish", finish)
        await store.park([letter("3", LetterState.PARKED)])
        return await finish(found)

    monkeypatch.setattr(store, "finish", interrupted)
    assert (await CommandLetters("app", store, transport).skip(3)).attempts == 2
    assert await store.find(3) is None

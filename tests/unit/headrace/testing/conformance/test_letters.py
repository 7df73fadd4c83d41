"""The suite catches an adapter that loses, mixes up or gives away letters."""

import inspect
from collections.abc import Sequence
from typing import Any

import pytest

from headrace.stores.base import CommandLetter, LetterState
from headrace.stores.memory.letters import MemoryCommandLetters
from headrace.testing.conformance.letters import CommandLettersConformance


class ForgetsWhatWasParkedAgain(MemoryCommandLetters):
    async def park(self, letters: Sequence[CommandLetter]) -> None:
        known = {(each.aggregate_id, each.command_id) for each in await self.read()}
        await super().park(
            [each for each in letters if (each.aggregate_id, each.command_id) not in known]
        )


class PutsTheNewestFirst(MemoryCommandLetters):
    async def read(self, *, after: int = 0, limit: int = 1_000) -> list[CommandLetter]:
        return (await super().read(after=after, limit=limit))[::-1]


class TakesEveryLetterForAHold(MemoryCommandLetters):
    async def lines(self) -> list[CommandLetter]:
        first = {each.aggregate_id: each for each in reversed(await self.read())}
        return sorted(first.values(), key=lambda each: each.number)


class FindsACommandOfAnyAggregate(MemoryCommandLetters):
    async def find_command(self, command_id: str, aggregate_id: str = "") -> CommandLetter | None:
        del aggregate_id
        return await super().find_command(command_id)


class CountsTwoLettersAtMost(MemoryCommandLetters):
    async def tally(self) -> dict[tuple[str, LetterState], int]:
        return {each: min(2, count) for each, count in (await super().tally()).items()}


class FinishesWhatWasParkedAgain(MemoryCommandLetters):
    async def finish(self, letter: CommandLetter) -> bool:
        known = await self.find(letter.number)
        return known is not None and await super().finish(known)


class KeepsAHeldDuplicateAsHeld(MemoryCommandLetters):
    async def park(self, letters: Sequence[CommandLetter]) -> None:
        await super().park(letters)
        for key, kept in self._letters.items():
            if any(key == (each.aggregate_id, each.command_id) for each in letters):
                held = any(each.state is LetterState.HELD for each in letters)
                object.__setattr__(kept, "state", LetterState.HELD if held else kept.state)


async def _failures(adapter: type[MemoryCommandLetters]) -> list[str]:
    suite: Any = CommandLettersConformance()
    failed = []
    for name in [name for name in dir(suite) if name.startswith("test_")]:
        case = getattr(suite, name)
        assert inspect.getdoc(case)
        try:
            await case(adapter())
        except AssertionError:
            failed.append(name)
    return failed


async def test_the_adapter_in_memory_fails_nowhere() -> None:
    assert await _failures(MemoryCommandLetters) == []


@pytest.mark.parametrize(
    "adapter",
    [
        ForgetsWhatWasParkedAgain,
        PutsTheNewestFirst,
        TakesEveryLetterForAHold,
        FindsACommandOfAnyAggregate,
        CountsTwoLettersAtMost,
        FinishesWhatWasParkedAgain,
        KeepsAHeldDuplicateAsHeld,
    ],
)
async def test_a_wrong_adapter_is_caught(adapter: type[MemoryCommandLetters]) -> None:
    assert await _failures(adapter) != []

"""
Parked commands in this process's memory: the reference adapter.

Implements the `CommandLetterStore` port on one dictionary. For tests and first steps: nothing
survives the process.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from headrace.stores.base import CommandLetter, LetterState

__all__ = ["MemoryCommandLetters"]


class MemoryCommandLetters:
    """Keeps letters in memory, in the words of the `CommandLetterStore` port."""

    def __init__(self) -> None:
        # By aggregate and command; in the order of parking.
        self._letters: dict[tuple[str, str], CommandLetter] = {}
        self._numbers = 0

    async def park(self, letters: Sequence[CommandLetter]) -> None:
        """Keeps letters in their order; see `CommandLetterStore.park`."""
        for letter in letters:
            key = (letter.aggregate_id, letter.command_id)
            known = self._letters.get(key)
            if known is None:
                self._numbers += 1
                self._letters[key] = replace(letter, number=self._numbers, attempts=1)
                continue
            told = known if letter.state is LetterState.HELD else letter
            self._letters[key] = replace(
                known,
                attempts=known.attempts + 1,
                state=told.state,
                error=told.error,
                sentence=told.sentence,
                trace=told.trace,
            )

    async def read(self, *, after: int = 0, limit: int = 1_000) -> list[CommandLetter]:
        """Returns letters in the order of parking."""
        return [each for each in self._letters.values() if each.number > after][:limit]

    async def find(self, number: int) -> CommandLetter | None:
        """Returns a letter, or None."""
        return next((each for each in self._letters.values() if each.number == number), None)

    async def first_in_line(self, aggregate_id: str) -> CommandLetter | None:
        """Returns the first letter that an aggregate's later commands wait for, or None."""
        return next(
            (
                each
                for each in self._letters.values()
                if each.aggregate_id == aggregate_id and each.state is not LetterState.PARKED
            ),
            None,
        )

    async def find_command(self, command_id: str, aggregate_id: str = "") -> CommandLetter | None:
        """Returns the first letter of a command, or None."""
        return next(
            (
                each
                for each in self._letters.values()
                if each.command_id == command_id and aggregate_id in ("", each.aggregate_id)
            ),
            None,
        )

    async def tally(self) -> dict[tuple[str, LetterState], int]:
        """Returns how many letters there are of each error and state."""
        return Counter((each.error, each.state) for each in self._letters.values())

    async def lines(self) -> list[CommandLetter]:
        """Returns the first in line of every aggregate that has a line."""
        first: dict[str, CommandLetter] = {}
        for each in self._letters.values():
            if each.state is not LetterState.PARKED:
                first.setdefault(each.aggregate_id, each)
        return list(first.values())

    async def finish(self, letter: CommandLetter) -> bool:
        """Takes a letter out unless its command was parked again since it was read."""
        key = (letter.aggregate_id, letter.command_id)
        known = self._letters.get(key)
        if known is None or (known.number, known.attempts) != (letter.number, letter.attempts):
            return False
        del self._letters[key]
        return True

    async def count(self) -> int:
        """Returns how many letters there are."""
        return len(self._letters)

    async def aclose(self) -> None:
        """Does nothing: there is no connection to close."""

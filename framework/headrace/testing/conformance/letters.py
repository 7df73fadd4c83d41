"""
The promises of `CommandLetterStore` as tests; every adapter runs all of them.

Subclass it in the tests of your adapter.
"""

from dataclasses import replace
from datetime import UTC, datetime

from headrace.stores.base import CommandLetter, CommandLetterStore, LetterState

__all__ = ["CommandLettersConformance", "letter"]


def letter(
    aggregate_id: str, command_id: str, state: LetterState = LetterState.PARKED
) -> CommandLetter:
    """Returns a letter with everything that it may hold."""
    return CommandLetter(
        aggregate_id=aggregate_id,
        command_id=command_id,
        name="Deposit",
        state=state,
        parked_at=datetime(2026, 1, 31, 12, 30, 59, 123456, tzinfo=UTC),
        error="ValueError",
        sentence=f"{command_id} is bröken ☂",
        trace="Traceback:\n  here\nValueError: ☂",
        key=aggregate_id,
        headers={"reply-to": "☂"},
        body=b'{"n": "\xff\x00"}',
    )


class CommandLettersConformance:
    """Derive from it and give a fixture `letters`: the adapter's store, opened and empty."""

    async def test_letters_are_read_back_whole_in_their_order(
        self, letters: CommandLetterStore
    ) -> None:
        """What was parked comes back, numbered from 1."""
        parked = [letter("b", "1"), letter("a", "1", LetterState.HOLDING), letter("a", "2")]
        await letters.park(parked)
        expected = [replace(each, number=n) for n, each in enumerate(parked, 1)]
        assert await letters.read() == expected
        assert await letters.read(after=1, limit=1) == expected[1:2]
        assert await letters.find(3) == expected[2]
        assert await letters.find(4) is None
        assert await letters.count() == 3

    async def test_parking_nothing_does_nothing(self, letters: CommandLetterStore) -> None:
        """An empty call is no error."""
        await letters.park([])
        assert await letters.read() == []

    async def test_a_command_parked_again_keeps_its_place_and_message(
        self, letters: CommandLetterStore
    ) -> None:
        """Only attempts and the reason change."""
        await letters.park([letter("a", "1"), letter("a", "2")])
        again = replace(
            letter("a", "1", LetterState.HOLDING),
            error="KeyError",
            sentence="x",
            body=b"other",
            trace="KeyError: x",
        )
        await letters.park([again])
        found = await letters.find(1)
        assert found == replace(
            letter("a", "1", LetterState.HOLDING),
            number=1,
            attempts=2,
            error="KeyError",
            sentence="x",
            trace="KeyError: x",
        )
        assert [each.number for each in await letters.read()] == [1, 2]

    async def test_a_command_that_is_only_held_now_keeps_its_state_and_reason(
        self, letters: CommandLetterStore
    ) -> None:
        """A duplicate that was held says nothing new of its command."""
        await letters.park([letter("a", "1", LetterState.HOLDING)])
        await letters.park([replace(letter("a", "1", LetterState.HELD), error="Held")])
        found = await letters.find(1)
        assert found == replace(letter("a", "1", LetterState.HOLDING), number=1, attempts=2)

    async def test_lines_are_told_by_their_first_letters(self, letters: CommandLetterStore) -> None:
        """Holding and held commands form a line; a command that is only parked is in none."""
        await letters.park(
            [
                letter("a", "1"),
                letter("a", "2", LetterState.HOLDING),
                letter("a", "3", LetterState.HELD),
                letter("b", "1", LetterState.HELD),
                letter("c", "1"),
            ]
        )
        assert [(each.aggregate_id, each.number) for each in await letters.lines()] == [
            ("a", 2),
            ("b", 4),
        ]
        first = {name: await letters.first_in_line(name) for name in "abc"}
        numbers = {name: each and each.number for name, each in first.items()}
        assert numbers == {"a": 2, "b": 4, "c": None}

    async def test_a_letter_is_found_by_its_command_and_its_aggregate(
        self, letters: CommandLetterStore
    ) -> None:
        """An id alone finds the first of its letters, an aggregate only its own one."""
        await letters.park([letter("a", "1"), letter("b", "2"), letter("c", "2")])
        asked = [("2", ""), ("2", "c"), ("2", "a"), ("3", "")]
        found = [await letters.find_command(*each) for each in asked]
        assert [each and each.number for each in found] == [2, 3, None, None]
        assert found[0] == await letters.find(2)

    async def test_letters_are_counted_by_error_and_state(
        self, letters: CommandLetterStore
    ) -> None:
        """All of them, however many there are."""
        assert await letters.tally() == {}
        parked = [letter("a", str(number)) for number in range(3)]
        await letters.park([*parked, letter("b", "1", LetterState.HOLDING)])
        await letters.park([replace(letter("b", "2", LetterState.HELD), error="Held")])
        assert await letters.tally() == {
            ("ValueError", LetterState.PARKED): 3,
            ("ValueError", LetterState.HOLDING): 1,
            ("Held", LetterState.HELD): 1,
        }

    async def test_a_letter_is_finished_once_and_only_as_it_was_read(
        self, letters: CommandLetterStore
    ) -> None:
        """A number never comes back."""
        await letters.park([letter("a", "1")])
        read = (await letters.read())[0]
        await letters.park([letter("a", "1")])
        assert not await letters.finish(read)
        read = (await letters.read())[0]
        assert await letters.finish(read)
        assert not await letters.finish(read)
        await letters.park([letter("a", "1")])
        assert [each.number for each in await letters.read()] > [1]

    async def test_a_message_with_texts_that_no_column_holds_is_kept_whole(
        self, letters: CommandLetterStore
    ) -> None:
        """Every text that a queue may carry can be parked, found and finished."""
        key = "nul \x00 " + "k" * 1_000
        await letters.park(
            [replace(letter(key, "x@1", LetterState.PARKED), sentence="\x00?", trace="\x00")]
        )
        found = (await letters.read())[0]
        assert (found.key, found.body) == (key, b'{"n": "\xff\x00"}')
        assert await letters.finish(found)

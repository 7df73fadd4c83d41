"""
Commands that were put aside, for whoever decides what becomes of them.

Sits between: an operator, by the command line or in a program, and the letters of an application.
What shall go on is said through the queue, to the process that holds the aggregate.
"""

import asyncio
from collections.abc import Collection
from typing import Final

from headrace.domain.message import Command
from headrace.domain.topics import CommandTopics
from headrace.errors import CommandTimeout, HeadraceError, LetterNotFound
from headrace.stores.base import CommandLetter, CommandLetterStore, LetterState
from headrace.transports.base import Outgoing, Transport

__all__ = ["RESUME", "CommandLetters"]

# The header of a message that says: go on with the letters of this aggregate. Its value is the
# number of the letter to be retried first; empty: those that are merely held go on.
RESUME: Final = "resume-letter"

# How often a retry looks whether it is done: quick for a person, little for a database.
_LOOK_MS: Final = 50


class CommandLetters:
    """The commands of one application that were parked, and those held behind them.

    Args:
        name: the application's name.
        store: where the letters are.
        transport: reaches the application; None: letters can only be looked at.
        command_types: those that it handles, by which a letter's topic is known.
    """

    def __init__(
        self,
        name: str,
        store: CommandLetterStore,
        transport: Transport | None = None,
        command_types: Collection[type[Command]] = (),
    ) -> None:
        self.store = store
        self._topics = CommandTopics(name, command_types)
        self._transport = transport

    async def read(self, *, after: int = 0, limit: int = 1_000) -> list[CommandLetter]:
        """Returns letters in the order of parking, those with numbers above `after`."""
        return await self.store.read(after=after, limit=limit)

    async def find(self, number: int) -> CommandLetter:
        """Returns a letter.

        Raises:
            LetterNotFound: there is none of this number; it may be done.
        """
        letter = await self.store.find(number)
        if letter is None:
            raise LetterNotFound(f"there is no letter {number}; it may be done already")
        return letter

    async def retry(self, number: int, *, timeout_ms: int = 30_000) -> CommandLetter | None:
        """Has a parked command run again, and after it those that are held behind it.

        Returns None when it is done, whatever its result, or the letter when it was parked again.

        Raises:
            LetterNotFound: there is none of this number.
            HeadraceError: it is held behind another one, or the application cannot be reached.
            CommandTimeout: nobody took it up in time; it is still among the letters, and is taken
                up as soon as the application runs.
        """
        letter = await self.find(number)
        if letter.state is LetterState.HELD:
            first = await self.store.first_in_line(letter.aggregate_id)
            raise HeadraceError(
                f"command {letter.command_id} (letter {number}) is held behind"
                f" {first.command_id if first else '?'} (letter {first.number if first else '?'});"
                " retry or skip that one, and this one follows by itself"
            )
        await self._go_on(letter, str(number))
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                while True:
                    now = await self.store.find(number)
                    if now is None or now.attempts != letter.attempts:
                        return now
                    await asyncio.sleep(_LOOK_MS / 1_000)
        except TimeoutError as error:
            raise CommandTimeout(
                f"letter {number} was not taken up within {timeout_ms} ms; it is, when its turn in"
                " the queue has come: does the application run?"
            ) from error

    async def skip(self, number: int) -> CommandLetter:
        """Leaves a command out for good; those held behind it go on. Returns what was left out.

        Raises:
            LetterNotFound: there is none of this number.
            HeadraceError: others are held behind it, and the application cannot be reached.
        """
        letter = await self.find(number)
        if letter.state is LetterState.HOLDING:
            self._reached()
        while not await self.store.finish(letter):
            # It was parked once more meanwhile, or is done.
            letter = await self.find(number)
        if letter.state is LetterState.HOLDING:
            await self._go_on(letter, "")
        return letter

    async def _go_on(self, letter: CommandLetter, wish: str) -> None:
        topic = self._topics.of(letter.name)
        message = Outgoing(topic=topic, key=letter.key, headers={RESUME: wish}, body=b"")
        await self._reached().publish(message)

    def _reached(self) -> Transport:
        if self._transport is None:
            raise HeadraceError("name the broker: the application is reached through it")
        return self._transport

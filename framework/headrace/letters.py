"""
Parked commands: you look at them, and retry or skip them.

Used by the command line, and by your programs. A retry goes through the queue, as a message to the
process that holds the aggregate.
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

# The header of a message that says: run the parked commands of this aggregate. Its value is the number
# of the letter to retry first; empty: run the commands that are held behind it.
RESUME: Final = "resume-letter"

# How often a retry checks whether it is done: quick for a person, little work for a database.
_LOOK_MS: Final = 50


class CommandLetters:
    """The commands of one application that were parked, and those held behind them.

    Args:
        name: the application's name.
        store: where the letters are.
        transport: reaches the application; None: you can only read letters.
        command_types: the commands that the application handles; they determine a letter's topic.
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
        """Returns letters with numbers above `after`, in the order in which they were parked."""
        return await self.store.read(after=after, limit=limit)

    async def find(self, number: int) -> CommandLetter:
        """Returns a letter.

        Raises:
            LetterNotFound: there is no letter with this number; it may be done already.
        """
        letter = await self.store.find(number)
        if letter is None:
            raise LetterNotFound(f"there is no letter {number}; it may be done already")
        return letter

    async def retry(self, number: int, *, timeout_ms: int = 30_000) -> CommandLetter | None:
        """Runs a parked command again, and then the commands that are held behind it.

        Returns None when the command is done, with success or not, or the letter if it was parked again.

        Raises:
            LetterNotFound: there is no letter with this number.
            HeadraceError: it is held behind another command, or the application cannot be reached.
            CommandTimeout: the application did not take it in time; it is still parked, and runs as
                soon as the application does.
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
        """Drops a command for good; the commands held behind it run. Returns its letter.

        Raises:
            LetterNotFound: there is no letter with this number.
            HeadraceError: commands are held behind it, and the application cannot be reached.
        """
        letter = await self.find(number)
        if letter.state is LetterState.HOLDING:
            self._reached()
        while not await self.store.finish(letter):
            # The application has retried it in between: it was parked again, or is done.
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

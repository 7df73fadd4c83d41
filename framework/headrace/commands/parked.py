"""
Parked commands: stored as letters, held behind a letter, retried or skipped.

    fails ──▶ parked ────────────────────── retry ──▶ runs like any other; done: the letter goes
    fails ──▶ holding ◀── held ◀── held ─── retry, skip ──▶ those held follow one by one, in order

A letter is durable before its command is answered and acknowledged. Letters of one aggregate are
numbered in the order of its commands, because one task writes them. An operator's retry or skip comes
as a message through the aggregate's own queue, and so to the process that holds the aggregate. It is
acknowledged when everything that it started is done, so that a crash in between repeats it. The event
store recognises a command that was executed before, as everywhere.

Used by the workers, which park what cannot be handled; uses the letters and the answers. It never runs
a handler.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace._runtime.backoff import Backoff
from headrace._runtime.clock import Clock
from headrace._runtime.log import get_logger
from headrace._runtime.tasks import TaskSet
from headrace.bus import CommandResult
from headrace.commands.answer import Answering
from headrace.commands.decision import DecisionFailed
from headrace.commands.holds import Hold, Holds
from headrace.commands.submission import CommandDelivery
from headrace.letters import RESUME
from headrace.settings import Settings
from headrace.stores.base import CommandLetter, CommandLetterStore, LetterState
from headrace.transports.base import Incoming

__all__ = ["Desk", "Parking"]

log = get_logger(__name__)

# Most letters in one transaction; further ones wait for the next one.
WRITE_MAX = 500
# Characters of an error in a letter; the log has the whole of a longer one.
SENTENCE_CHARACTERS_MAX = 1_000


class Desk(Protocol):
    """Where deliveries are taken in; the processor."""

    async def admit(self, body: bytes) -> None:
        """Waits for room for one more delivery and takes it; waits for the keys of its message, too."""
        ...

    def take(self, delivery: CommandDelivery) -> None:
        """Takes a delivery in that has its room."""
        ...

    def leave(self) -> None:
        """Gives the room of one delivery back."""
        ...


class _FromLetter:
    """Stands in for a subscription: its acknowledgement ends the run of a letter."""

    def __init__(self) -> None:
        self.settled = asyncio.Event()

    def ack(self, message: Incoming) -> None:  # noqa: ARG002 - there is one
        self.settled.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sheet:
    """A letter to be written, and who gets which answer then."""

    letter: CommandLetter
    deliveries: Sequence[CommandDelivery]
    result: CommandResult


class _Turn:
    """Lets those who take up one aggregate's letters do so one after another."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.takers = 0


class Parking:
    """The letters of one processor.

    Args:
        letters: where they are kept.
        answering: answers and acknowledges.
        desk: takes a letter's message in again.
        tasks: runs what waits.
        backoff: the pauses while the database is away, or full of letters.
        clock: dates letters.
        settings: whether later commands are held, and how many letters there may be; further ones
            wait, and with them what brought them.

    Attributes:
        holds: which aggregates are held; the workers look here.
    """

    def __init__(
        self,
        *,
        letters: CommandLetterStore,
        answering: Answering,
        desk: Desk,
        tasks: TaskSet,
        backoff: Backoff,
        clock: Clock,
        settings: Settings,
    ) -> None:
        self._letters = letters
        self.holds = Holds(enabled=settings.after_parked == "hold")
        self._answering = answering
        self._desk = desk
        self._tasks = tasks
        self._backoff = backoff
        self._clock = clock
        self._letters_max = settings.command_letters_max
        self._sheets: list[_Sheet] = []
        self._writing = False
        # Letters of each aggregate that are on their way, and what waits for none to be.
        self._unwritten: Counter[str] = Counter()
        self._written = asyncio.Condition()
        # How many letters were begun: tells whether a look at the store is outdated.
        self._begun = 0
        self._turns: dict[str, _Turn] = {}

    def park(
        self,
        deliveries: Sequence[CommandDelivery],
        failed: DecisionFailed,
        *,
        aggregate_id: str,
        command_id: str,
    ) -> None:
        """Makes a letter of a command that cannot be handled, then answers "failed".

        Args:
            deliveries: what brought the command.
            failed: why it cannot be handled.
            aggregate_id: whose command.
            command_id: its id; empty: it could not be read, and holds no other command.
        """
        holding = self.holds.enabled and failed.holds and bool(command_id)
        if holding and not failed.held:
            hold = Hold(command_id=command_id, error=failed.error, sentence=failed.sentence)
            self.holds.hold(aggregate_id, hold)
        log.error(
            "command parked",
            aggregate_id=aggregate_id,
            command_id=command_id,
            error=failed.error,
            sentence=failed.sentence,
            # As text, because a log that formats errors itself may show local variables.
            **({"exception": failed.trace} if failed.trace else {}),
        )
        result = CommandResult(
            status="failed",
            aggregate_id=aggregate_id,
            command_id=command_id,
            error=failed.error,
            sentence=failed.sentence,
        )
        known = next((each.letter for each in deliveries if each.letter is not None), None)
        message = deliveries[0].message
        topic, queue = message.queue
        letter = CommandLetter(
            aggregate_id=known.aggregate_id if known else aggregate_id,
            command_id=known.command_id
            if known
            else command_id or f"{topic}/{queue}@{message.offset}",
            name=message.tag,
            state=LetterState.HELD
            if failed.held
            else LetterState.HOLDING
            if holding
            else LetterState.PARKED,
            parked_at=self._clock.now(),
            error=failed.error,
            sentence=failed.sentence[:SENTENCE_CHARACTERS_MAX],
            trace=failed.trace,
            key=message.key,
            headers=message.headers,
            body=message.body,
        )
        self._begin(_Sheet(letter=letter, deliveries=deliveries, result=result), known is not None)

    def _begin(self, sheet: _Sheet, has_place: bool) -> None:
        self._begun += 1
        self._unwritten[sheet.letter.aggregate_id] += 1
        if has_place:
            # It must not wait for room among the letters, where it is already.
            self._tasks.start("letter", self._write([sheet]))
            return
        self._sheets.append(sheet)
        if not self._writing:
            self._writing = True
            self._tasks.start("letters", self._write_all())

    async def load(self) -> None:
        """Reads from the store who is held: another process may have held or released them."""
        if not self.holds.enabled:
            return
        while True:
            await self._until_written(None)
            begun = self._begun
            lines = await self._backoff.persist(self._letters.lines, what="read letters", unless=())
            if begun == self._begun:
                break
        self.holds.clear()
        for letter in lines:
            hold = Hold(command_id=letter.command_id, error=letter.error, sentence=letter.sentence)
            self.holds.hold(letter.aggregate_id, hold)
            if letter.state is LetterState.HELD:
                # The process that took away what it was held by did not come to the end.
                self._tasks.start("resume", self._go_on(letter.aggregate_id))

    async def holds_still(self, aggregate_id: str) -> bool:
        """Asks the store whether a hold has been ended, by another process, and ends it here too."""
        begun = self._begun
        if self._unwritten[aggregate_id]:
            return True
        letter = await self._backoff.persist(
            lambda: self._letters.first_in_line(aggregate_id), what="read letters", unless=()
        )
        if letter is not None or begun != self._begun:
            return True
        self.holds.release(aggregate_id)
        return False

    def resume(self, delivery: CommandDelivery) -> None:
        """Goes on with the letters of an aggregate, as an operator wished."""
        # What it sets going needs room; nothing that waits for room may have any.
        self._desk.leave()
        self._tasks.start("resume", self._resume(delivery))

    # Writing.

    async def _write_all(self) -> None:
        while self._sheets:
            await self._until_room()
            sheets, self._sheets = self._sheets[:WRITE_MAX], self._sheets[WRITE_MAX:]
            await self._write(sheets)
        self._writing = False

    async def _until_room(self) -> None:
        fulls = 0
        while True:
            count = await self._backoff.persist(
                self._letters.count, what="count letters", unless=()
            )
            if count < self._letters_max:
                return
            fulls += 1
            log.error(
                "the limit of parked commands is reached; retry or skip some",
                letters=self._letters_max,
            )
            await self._backoff.pause(fulls)

    async def _write(self, sheets: Sequence[_Sheet]) -> None:
        letters = [sheet.letter for sheet in sheets]
        await self._backoff.persist(
            lambda: self._letters.park(letters), what="write letters", unless=()
        )
        for sheet in sheets:
            aggregate_id = sheet.letter.aggregate_id
            self._unwritten[aggregate_id] -= 1
            if not self._unwritten[aggregate_id]:
                del self._unwritten[aggregate_id]
            self._answer(sheet)
        async with self._written:
            self._written.notify_all()

    def _answer(self, sheet: _Sheet) -> None:
        letter = sheet.letter
        if letter.state is LetterState.HELD and letter.aggregate_id in self._turns:
            # It is run in a moment, and then answered.
            self._answering.acknowledge(sheet.deliveries)
        else:
            self._answering.answer(sheet.deliveries, sheet.result)

    async def _until_written(self, aggregate_id: str | None) -> None:
        """Waits until no letter is on its way: of an aggregate, or at all."""
        async with self._written:
            await self._written.wait_for(
                lambda: (
                    not (self._unwritten if aggregate_id is None else self._unwritten[aggregate_id])
                )
            )

    # Taking up.

    async def _resume(self, delivery: CommandDelivery) -> None:
        message = delivery.message
        wish = message.headers[RESUME]
        letter = await self._find(int(wish)) if wish.isdecimal() else None
        await self._go_on(message.key if letter is None else letter.aggregate_id, letter)
        self._answering.confirm(delivery)

    async def _go_on(self, aggregate_id: str, wished: CommandLetter | None = None) -> None:
        """Runs a letter, then those that are held, until one holds again or none is left."""
        turn = self._turns.setdefault(aggregate_id, _Turn())
        turn.takers += 1
        async with turn.lock:
            # The one that had the turn before may have run it.
            again = None if wished is None else await self._find(wished.number)
            if again is not None and again.state is not LetterState.HELD:
                await self._run(again)
            await self._run_held(aggregate_id)
        turn.takers -= 1
        if not turn.takers:
            del self._turns[aggregate_id]

    async def _run_held(self, aggregate_id: str) -> None:
        while True:
            begun, whole = self._begun, not self._unwritten[aggregate_id]
            letter = await self._backoff.persist(
                lambda: self._letters.first_in_line(aggregate_id), what="read letters", unless=()
            )
            if letter is not None and letter.state is LetterState.HOLDING:
                return
            if letter is not None:
                await self._run(letter)
            elif whole and begun == self._begun:
                # None was on its way, before the look or during it.
                self.holds.release(aggregate_id)
                return
            else:
                await self._until_written(aggregate_id)

    async def _find(self, number: int) -> CommandLetter | None:
        return await self._backoff.persist(
            lambda: self._letters.find(number), what="read a letter", unless=()
        )

    async def _run(self, letter: CommandLetter) -> None:
        await self._desk.admit(letter.body)
        run = _FromLetter()
        # No queue has this name, so its place cannot be taken for one of a queue.
        message = Incoming(
            ("letters", letter.number), 0, letter.key, letter.name, letter.headers, letter.body
        )
        self._desk.take(CommandDelivery(message=message, subscription=run, letter=letter))
        await run.settled.wait()
        await self._backoff.persist(
            lambda: self._letters.finish(letter), what="finish a letter", unless=()
        )

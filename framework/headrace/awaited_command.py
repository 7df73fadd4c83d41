"""
A command whose result callers wait for.

Used by the bus, which sends the command and hears its reply, for the callers who wait. Pure but for
the futures that the callers wait for.
"""

import asyncio

from headrace._runtime.ids import new_id
from headrace.results import CommandResult
from headrace.serialization import CommandEnvelope

__all__ = ["AwaitedCommand"]


class AwaitedCommand:
    """One command. Several callers may wait for it; one that gives up does not disturb the others.

    Attributes:
        envelope: the command.
        correlation: the id that its replies carry.
        overdue: set by one look of the bus, so that the next one sends again.
        sent: whether the queue has it, as far as the bus knows.
        outcome: its result, or why there will be none; None while it is unknown.
        sending: guards `sent` while a caller waits for room to send: if that caller gives up, the
            next one sends instead.
    """

    __slots__ = ("_waiters", "correlation", "envelope", "outcome", "overdue", "sending", "sent")

    def __init__(self, envelope: CommandEnvelope) -> None:
        self.envelope = envelope
        self.correlation = new_id()
        self.overdue = False
        self.sent = False
        self.outcome: CommandResult | Exception | None = None
        self.sending: asyncio.Lock | None = None
        self._waiters: list[asyncio.Future[CommandResult]] = []

    def join(self) -> asyncio.Future[CommandResult]:
        """Returns a future of the caller's own, which ends with the outcome."""
        waiter: asyncio.Future[CommandResult] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        if self.outcome is not None:
            self.answer(self.outcome)
        return waiter

    def leave(self, waiter: asyncio.Future[CommandResult]) -> bool:
        """Takes a caller out; returns whether it was the last one."""
        self._waiters.remove(waiter)
        return not self._waiters

    def answer(self, outcome: CommandResult | Exception) -> None:
        """Ends the wait of every caller that still waits."""
        self.outcome = outcome
        for waiter in self._waiters:
            if waiter.done():
                continue
            if isinstance(outcome, Exception):
                waiter.set_exception(outcome)
                # Looked at, so that asyncio does not report it when the caller has gone.
                waiter.exception()
            else:
                waiter.set_result(outcome)

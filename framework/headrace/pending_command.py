"""
A command whose result callers wait for.

Used by the bus, which sends the command and receives its reply. Its only side effect is to complete the
futures that the callers wait for.
"""

import asyncio

from headrace._runtime.ids import new_id
from headrace.results import CommandResult
from headrace.serialization import CommandEnvelope

__all__ = ["Question"]


class Question:
    """One command; several callers may share it, and a caller that gives up takes it from no other.

    Attributes:
        envelope: the command.
        correlation: what its replies are known by.
        overdue: set by one look of the bus, so that the next one sends again.
        sent: whether the queue has it, as far as anybody knows.
        outcome: its result, or why there will be none; None while it is unknown.
        sending: guards `sent` while the one who sends waits for room: when that caller gives up,
            the next one sends in its place.
    """

    __slots__ = ("_askers", "correlation", "envelope", "outcome", "overdue", "sending", "sent")

    def __init__(self, envelope: CommandEnvelope) -> None:
        self.envelope = envelope
        self.correlation = new_id()
        self.overdue = False
        self.sent = False
        self.outcome: CommandResult | Exception | None = None
        self.sending: asyncio.Lock | None = None
        self._askers: list[asyncio.Future[CommandResult]] = []

    def ask(self) -> asyncio.Future[CommandResult]:
        """Returns a future of the caller's own, which ends with the outcome."""
        asker: asyncio.Future[CommandResult] = asyncio.get_running_loop().create_future()
        self._askers.append(asker)
        if self.outcome is not None:
            _tell(asker, self.outcome)
        return asker

    def leave(self, asker: asyncio.Future[CommandResult]) -> bool:
        """Takes a caller out; returns whether it was the last one."""
        self._askers.remove(asker)
        return not self._askers

    def answer(self, outcome: CommandResult | Exception) -> None:
        """Tells everybody who asks."""
        self.outcome = outcome
        for asker in self._askers:
            _tell(asker, outcome)


def _tell(asker: asyncio.Future[CommandResult], outcome: CommandResult | Exception) -> None:
    if asker.done():
        return
    if isinstance(outcome, Exception):
        asker.set_exception(outcome)
        # Looked at, so that asyncio does not report it when the caller has gone.
        asker.exception()
    else:
        asker.set_result(outcome)

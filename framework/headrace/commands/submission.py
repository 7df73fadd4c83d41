"""
A command in this process: its deliveries, and how far it has come.

Used by `processor`, which makes one of each delivered message, and by the worker that carries it to
its answer.
"""

from typing import NamedTuple, Protocol

from headrace.commands.decision import Decision, DecisionFailed
from headrace.domain.stream import EventStream
from headrace.serialization import CommandEnvelope
from headrace.stores.base import CommandLetter, Snapshot
from headrace.transports.base import Incoming

__all__ = ["CommandDelivery", "Submission"]


class _Acknowledged(Protocol):
    def ack(self, message: Incoming) -> None: ...


class CommandDelivery(NamedTuple):
    """A message, and the subscription that must acknowledge it when it is done.

    Attributes:
        letter: what it was taken up from; None: it came through the queue.
    """

    message: Incoming
    subscription: _Acknowledged
    letter: CommandLetter | None = None


class Submission:
    """One command with all its deliveries.

    Attributes:
        envelope: the command.
        command_id: its id.
        deliveries: the messages that brought it; more than one when it came again meanwhile.
        conflicts: runs that met a version conflict.
        crashes: runs that ended in an unexpected error.
        decision: what the last run decided.
        durable: whether the decided stream is in the store.
        sought: whether it is known if the store held its outcome.
        stored: its outcome, as the store held it before.
        body: `stored` encoded, as it will be published again.
        snapshot: of the aggregate after the decision, to be kept once that is durable.
        failure: why it is not to be run again.
    """

    __slots__ = (
        "body",
        "command_id",
        "conflicts",
        "crashes",
        "decision",
        "deliveries",
        "durable",
        "envelope",
        "failure",
        "recalling",
        "snapshot",
        "sought",
        "stored",
    )

    def __init__(self, envelope: CommandEnvelope, delivery: CommandDelivery) -> None:
        self.envelope = envelope
        self.command_id = envelope.command_id
        self.deliveries = [delivery]
        self.conflicts = 0
        self.crashes = 0
        self.decision: Decision | None = None
        self.durable = False
        self.recalling = False
        self.snapshot: Snapshot | None = None
        self.sought = False
        self.stored: EventStream | None = None
        self.body = b""
        self.failure: DecisionFailed | None = None

    @property
    def is_letter(self) -> bool:
        """Whether it was parked or held before, and is to run now."""
        return any(delivery.letter is not None for delivery in self.deliveries)

    def decided(self, decision: Decision) -> None:
        """Notes what a run decided, in place of what earlier runs did."""
        self.decision = decision
        self.snapshot = None
        self.durable = False
        self.recalling = False

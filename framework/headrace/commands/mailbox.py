"""
One aggregate's commands in one order: run ahead of the store, settled from the front.

Used by `aggregate_worker`, which runs what `take` returns; holds the queue's deliveries. Pure: it
knows neither handlers nor streams, and has no await, no clock, no I/O.

    offered ──▶ waiting ──take──▶ running ──ran──▶ decided ──settle──▶ gone
                   ▲                                  │
                   └────────────── rewind ────────────┘   a new generation

Commands are run one at a time, each on the state that the ones before it left, without waiting for
the store. When the store refuses one of them, everything decided after it is invalid too: the mailbox
rewinds to that command, and decisions of the old generation no longer count.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Generic, Protocol, TypeVar

__all__ = ["Mailbox"]


class _Identified(Protocol):
    @property
    def command_id(self) -> str: ...


C = TypeVar("C", bound=_Identified)


class Mailbox(Generic[C]):
    """The unsettled commands of one aggregate.

    Attributes:
        generation: grows with every rewind; a decision is good for the generation it was begun in.
        decided: how many commands have been run in this generation and not settled.
        counts: whether a command is running and no rewind has made its run worthless.
    """

    def __init__(self) -> None:
        self.generation = 0
        # From the front of the queue: first those decided, then the running one if it counts.
        self.decided = 0
        self.counts = False
        self._commands: deque[C] = deque()
        self._by_id: dict[str, C] = {}
        self._running = False

    def __len__(self) -> int:
        return len(self._commands)

    def __iter__(self) -> Iterator[C]:
        return iter(self._commands)

    def offer(self, command: C) -> C | None:
        """Puts a command at the end.

        Returns None, or the unsettled command of the same id: then nothing was put anywhere, and
        the answer of that one is the answer of both.
        """
        earlier = self._by_id.setdefault(command.command_id, command)
        if earlier is not command:
            return earlier
        self._commands.append(command)
        return None

    @property
    def next(self) -> C | None:
        """The command that `take` would return if none was running, or None."""
        taken = self.decided + self.counts
        return self._commands[taken] if taken < len(self._commands) else None

    def waiting(self) -> Iterator[C]:
        """Returns the commands that are to be run, in their order."""
        return islice(self._commands, self.decided + self.counts, None)

    def take(self) -> C | None:
        """Returns the next command to run, or None: there is none, or one is running."""
        if self._running or self.decided == len(self._commands):
            return None
        self._running = self.counts = True
        return self._commands[self.decided]

    def ran(self) -> bool:
        """Ends the run that `take` began; False when a rewind came in between.

        After False what the run decided must be thrown away; `take` returns its command again when
        its turn comes.
        """
        if not self._running:
            raise ValueError("no command is running")
        counts = self.counts
        self.decided += counts
        self._running = self.counts = False
        return counts

    @property
    def oldest(self) -> C | None:
        """The decided command whose turn it is to be settled, or None."""
        return self._commands[0] if self.decided else None

    def settle(self) -> C:
        """Takes out and returns the oldest decided command: it is done."""
        if not self.decided:
            raise ValueError("no decided command is waiting to be settled")
        command = self._commands.popleft()
        del self._by_id[command.command_id]
        self.decided -= 1
        return command

    def rewind(self, command: C) -> int:
        """Begins a new generation from a decided command on, and returns its number.

        The command and everything after it will be taken again, in the same order. What is decided
        before it stays decided.
        """
        place = self._commands.index(command)
        if place >= self.decided:
            raise ValueError(f"command {command.command_id} has not been decided")
        self.generation += 1
        self.decided = place
        self.counts = False
        return self.generation

"""
Which commands may have an outcome in the store already, without asking it.

An id that a bus makes is a UUIDv7 and tells when it was made. One that was made after this process
took its queue over can be stored only if it was handled here, and the newest of those are
remembered. Every other command has to be looked up before its handler runs. Used by the workers of
aggregates, which ask for each command. A hint: the store's constraint is the truth, and where
clocks disagree a handler runs once for nothing.
"""

from typing import Final

from headrace._runtime.clock import Clock

__all__ = ["KnownCommands"]

_UUID_CHARACTERS: Final = 36
_VERSION_PLACE: Final = 14


class KnownCommands:
    """The newest commands whose outcome this process has stored.

    Args:
        clock: tells when this process began to know all of them.
        remembered_max: how many it remembers.
    """

    def __init__(self, clock: Clock, *, remembered_max: int) -> None:
        self._clock = clock
        # Of two sets, the older of which goes when the newer is full.
        self._newer_max = remembered_max // 2
        self._newer: set[int] = set()
        self._older: set[int] = set()
        self._older_began = self._newer_began = self._now()

    def __len__(self) -> int:
        return len(self._newer) + len(self._older)

    def add(self, aggregate_id: str, command_id: str) -> None:
        """Remembers that a command's outcome is stored, at the price of the oldest ones."""
        self._newer.add(hash((aggregate_id, command_id)))
        if len(self._newer) >= self._newer_max:
            self._older, self._older_began = self._newer, self._newer_began
            self._newer, self._newer_began = set(), self._now()

    def may_be_stored(self, aggregate_id: str, command_id: str) -> bool:
        """Whether a command, which is not under way here, has to be looked up in the store."""
        if (
            command_id <= self._older_began
            or len(command_id) != _UUID_CHARACTERS
            or command_id[_VERSION_PLACE] != "7"
        ):
            return True
        key = hash((aggregate_id, command_id))
        return key in self._newer or key in self._older

    def begin_again(self) -> None:
        """Takes note that others may have stored any command that was made until now."""
        self._older_began = self._newer_began = self._now()

    def _now(self) -> str:
        """The time as a UUIDv7 that is made now begins with it."""
        text = f"{int(self._clock.now().timestamp() * 1_000):012x}"
        return f"{text[:8]}-{text[8:]}~"

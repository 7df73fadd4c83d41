"""
Writes to the disk what requests change in memory: committed offsets, and who the producers are.

A disk that refuses is reported once, not each second, and asked again with the next flush.

Sits between: `server`, whose timer calls it, and `groups.offsets` and `peers.producers`.
"""

import asyncio

from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.groups.offsets import Offsets
from headrace_mq.broker.peers.producers import Producers

__all__ = ["Flushes"]

_log = get_logger(__name__)


class Flushes:
    """The flushes of one broker; each does nothing where nothing changed.

    Args:
        offsets: of all groups.
        producers: those that stand in messages.
    """

    def __init__(self, offsets: Offsets, producers: Producers) -> None:
        self._offsets = offsets
        self._producers = producers
        self._refused: set[str] = set()

    async def offsets(self) -> None:
        """Writes committed offsets; who waits for them hears how that went."""
        changes = self._offsets.take_changes()
        if changes is None:
            return
        try:
            await asyncio.to_thread(self._offsets.write, changes)
        except OSError as error:
            self._offsets.settle(error)
            self._tell("committed offsets", "after a crash they are older", error)
        else:
            self._offsets.settle()
            self._refused.discard("committed offsets")

    async def producers(self) -> None:
        """Writes new producers."""
        changes = self._producers.take_changes()
        if changes is None:
            return
        try:
            await asyncio.to_thread(self._producers.write, changes)
        except OSError as error:
            self._tell("new producers", "a crash would forget them", error)
        else:
            self._refused.discard("new producers")

    def _tell(self, what: str, loss: str, error: OSError) -> None:
        if what not in self._refused:
            self._refused.add(what)
            _log.error(f"{what} could not be written; {loss}", reason=str(error))

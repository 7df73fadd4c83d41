"""
Gives revoked queues to their new owners.

Records that are being handled are finished first, then committed, then the lock goes back. Queues
that stay are not touched.

Used by `Consumer`, when queues are revoked; uses `fetch.assigned_queues`, `commits` and `group.locks`.
"""

import asyncio
from collections.abc import Awaitable, Callable

from headrace_mq._runtime.log import get_logger
from headrace_mq.client.fetch.assigned_queues import AssignedQueues
from headrace_mq.client.group.locks import QueueLocks
from headrace_mq.errors import ConnectionLost, MessageQueueError

__all__ = ["Handover"]

# Pause after a hand-over that the broker did not answer as hoped.
TROUBLE_PAUSE_MS = 1_000

_log = get_logger(__name__)


class Handover:
    """The hand-overs of one consumer.

    Args:
        shares: the consumer's queues.
        locks: on them.
        commit: reports what is finished.
        on_back: called when a queue that was handed over is this consumer's again.
    """

    def __init__(
        self,
        shares: AssignedQueues,
        locks: QueueLocks,
        *,
        commit: Callable[[], Awaitable[None]],
        on_back: Callable[[], None],
    ) -> None:
        self._shares = shares
        self._locks = locks
        self._commit = commit
        self._on_back = on_back
        self._wanted = asyncio.Event()

    def soon(self) -> None:
        """A queue was revoked, the last attempt on one has ended, or one was locked too late."""
        self._wanted.set()

    async def keep_handing_over(self) -> None:
        """Hands over what is ready, for ever."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self._hand_over()
            except ConnectionLost:
                # The locks ended with it.
                continue
            except MessageQueueError as error:
                _log.warning(
                    "queues could not be handed over yet; the consumer tries again",
                    reason=str(error),
                )
                await asyncio.sleep(TROUBLE_PAUSE_MS / 1_000)
                self._wanted.set()

    async def _hand_over(self) -> None:
        drained = self._shares.drained()
        if drained:
            try:
                await self._commit()
            except ConnectionLost:
                raise
            except MessageQueueError as error:
                # The new owner starts at the last commit: records come again, none is lost.
                _log.warning(
                    "queues were handed over without a last commit; some messages come twice",
                    reason=str(error),
                )
        # What drained meanwhile has its commit before it. Some may be assigned again by now; those
        # keep their locks, and start again.
        parted = set(drained).intersection(self._shares.drained())
        self._shares.part_with(parted)
        if self._shares.assigned.intersection(parted):
            self._on_back()
        queues = [queue for queue in self._locks.held if not self._shares.needs(queue)]
        if queues:
            await self._locks.release(queues)

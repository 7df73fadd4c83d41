"""
Reports a consumer's finished offsets to the broker: on a timer and on request.

Used by `Consumer` and `PullConsumer`; reads finished offsets from `fetch.assigned_queues`.
"""

import asyncio
from collections.abc import Callable, Mapping

from headrace_mq._net.link import Link
from headrace_mq._runtime.log import get_logger
from headrace_mq.client.fetch.assigned_queues import AssignedQueues
from headrace_mq.client.group.locks import QueueLocks
from headrace_mq.client.names import member_of
from headrace_mq.errors import BrokerError, ConnectionLost, MessageQueueError, StaleLock
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import CommitOffsets, CommittedOffset, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.settings import ConsumerSettings

__all__ = ["Commits"]

# What a broker takes at a time, by the longest names of topics.
OFFSETS_PER_COMMIT = 1_024

_log = get_logger(__name__)


class Commits:
    """The commits of one consumer.

    Args:
        link: the connection.
        shares: the consumer's queues.
        group: whose offsets.
        settings: how often.
        generation: tells the newest generation of the group the member knows.
        locks: whose epochs fence the commits.
        on_stale: called when the broker says that a lock was lost.
    """

    def __init__(
        self,
        link: Link,
        shares: AssignedQueues,
        *,
        group: str,
        settings: ConsumerSettings,
        generation: Callable[[], int],
        locks: QueueLocks,
        on_stale: Callable[[], None],
    ) -> None:
        self._link = link
        self._shares = shares
        self._group = group
        self._settings = settings
        self._generation = generation
        self._locks = locks
        self._on_stale = on_stale
        # One commit at a time, so that an older one cannot arrive behind a newer one.
        self._turn = asyncio.Lock()

    async def keep_committing(self) -> None:
        """Commits on the timer, for ever; failures wait for the next turn."""
        while True:
            await asyncio.sleep(self._settings.commit_interval_ms / 1_000)
            try:
                await self.commit()
            except ConnectionLost:
                # The membership ended with it; what is finished is committed after the next join.
                continue
            except MessageQueueError as error:
                _log.warning(
                    "offsets could not be committed; the consumer tries again",
                    group=self._group,
                    reason=str(error),
                )

    async def commit(self) -> None:
        """Sends the offsets that the broker does not hold yet.

        Raises:
            NotGroupMember: the broker no longer knows the member.
            StaleLock: another member may own a queue; all queues are suspended and locked again.
            BrokerError: an offset is refused.
            ConnectionLost, RequestTimeout: the outcome is unknown.
        """
        async with self._turn:
            finished = list(self._shares.to_commit().items())
            for at in range(0, len(finished), OFFSETS_PER_COMMIT):
                await self._send(dict(finished[at : at + OFFSETS_PER_COMMIT]))

    async def _send(self, offsets: Mapping[QueueRef, int]) -> None:
        request = CommitOffsets(
            group=self._group,
            member=member_of(self._settings, self._link.client_id),
            generation=self._generation(),
            offsets=[
                CommittedOffset(*queue, offset, self._locks.epoch(queue))
                for queue, offset in offsets.items()
            ],
        )
        try:
            await self._link.request(
                RequestCode.COMMIT_OFFSETS,
                encode(request),
                timeout_ms=self._settings.request_timeout_ms,
            )
        except BrokerError as error:
            if not error.retriable:
                # A commit is refused as a whole: what cannot be stored must not keep the
                # offsets of the queues still held from being stored.
                self._shares.forget_revoked()
            if isinstance(error, StaleLock):
                self._on_stale()
            raise
        self._shares.committed(offsets)

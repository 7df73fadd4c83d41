"""
A consumer's locks on its queues: taken before a queue is read, kept by heartbeats, given back.

The broker keeps a lock for a fixed time after a heartbeat. The consumer counts that time from the
moment it sent the last heartbeat that was answered. After it, another member may hold the lock, and
the consumer begins nothing until it has asked the broker again. So a process that was stopped for a
while notices it by itself.

Used by `Consumer` and its parts; sends LOCK_QUEUES and UNLOCK_QUEUES.
"""

from collections.abc import Collection, Iterable, Iterator

from headrace_mq._net.link import Link
from headrace_mq._runtime.clock import Clock
from headrace_mq.client.names import member_of
from headrace_mq.client.spread.spread_link import SpreadLink
from headrace_mq.errors import ConnectionLost, MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import (
    LockQueues,
    LocksAnswer,
    QueueName,
    UnlockQueues,
    decode,
    encode,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.settings import ConsumerSettings

__all__ = ["QueueLocks"]

# The broker's limit of queues in one request.
QUEUES_PER_REQUEST_MAX = 1_024


class QueueLocks:
    """The locks of one member of a group.

    Args:
        link: the connection.
        group: the group.
        settings: how long a request may take, and whether handling needs locks at all.
        clock: measures the time since the last heartbeat.
    """

    def __init__(self, link: Link, *, group: str, settings: ConsumerSettings, clock: Clock) -> None:
        self._link = link
        self._group = group
        self._member = member_of(settings, link.client_id)
        self._settings = settings
        self._clock = clock
        self._epochs: dict[QueueRef, int] = {}
        # Nothing may be done under these, but the broker may go on keeping them with heartbeats.
        self._doubted: set[QueueRef] = set()
        self._trusted_until_ms = 0
        self._expiry_ms = 0

    @property
    def wanted(self) -> bool:
        """Whether queues are locked.

        Records that may be handled in any order need no owner, and broadcast queues have none. Over several broker groups
        they do: members that do not reach all groups divide the queues otherwise than the others, so two would have one.
        """
        if self._settings.broadcast_file is not None:
            return False
        return self._settings.handling != "parallel" or isinstance(self._link, SpreadLink)

    @property
    def stale(self) -> bool:
        """Whether another member may hold these locks by now."""
        return bool(self._epochs) and self._clock.monotonic_ms() >= self._trusted_until_ms

    @property
    def held(self) -> list[QueueRef]:
        """The queues whose locks this member holds, or may hold, in order."""
        return sorted(self._doubted.union(self._epochs))

    def epoch(self, queue: QueueRef) -> int:
        """The epoch that fences commits of a queue, or 0."""
        return self._epochs.get(queue, 0)

    async def acquire(self, queues: Collection[QueueRef]) -> list[QueueRef]:
        """Asks for locks and returns the queues that are this member's to read now.

        Those it holds already must not be stale: asking for others would hide it.

        Raises:
            BrokerError, ConnectionLost, RequestTimeout: nothing more is known than before.
        """
        if not self.wanted:
            return [queue for queue in queues if self._link.serves(queue)]
        granted: list[QueueRef] = []
        for names in _in_parts(queues):
            sent_at_ms = self._clock.monotonic_ms()
            request = LockQueues(self._group, self._member, names)
            answer = decode(LocksAnswer, await self._ask(RequestCode.LOCK_QUEUES, encode(request)))
            self._expiry_ms = answer.expiry_ms
            self._trusted_until_ms = sent_at_ms + answer.expiry_ms
            self._doubted.difference_update(QueueRef(n.topic, n.queue_id) for n in names)
            for lock in answer.locks:
                queue = QueueRef(lock.topic, lock.queue_id)
                self._epochs[queue] = lock.epoch
                granted.append(queue)
        return granted

    async def release(self, queues: Collection[QueueRef]) -> None:
        """Gives locks back.

        Raises:
            BrokerError, ConnectionLost, RequestTimeout: they end with the connection or by expiry.
        """
        if not self.wanted:
            return
        # At once: a lock that is asked for again meanwhile gets another epoch.
        given = {queue: self._epochs.pop(queue) for queue in queues if queue in self._epochs}
        doubted = self._doubted.intersection(queues)
        self._doubted -= doubted
        try:
            for names in _in_parts(queues):
                request = UnlockQueues(self._group, self._member, names)
                await self._ask(RequestCode.UNLOCK_QUEUES, encode(request))
        except ConnectionLost:
            raise
        except MessageQueueError:
            # Heartbeats go on keeping them, so they must be given back another time.
            self._epochs = given | self._epochs
            self._doubted |= doubted.difference(self._epochs)
            raise

    def renewed(self, sent_at_ms: int) -> None:
        """The broker got a heartbeat of the member after this moment, by the consumer's clock.

        That comes too late for locks that are stale: only asking for them again tells whose they are.
        """
        if not self.stale:
            self._trusted_until_ms = max(self._trusted_until_ms, sent_at_ms + self._expiry_ms)

    def lost(self) -> None:
        """All locks ended: the connection is gone, or the broker does not know the member."""
        self._epochs.clear()
        self._doubted.clear()

    def doubt(self) -> None:
        """Another member may hold these locks: they count again once the broker grants them again."""
        self._doubted.update(self._epochs)
        self._epochs.clear()

    async def _ask(self, code: RequestCode, body: bytes) -> memoryview:
        return await self._link.request(code, body, timeout_ms=self._settings.request_timeout_ms)


def _in_parts(queues: Iterable[QueueRef]) -> Iterator[list[QueueName]]:
    names = [QueueName(*queue) for queue in sorted(queues)]
    for at in range(0, len(names), QUEUES_PER_REQUEST_MAX):
        yield names[at : at + QUEUES_PER_REQUEST_MAX]

"""
Reads the audit of a broker: its last entries, those since a time, and new ones as they come.

A part of `AdminClient`. It is no consumer: it has no group and commits nothing.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping

from headrace_mq._runtime.log import get_logger
from headrace_mq.access.audit import AUDIT_TOPIC, AuditEntry
from headrace_mq.admin.offsets import OffsetAdministration
from headrace_mq.admin.tail import MessageTail
from headrace_mq.errors import DataCorrupt, InvalidArgument, TopicNotFound
from headrace_mq.message import QueueRef, Record

__all__ = ["AUDIT_LISTED_MAX", "AuditReader", "Chosen"]

# Entries of one `audit`: all are in memory at once.
AUDIT_LISTED_MAX = 100_000

Chosen = Callable[[AuditEntry], bool]

_log = get_logger(__name__)


class AuditReader(MessageTail, OffsetAdministration):
    """The calls that read the audit; each needs `read cluster`."""

    async def audit(
        self, count: int, *, since_ms: int = 0, chosen: Chosen | None = None
    ) -> list[AuditEntry]:
        """The last entries that are chosen, the oldest first.

        Args:
            count: how many at most, 1 to AUDIT_LISTED_MAX.
            since_ms: none that is older, in milliseconds since 1970 UTC; 0: all that there are.
            chosen: tells whether an entry is; None: each.

        Raises:
            ValueError: `count` is out of its range.
            InvalidArgument: this broker keeps no audit.
            NotPermitted: you may not `read cluster`.
        """
        _check_count(count)
        return await self._last(await self._ends(), count, since_ms, chosen)

    async def _last(
        self, ends: Mapping[QueueRef, int], count: int, since_ms: int, chosen: Chosen | None
    ) -> list[AuditEntry]:
        """The last of the entries that come before `ends`."""
        starts = await self.offsets_at([AUDIT_TOPIC], since_ms)
        found: deque[AuditEntry] = deque(maxlen=count)
        for queue, end in ends.items():
            # Without a choice none before the last ones is among them.
            start = max(starts[queue], end - count) if chosen is None else starts[queue]
            kept: deque[AuditEntry] = deque(maxlen=count)
            async for record in self._stored(queue, start, end):
                for entry in _entries([record]):
                    if entry.at_ms >= since_ms and (chosen is None or chosen(entry)):
                        kept.append(entry)
            found = deque(sorted([*found, *kept], key=lambda entry: entry.at_ms), count)
        return list(found)

    async def follow_audit(self, last: int) -> AsyncIterator[AuditEntry]:
        """Yields the last entries, and then new ones as they come, without an end. Raises as `audit`.

        Args:
            last: how many of the entries so far, 0 to AUDIT_LISTED_MAX.
        """
        if last:
            _check_count(last)
        ends = await self._ends()
        for entry in await self._last(ends, last, 0, None) if last else ():
            yield entry
        async for record in self.follow(ends):
            for entry in _entries([record]):
                yield entry

    async def _ends(self) -> dict[QueueRef, int]:
        try:
            return (await self.tail(AUDIT_TOPIC, 0)).behind
        except TopicNotFound as error:
            raise InvalidArgument(
                "this broker keeps no audit; start it with --login, with --tls-client-ca, or with --set audit=true"
            ) from error

    async def _stored(self, queue: QueueRef, start: int, end: int) -> AsyncIterator[Record]:
        places = {queue: start}
        while (at := places[queue]) < end:
            for record in await self._fetch(places, 0):
                if record.offset < end:
                    yield record
            # What was deleted meanwhile is no reason to ask for ever.
            if places[queue] == at:
                return


def _check_count(count: int) -> None:
    if not 1 <= count <= AUDIT_LISTED_MAX:
        raise ValueError(f"count is 1 to {AUDIT_LISTED_MAX}, not {count}")


def _entries(records: Iterable[Record]) -> Iterable[AuditEntry]:
    for record in records:
        try:
            yield AuditEntry.decode(record.body)
        except DataCorrupt as error:
            _log.warning("a message of the audit is passed over", reason=str(error))

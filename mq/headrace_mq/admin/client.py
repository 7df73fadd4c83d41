"""
Administration of one broker: topics, groups, offsets, messages, and the broker itself.

Used by the command line, and by programs that look after a broker. Each subject is a part of its own,
such as `topics` or `dead_letters`. Knows the wire, but no part of the broker.
"""

from headrace_mq.admin.audit import AuditReader
from headrace_mq.admin.dead_letters import DeadLetterAdministration
from headrace_mq.admin.groups import GroupAdministration
from headrace_mq.admin.limits import LimitAdministration
from headrace_mq.admin.lookup import MessageSearch
from headrace_mq.admin.users import UserAdministration
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.scheduled import ScheduleDescription
from headrace_mq.protocol.transactions import TransactionsDescription

__all__ = ["AdminClient"]


class AdminClient(
    GroupAdministration,
    AuditReader,
    MessageSearch,
    DeadLetterAdministration,
    LimitAdministration,
    UserAdministration,
):
    """A connection for administration; use it in an `async with` block.

    Every call raises `ConnectionLost` or `RequestTimeout` when the broker does not answer, and the
    `BrokerError` it answered with.

    Args:
        address: the broker's `host:port`.
        timeout_ms: limit for connecting and for each call.
        connect_ms: limit for connecting, if it differs.
        reads: whether a replica of a group may answer, too; it answers `settings` alone.
        patient: whether questions about topics are answered without the broker groups of the address that are away.
    """

    async def scheduled(self) -> ScheduleDescription:
        """How many scheduled messages wait, when the next one is due (-1: none), how late it is."""
        return await self._ask(ScheduleDescription, RequestCode.DESCRIBE_SCHEDULE)

    async def transactions(self) -> TransactionsDescription:
        """How many transactions are undecided, and which of them are the oldest."""
        return await self._ask(TransactionsDescription, RequestCode.DESCRIBE_TRANSACTIONS)

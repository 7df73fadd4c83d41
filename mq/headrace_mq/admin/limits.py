"""
Administration of limits: what clients and topics may send and read, how far behind groups may be.

A part of `AdminClient`.
"""

from typing import Literal

from headrace_mq.admin.connection import AdminConnection
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.limits import (
    NO_RATES,
    BacklogDescription,
    BacklogsAnswer,
    QuotasAnswer,
    Rates,
    SetBacklogLimit,
    SetQuota,
    SettingsAnswer,
)

__all__ = ["BacklogPolicy", "LimitAdministration", "QuotaKind"]

BacklogPolicy = Literal["block", "reject", "drop_oldest"]
QuotaKind = Literal["client", "topic"]


class LimitAdministration(AdminConnection):
    """The calls about limits."""

    async def quotas(self) -> QuotasAnswer:
        """All quotas, the defaults with an empty name, and the clients that they delayed lately."""
        return await self._ask(QuotasAnswer, RequestCode.DESCRIBE_QUOTAS)

    async def set_quota(self, kind: QuotaKind, name: str, rates: Rates) -> QuotasAnswer:
        """Gives a client or a topic a quota of its own in place of the default; durable.

        It holds from now on. A client over its quota is served later: nothing is refused that has not waited
        for `throttle_ms_max`.

        Args:
            kind: "client" is a host, all its connections together.
            name: the host's address as `connections` tells it, without the port; or the topic,
                which need not exist.
            rates: in a second; a rate of 0 is no limit, even if there is a default.

        Raises:
            InvalidArgument: a value is out of its range.
            StoreFull: the broker's disk is full; nothing was changed.
        """
        asked = SetQuota(kind, name, rates)
        return await self._ask(QuotasAnswer, RequestCode.SET_QUOTA, asked)

    async def remove_quota(self, kind: QuotaKind, name: str) -> QuotasAnswer:
        """Lets the default hold again for a client or topic; durable. Raises as `set_quota`."""
        asked = SetQuota(kind, name, NO_RATES, remove=True)
        return await self._ask(QuotasAnswer, RequestCode.SET_QUOTA, asked)

    async def settings(self) -> SettingsAnswer:
        """The broker's settings: each with its value as text, its default, and what gave it; no value has a password."""
        return await self._ask(SettingsAnswer, RequestCode.DESCRIBE_SETTINGS)

    async def backlogs(self) -> list[BacklogDescription]:
        """The groups that may be behind by so much only, and how far behind they are."""
        return (await self._ask(BacklogsAnswer, RequestCode.DESCRIBE_BACKLOGS)).limits

    async def limit_backlog(
        self, group: str, messages_max: int, policy: BacklogPolicy
    ) -> list[BacklogDescription]:
        """Says how many messages a group may be behind, over all its queues; durable.

        Args:
            group: which need not have been seen yet.
            messages_max: at least 1.
            policy: "block" lets producers of its topics wait, for `throttle_ms_max` at most;
                "reject" refuses their messages with BacklogFull; "drop_oldest" moves the group
                forward, so that it NEVER gets what it skips (the messages stay where they are).

        Raises:
            InvalidArgument: a value is out of its range.
            StoreFull: the broker's disk is full; nothing was changed.
        """
        asked = SetBacklogLimit(group, messages_max, policy)
        return (await self._ask(BacklogsAnswer, RequestCode.SET_BACKLOG_LIMIT, asked)).limits

    async def unlimit_backlog(self, group: str) -> list[BacklogDescription]:
        """Lets a group be behind by any number again; durable. Raises as `limit_backlog`."""
        asked = SetBacklogLimit(group, 0, "", remove=True)
        return (await self._ask(BacklogsAnswer, RequestCode.SET_BACKLOG_LIMIT, asked)).limits

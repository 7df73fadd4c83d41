"""
The fetches of a consumer whose queues are in several broker groups: each asks one group.

Used by `Consumer` and `PullConsumer`, by way of `fetcher_for`.
"""

from collections.abc import Sequence

from headrace_mq._net.link import Link
from headrace_mq.client.fetch.assigned_queues import AssignedQueue
from headrace_mq.client.fetch.fetcher import Fetcher
from headrace_mq.client.spread.spread_link import SpreadLink

__all__ = ["SpreadFetcher", "fetcher_for"]


class SpreadFetcher(Fetcher):
    """A `Fetcher` over a `SpreadLink`."""

    def _fetch(self, shares: Sequence[AssignedQueue]) -> None:
        link = self._link
        assert isinstance(link, SpreadLink)
        parts: dict[str | None, list[AssignedQueue]] = {}
        for share in shares:
            parts.setdefault(link.owner(share.queue), []).append(share)
        for mine in parts.values():
            # Nothing is asked of a group that is away; when it is back, the link says so.
            super()._fetch(mine)


def fetcher_for(link: Link) -> type[Fetcher]:
    """Returns the kind of fetcher that a link needs."""
    return SpreadFetcher if isinstance(link, SpreadLink) else Fetcher

"""
Which refusals get an entry in the audit: of one client a few in a minute, and the same one once.

    refused ──▶ the same one in this minute? ──▶ counted; the count is an entry, a minute later
                  └─ no ──▶ a few of this client in this minute? ──▶ an entry
                              └─ no ──▶ counted; the count is an entry of the client, a minute later

So a client that is refused all the time takes a small share of the audit, and does not push out what others were
refused. A client is a user, wherever it connects from; or an address, where no user is known. Failed logins under the name
of a user that exists have a share of their own: many with invented names do not hide those.

Used by `audit`, which writes. PURE but for the clock.
"""

from collections.abc import Iterator

import msgspec

from headrace_mq._runtime.clock import Clock
from headrace_mq.access.audit import KINDS, LEFT_OUT, REFUSALS, AuditEntry

__all__ = ["Refusals"]

# The same refusal of the same client is written once in this time, with how often it came since: a client repeats itself.
SAME_REFUSAL_MS = 60_000
# Different refusals that are remembered for that, of some 300 bytes each; and as many clients.
REFUSALS_MAX = 1_000

# User and, where none is known, address; of a failed login the user that was tried.
_Client = tuple[str, str, str]
_Same = tuple[_Client, str, str, str, str]


class _Counted:
    """An entry, since when, and how many are counted that have none."""

    __slots__ = ("begun_ms", "entry", "more", "written")

    def __init__(self, entry: AuditEntry, begun_ms: int) -> None:
        self.entry, self.begun_ms, self.more, self.written = entry, begun_ms, 0, 0


class Refusals:
    """What was refused in the last minute.

    Args:
        clock: the time.
        per_client_max: entries of one client in a minute; what is counted has entries of its own.
    """

    def __init__(self, clock: Clock, per_client_max: int) -> None:
        self._clock = clock
        self._per_client_max = per_client_max
        self._same: dict[_Same, _Counted] = {}
        self._clients: dict[_Client, _Counted] = {}

    def take(self, entry: AuditEntry, host: str, tried: str = "") -> Iterator[AuditEntry]:
        """Yields what is to be written for one refusal: counts that are due before it, and it, or nothing.

        Args:
            entry: says what was refused.
            host: the client's address without its port.
            tried: of a failed login the resource of the user that was tried, where there is such a user; or empty.
        """
        client = (entry.user, "" if entry.user else host, tried)
        now_ms = self._clock.monotonic_ms()
        # Without the advice, which may have a time in it.
        reason = entry.detail.partition(";")[0]
        same = (client, host, entry.action, entry.resource, reason)
        known = self._same.get(same)
        if known is not None and now_ms - known.begun_ms < SAME_REFUSAL_MS:
            known.more += 1
            return
        if known is not None:
            yield from self._counts_of(self._same.pop(same))
        share = self._clients.get(client)
        if share is not None and now_ms - share.begun_ms >= SAME_REFUSAL_MS:
            yield from self._left_out(client, self._clients.pop(client))
            share = None
        if share is None:
            if len(self._clients) >= REFUSALS_MAX:
                oldest = next(iter(self._clients))
                yield from self._left_out(oldest, self._clients.pop(oldest))
            share = self._clients[client] = _Counted(entry, now_ms)
        if share.written >= self._per_client_max:
            share.more += 1
            return
        share.written += 1
        if len(self._same) >= REFUSALS_MAX:
            yield from self._counts_of(self._same.pop(next(iter(self._same))))
        self._same[same] = _Counted(entry, now_ms)
        yield entry

    def due(self, *, ending: bool = False) -> Iterator[AuditEntry]:
        """Yields the counts whose minute is over, or all of them."""
        now_ms = self._clock.monotonic_ms()
        for same, known in list(self._same.items()):
            if ending or now_ms - known.begun_ms >= SAME_REFUSAL_MS:
                yield from self._counts_of(self._same.pop(same))
        for client, share in list(self._clients.items()):
            if ending or now_ms - share.begun_ms >= SAME_REFUSAL_MS:
                yield from self._left_out(client, self._clients.pop(client))

    def _counts_of(self, known: _Counted) -> Iterator[AuditEntry]:
        if known.more:
            at_ms = self._clock.now_ms()
            yield msgspec.structs.replace(known.entry, at_ms=at_ms, more=known.more)

    def _left_out(self, client: _Client, share: _Counted) -> Iterator[AuditEntry]:
        if share.more:
            yield AuditEntry(
                at_ms=self._clock.now_ms(),
                user=share.entry.user,
                action=KINDS[REFUSALS],
                resource=client[2],
                address=share.entry.address,
                outcome=LEFT_OUT,
                more=share.more,
            )

"""
How a leader ends its term in order, so that the next one has what was acknowledged.

    clients are refused ─▶ the next leader has everything ─▶ it is asked to lead ─▶ it leads
                    │
                    └─(not in time)─▶ this broker goes on; or, where it stops, waits once more, and says what is missing

Used by `replicated_broker`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.replicas.followers import Followers
from headrace_mq.broker.replicas.record_watch import RecordWatch
from headrace_mq.cluster.record import ACK_IN_SYNC, RecordUnavailable

__all__ = ["drain", "hand_over"]

# How often a leader looks whether the record has the new one, or the replicas have everything.
_LOOK_MS = 20

_log = get_logger(__name__)


async def hand_over(
    term: Followers, watch: RecordWatch, keep_offsets: Callable[[], Awaitable[None]], wait_ms: int
) -> None:
    """Accepts nothing until another broker leads, or the time is over.

    Args:
        term: of this leader, with the succession that was begun.
        watch: of the record.
        keep_offsets: writes what groups committed.
        wait_ms: how long this may take.
    """
    await keep_offsets()
    term.offer()
    with suppress(TimeoutError, RecordUnavailable):
        async with asyncio.timeout(wait_ms / 1_000):
            while term.leads:
                await asyncio.sleep(_LOOK_MS / 1_000)
                if term.has_said_to_lead:
                    await watch.refresh()
    if term.leads:
        _log.warning("no other broker led in time; this one goes on", epoch=term.epoch)
    term.succession = None


async def drain(term: Followers, keep_offsets: Callable[[], Awaitable[None]], wait_ms: int) -> None:
    """Waits until the replicas have what groups committed, so that a stop in order repeats no message.

    If this leader acknowledged alone, it also waits until those in sync have all of that, and accepts nothing meanwhile;
    the next leader may still lead. If the time is over before, the log says how much may be lost.

    Args:
        term: of this leader, which stops.
        keep_offsets: writes what groups committed.
        wait_ms: how long the replicas may take.
    """
    leaves = term.ack != ACK_IN_SYNC and term.begin_to_leave()
    await keep_offsets()
    if leaves:
        term.offer()
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_ms / 1_000):
            while leaves and term.leads and term.may_lose().bytes:  # noqa: ASYNC110 - until another one leads, too: no event has both
                await asyncio.sleep(_LOOK_MS / 1_000)
            if term.leads:
                await term.confirmed()
    if leaves and term.leads and (lacked := term.may_lose().bytes):
        _log.warning(
            "this broker stops before all brokers in sync have what it acknowledged alone: if one of them leads, the rest is"
            " lost; start this broker again, and `headrace store lost` shows what it had to cut",
            bytes=lacked, epoch=term.epoch,
        )  # fmt: skip

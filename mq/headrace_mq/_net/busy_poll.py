"""
Keeps an event loop awake for a moment after each arrival, where arrivals come close together.

A loop with nothing to do sleeps in the kernel. To be woken up again takes an interrupt, on a virtual
machine an exit to its host, and caches that others have used meanwhile: more than the work on a small
message takes. So a loop may look at its sockets again and again instead (what `net.core.busy_poll`
does in Linux's network stack, and `halt_poll_ns` in its hypervisor): it costs the processor all that
time, and is therefore only done while the last two arrivals were no further apart than it lasts.

Off by default, because it takes a processor. Where processors are idle, an awaited `send` takes 55
instead of 112 us from the page cache and 155 instead of 233 after fdatasync (W1 "send, one at a time"
of `benchmarks.mq`, medians of five turns); where they are not, it brings nothing.

Used by the connections of both sides, which say that something arrived; uses the loop they run on.
"""

import asyncio
import os
import time
from collections.abc import Callable

__all__ = ["BusyPoll", "busy_poll_of"]


def _stay() -> None:
    return None


# What else has something to do goes first, also threads of this process that wait for a processor.
_give_way: Callable[[], None] = getattr(os, "sched_yield", _stay)


class BusyPoll:
    """Turns a loop around without letting it sleep.

    Args:
        loop: the running loop.
        poll_us: how long after an arrival, in microseconds.
        now: a clock in seconds that never goes back.
    """

    __slots__ = ("_arrived", "_loop", "_now", "_poll_s", "_turning", "_until")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        poll_us: int,
        *,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._loop = loop
        self._poll_s = poll_us / 1e6
        self._now = now
        self._arrived = float("-inf")
        self._until = self._arrived
        self._turning = False

    def arrived(self) -> None:
        """Something came: more may come soon."""
        now = self._now()
        if now - self._arrived <= self._poll_s:
            self._until = now + self._poll_s
            if not self._turning:
                self._turning = True
                self._loop.call_soon(self._turn)
        self._arrived = now

    def _turn(self) -> None:
        # As long as something is to be called, the loop asks its sockets and does not wait for them.
        if self._now() < self._until:
            _give_way()
            self._loop.call_soon(self._turn)
        else:
            self._turning = False


def busy_poll_of(loop: asyncio.AbstractEventLoop, poll_us: int) -> BusyPoll | None:
    """A loop's busy poll, or None where it may sleep at once."""
    return BusyPoll(loop, poll_us) if poll_us else None

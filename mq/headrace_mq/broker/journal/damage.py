"""
Waits for the damaged batches of journals, before a leader serves clients.

    elected ─▶ its log is confirmed ─▶ reads the journals ─▶ all sound: serves clients
                                              └─▶ damaged: a replica brings sound bytes, or none has them in time

A journal is read once, at the start of a broker, and never looks again at a batch that was left out. While the broker starts no
replica can bring anything. So this comes before.

Used by `replicated_broker`; uses the store that is open while this broker serves no clients.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from headrace_mq._runtime.log import get_logger
from headrace_mq.errors import DataCorrupt
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import read_header

__all__ = [
    "JOURNAL_WAIT_MS_MAX",
    "HeldJournals",
    "KeptPlace",
    "KeptPlaces",
    "starts_of",
    "until_sound",
]

_log = get_logger(__name__)

# How long clients wait for this at most; a place that a replica has takes some round trips.
JOURNAL_WAIT_MS_MAX = 5_000
# What comes from the disk or a replica is looked for again after this.
_MOMENT_MS = 5
_READ_BYTES = 1 << 20


class HeldJournals(Protocol):
    """What is used of the store."""

    def range(self, queue: QueueRef) -> tuple[int, int]:
        """The first offset held and the next one to become visible."""
        ...

    def read_now(
        self, queue: QueueRef, offset: int, bytes_max: int
    ) -> Sequence[bytes | memoryview] | None:
        """Returns whole batches; None while the first one comes from the disk, or is about to be mended."""
        ...


class KeptPlace(Protocol):
    """Where a journal was read to."""

    @property
    def read_to(self) -> int:
        """The offset."""
        ...


class KeptPlaces(Protocol):
    """The file that keeps it."""

    def read(self) -> KeptPlace | None:
        """Returns what it holds; None: there is none. Raises DataCorrupt."""
        ...


def starts_of(files: Mapping[QueueRef, KeptPlaces]) -> dict[QueueRef, int]:
    """Returns where the next start begins to read each journal; 0: from its beginning."""
    starts = dict.fromkeys(files, 0)
    for queue, file in files.items():
        with suppress(DataCorrupt):  # the start tells of it
            kept = file.read()
            starts[queue] = 0 if kept is None else kept.read_to
    return starts


async def until_sound(
    store: HeldJournals, starts: Mapping[QueueRef, int], goes_on: Callable[[], bool]
) -> None:
    """Returns when every batch of journals is sound, or given up, or the time is over.

    Args:
        store: holds them.
        starts: for each journal the offset from which its broker will read.
        goes_on: False: what follows has become pointless.
    """
    try:
        async with asyncio.timeout(JOURNAL_WAIT_MS_MAX / 1_000):
            for queue, start in starts.items():
                await _read_through(store, queue, start, goes_on)
    except TimeoutError:
        _log.warning(
            "the journals are not read through in time; the broker serves clients without that",
            wait_ms=JOURNAL_WAIT_MS_MAX,
        )


async def _read_through(
    store: HeldJournals, queue: QueueRef, start: int, goes_on: Callable[[], bool]
) -> None:
    first, end = store.range(queue)
    # A state that the journal does not go on from is not used.
    at = start if first <= start <= end else first
    while at < end and goes_on():
        found = store.read_now(queue, at, _READ_BYTES)
        if found:
            at = read_header(found[-1]).next_offset
        elif found is not None:
            return
        await asyncio.sleep(0 if found else _MOMENT_MS / 1_000)
        # What is left out at the beginning moves it.
        at = max(at, store.range(queue)[0])

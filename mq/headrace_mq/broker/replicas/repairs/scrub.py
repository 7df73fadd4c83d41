"""
Reads the logs of a broker of a group again and again, slowly, so that damage is found while another broker has sound bytes.

    a part of a log ─▶ read and checked in a thread ─▶ damaged? looked at again on the loop ─▶ `Repairs`

The position is kept in memory alone: a start begins a round at the beginning. Used by `replicated_broker`.
"""

import asyncio
from collections.abc import Awaitable, Callable

from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.replicas.repairs.repairs import Repairs
from headrace_mq.errors import DataCorrupt, FormatTooNew
from headrace_mq.store.message_store import RETENTIONS
from headrace_mq.store.replication.mend import Mender, ScrubPart, read_part

__all__ = ["SCRUB_BYTES_PER_S", "SCRUB_PART_BYTES", "SCRUB_REST_S", "Scrub"]

# A log of 100 GiB takes a day. A disk does not notice it, and checking small messages takes some percent of a processor.
SCRUB_BYTES_PER_S = 1 << 20
# Read at a time: a thread checks it in some milliseconds, and requests are served between two of them.
SCRUB_PART_BYTES = 64 << 10
# Rest after a round, and at the start, so that a short log is not read all the time.
SCRUB_REST_S = 600

_log = get_logger(__name__)


class Scrub:
    """The rounds of one broker.

    Args:
        repairs: get what is found.
        rest: waits for so many seconds; tests pass their own.
    """

    def __init__(
        self, repairs: Repairs, *, rest: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._repairs = repairs
        self._rest = rest

    async def run(self) -> None:
        """Makes one round after the other, until it is cancelled."""
        while True:
            await self._rest(SCRUB_REST_S)
            await self.read_all()

    async def read_all(self) -> int:
        """Reads every log from its beginning to its end; returns how many bytes it read."""
        total = 0
        for log in RETENTIONS:
            position = 0
            while (mender := self._repairs.mender) is not None:
                part = mender.scrub_part(log, position, SCRUB_PART_BYTES)
                if part is None:
                    break
                position = await self._read(mender, part)
                size = max(0, position - part.position)
                total += size
                await self._rest(size / SCRUB_BYTES_PER_S)
        return total

    async def _read(self, mender: Mender, part: ScrubPart) -> int:
        """Reads a part; returns where to go on."""
        try:
            found, behind = await asyncio.to_thread(read_part, mender.files, part)
        except (OSError, DataCorrupt, FormatTooNew) as error:
            # It may have been deleted or compacted meanwhile; a file that cannot be read is reported by the next start.
            _log.warning("a part of a log was not scrubbed", log=part.log, reason=str(error))
            return max(part.limit, part.position + 1)
        if found and self._repairs.mender is mender:
            # From where an entry begins, by the log as it is now.
            self._repairs.suspect(part.log, part.position, behind - part.position)
        return behind

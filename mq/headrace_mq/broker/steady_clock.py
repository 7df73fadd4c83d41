"""
The broker's clock: the machine's, and a timeline that tells what of it to believe.

The timeline is kept in `timeline.json`, so that a restart neither forgets what aged nor believes a clock
that was set meanwhile. Where the file is missing or damaged nothing is older than this start.

Used by every part of the broker that asks for an age or a delay; uses the machine's clock, the pure
`store.retention.timeline` and its file. Belongs to the event loop's thread.
"""

import asyncio

from headrace_mq._runtime.clock import Clock
from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.files.metadata_file import MetadataFile
from headrace_mq.errors import DataCorrupt
from headrace_mq.settings import StoreSettings
from headrace_mq.store.retention.timeline import KeptTimeline, Reading, Timeline

__all__ = ["SteadyClock"]

_log = get_logger(__name__)

# Between two looks at one clock, and three tries for that: else the other one is taken to have jumped
# while this process stood still.
_TOGETHER_MS, _TRIES = 50, 3
# How long a jump stays an alarm: people look once a day.
_ALARM_MS = 24 * 3_600_000


class SteadyClock:
    """A `Clock` with a timeline.

    Args:
        clock: the machine's.
        file: keeps the timeline.
        settings: how often, and from which jump on there is an alarm.

    Attributes:
        now_ms: milliseconds since 1970 UTC, as the machine's clock says; jumps when it is set.
        monotonic_ms: milliseconds from some start; never goes back.
        boot_id: names this boot of the machine.
        timeline: what the clock's readings came to.
        is_new: whether nothing was kept of earlier starts.

    Raises:
        FormatTooNew: a newer version wrote the file.
    """

    def __init__(
        self, clock: Clock, file: MetadataFile[KeptTimeline], settings: StoreSettings
    ) -> None:
        self.now_ms, self.monotonic_ms, self.boot_id = (
            clock.now_ms, clock.monotonic_ms, clock.boot_id,
        )  # fmt: skip
        self._file = file
        self._keep_ms = settings.timeline_keep_ms
        kept = self._read()
        self.is_new = kept is None
        self.timeline = Timeline(self._reading(), kept, jump_ms_min=settings.clock_jump_ms_min)
        self._kept_at_ms: int | None = None
        self._tell(0 if kept is None else self.timeline.ahead_ms - kept.ahead_ms)

    def steady_ms(self) -> int:
        """The machine's clock without its jumps."""
        return self.look().wall_ms - self.timeline.ahead_ms

    @property
    def ahead_ms(self) -> int:
        """How far the machine's clock is ahead of the steady one."""
        self.look()
        return self.timeline.ahead_ms

    def assume(self, ahead_ms: int) -> None:
        """Takes over by how much the clock was set, where no timeline was kept that knows better."""
        if self.is_new:
            self.timeline.ahead_ms += ahead_ms

    def look(self) -> Reading:
        """Takes note of the time; returns what the clocks say."""
        reading = self._reading()
        self._tell(self.timeline.observe(reading))
        return reading

    @property
    def alarm(self) -> str:
        """Why you should look at the machine's clock, or an empty text."""
        self.look()
        timeline = self.timeline
        if not timeline.jump_ms or timeline.aged_ms - timeline.jump_at_ms >= _ALARM_MS:
            return ""
        ago_s = (timeline.aged_ms - timeline.jump_at_ms) // 1_000
        by_s = abs(timeline.jump_ms) // 1_000
        what = "set forth, or the machine slept," if timeline.jump_ms > 0 else "set back"
        return (
            f"the clock was {what} by {by_s:,} s, {ago_s:,} s ago; no message became older or younger"
            " by that; see that the machine's clock is right"
        )

    async def keep(self, *, always: bool = False) -> None:
        """Looks at the clock, and writes the timeline where it is time to, or `always`."""
        self.look()
        now_ms = self.monotonic_ms()
        due = self._kept_at_ms is None or now_ms - self._kept_at_ms >= self._keep_ms
        if not (due or always):
            return
        content = self._file.encode(self.timeline.kept())
        self._kept_at_ms = now_ms
        try:
            await asyncio.to_thread(self._file.write_encoded, content)
        except OSError as error:
            _log.warning(
                "the timeline could not be written; after a restart messages count as younger",
                reason=str(error),
            )

    def _read(self) -> KeptTimeline | None:
        try:
            return self._file.read()
        except (DataCorrupt, OSError) as error:
            _log.error(
                "the timeline is lost; the ages of all messages start again at 0", reason=str(error)
            )
            return None

    def _reading(self) -> Reading:
        for _ in range(_TRIES):
            before_ms, wall_ms = self.monotonic_ms(), self.now_ms()
            if self.monotonic_ms() - before_ms <= _TOGETHER_MS:
                break
        return Reading(wall_ms, before_ms, self.boot_id())

    def _tell(self, by_ms: int) -> None:
        if by_ms:
            # What follows is to be known after a crash too.
            self._kept_at_ms = None
            _log.warning("the system clock jumped; the ages of messages do not change", by_ms=by_ms)

"""
What a rebuild is doing, and how long each part of it took.

Used by an engine, which goes from phase to phase; feeds the report and the progress that a person
sees.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace._runtime.clock import Clock

__all__ = ["Phases", "Progress"]

# Called at the start of each phase with its name and the number of things ahead, if known, or 0; and
# within one with what is done and the number of things that are left.
Progress = Callable[[str, int], None]


class Phases:
    """Measures and announces the phases of a rebuild.

    Args:
        clock: measures.
        report: called at the start of each phase.

    Attributes:
        seconds: how long each phase that has ended took.
    """

    def __init__(self, clock: Clock, report: Progress | None) -> None:
        self._clock = clock
        self._report = report
        self._began_ms: dict[str, int] = {}
        self._earlier: dict[str, float] = {}
        self._running: str | None = None
        self.seconds: dict[str, float] = {}

    def begin(self, name: str, ahead: int = 0) -> None:
        """Ends the phase before and begins one."""
        self.end()
        self._running = name
        self._began_ms[name] = self._clock.monotonic_ms()
        if self._report is not None:
            self._report(name, ahead)

    @contextmanager
    def interlude(self, name: str) -> Iterator[None]:
        """Makes what is within a phase of its own; the one that it interrupts goes on, announced once."""
        interrupted, self._running = self._running, None
        if interrupted is not None:
            self._earlier[interrupted] = self._took(interrupted)
        self.begin(name)
        try:
            yield
        finally:
            self.end()
            if interrupted is not None:
                self._running = interrupted
                self._began_ms[interrupted] = self._clock.monotonic_ms()

    def passed(self, what: str, ahead: int) -> None:
        """Announces that a part of the phase under way is done."""
        if self._report is not None:
            self._report(what, ahead)

    def end(self) -> None:
        """Ends the phase under way, if there is one."""
        if self._running is not None:
            self.seconds[self._running] = self._took(self._running)
            self._running = None

    def _took(self, name: str) -> float:
        took_ms = self._clock.monotonic_ms() - self._began_ms[name]
        return self._earlier.pop(name, 0.0) + took_ms / 1_000

    def with_total(self, *outside: str) -> dict[str, float]:
        """Returns the time by phase, and `total`, which leaves the phases out that are named."""
        total = sum(took for name, took in self.seconds.items() if name not in outside)
        return self.seconds | {"total": round(total, 3)}

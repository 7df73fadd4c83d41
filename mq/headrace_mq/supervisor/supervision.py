"""
When a supervised process is started, asked, aborted, killed and left alone.

        WAITING -> STARTING -> SERVING -> ABORTING -> KILLED
           ^           |           |          |          |
           +-----------+-----------+----------+----------+   it ended, unwanted
    STOPPING: the end is wanted.  OVER: nothing is left to do.

Used by `supervisor`, which does what `due` says and reports what happened. Pure: times and chance
are passed in.
"""

from enum import Enum, auto

from headrace_mq.settings import SuperviseSettings

__all__ = ["Ending", "Phase", "Supervision", "SupervisorStep"]

# How the command line ends after a mistake or a missing part of the surroundings: a wrong option, a
# directory in use, files to be repaired. Starting again changes none of it.
REFUSED_STATUS = 2
# A shell's way to tell that a signal ended a process.
_SIGNALLED = 128
_SIGTERM, _SIGINT = 15, 2


class Phase(Enum):
    """Where the process stands."""

    WAITING = auto()
    STARTING = auto()
    SERVING = auto()
    ABORTING = auto()
    KILLED = auto()
    STOPPING = auto()
    OVER = auto()


class SupervisorStep(Enum):
    """What the supervisor has to do now."""

    START = auto()
    ASK = auto()
    TERMINATE = auto()
    ABORT = auto()
    KILL = auto()


class Ending(Enum):
    """Why the process ended."""

    CLEAN = auto()
    REFUSED = auto()
    CRASHED = auto()
    STUCK = auto()


class Supervision:
    """One supervised process, over all its restarts.

    Args:
        settings: all intervals.
        now_ms: monotonic.

    Attributes:
        phase: where the process stands.
        status: the supervisor's own exit status; None until everything is over.
    """

    def __init__(self, settings: SuperviseSettings, now_ms: int) -> None:
        self._settings = settings
        self.phase = Phase.WAITING
        self.status: int | None = None
        self._stopping = False
        self._stuck = False
        self._failures = 0
        # When `due` has something to say; None: only an event will change anything.
        self._due_ms: int | None = now_ms
        self._ready_ms: int | None = None
        # The first question since the last answer.
        self._silent_since_ms: int | None = None

    @property
    def stopping(self) -> bool:
        """Whether the supervisor was told to stop."""
        return self._stopping

    @property
    def due_ms(self) -> int | None:
        """The monotonic time at which `due` should be asked again; None: after the next event."""
        return self._due_ms

    def due(self, now_ms: int) -> SupervisorStep | None:
        """What has to be done now; the answer counts as done, so each step comes once."""
        if self._due_ms is None or now_ms < self._due_ms:
            return None
        late_ms, settings = now_ms - self._due_ms, self._settings
        match self.phase:
            case Phase.WAITING:
                self.phase, self._due_ms = Phase.STARTING, now_ms + settings.start_ms_max
                self._ready_ms = self._silent_since_ms = None
                self._stuck = False
                return SupervisorStep.START
            case Phase.SERVING:
                return self._ask(now_ms, late_ms)
            case Phase.STARTING | Phase.STOPPING:
                return self._abort(now_ms)
            case Phase.ABORTING:
                self.phase, self._due_ms = Phase.KILLED, None
                return SupervisorStep.KILL
            case Phase.KILLED | Phase.OVER:  # nothing is ever due there
                return None

    def _ask(self, now_ms: int, late_ms: int) -> SupervisorStep:
        settings, since = self._settings, self._silent_since_ms
        # After a pause of the supervisor itself the answers are still in its sockets.
        if since is None or late_ms >= settings.ask_every_ms:
            since = self._silent_since_ms = now_ms
        if now_ms - since >= settings.stuck_after_ms:
            return self._abort(now_ms)
        self._due_ms = min(now_ms + settings.ask_every_ms, since + settings.stuck_after_ms)
        return SupervisorStep.ASK

    def _abort(self, now_ms: int) -> SupervisorStep:
        self._stuck = True
        self.phase, self._due_ms = Phase.ABORTING, now_ms + self._settings.abort_ms_max
        return SupervisorStep.ABORT

    def ready(self, now_ms: int) -> None:
        """The process serves."""
        if self.phase is Phase.STARTING:
            self.phase, self._due_ms = Phase.SERVING, now_ms + self._settings.ask_every_ms
            self._ready_ms = now_ms

    def answered(self, now_ms: int) -> None:
        """The process answered a question."""
        if self.phase is Phase.SERVING:
            self._silent_since_ms = None
            self._due_ms = now_ms + self._settings.ask_every_ms

    def stop(self, now_ms: int) -> SupervisorStep | None:
        """Begins to stop; returns what to do about the process at once."""
        self._stopping = True
        match self.phase:
            case Phase.WAITING:
                self._finish(0)
            case Phase.STARTING | Phase.SERVING:
                self.phase, self._due_ms = Phase.STOPPING, now_ms + self._settings.stop_ms_max
                return SupervisorStep.TERMINATE
            case Phase.STOPPING:  # told again: so is the process
                return SupervisorStep.TERMINATE
            case Phase.ABORTING | Phase.KILLED | Phase.OVER:
                pass
        return None

    def ended(self, status: int, now_ms: int, chance: float) -> Ending:
        """The process ended; afterwards it is over, or a start is due after a pause.

        Args:
            status: the exit status, or the negative number of the signal that ended it.
            now_ms: monotonic.
            chance: from 0 to below 1, spreads the pauses of several supervisors.
        """
        ending = self._ending(status)
        served_ms = 0 if self._ready_ms is None else now_ms - self._ready_ms
        if ending is Ending.CLEAN:
            self._finish(0)
        elif self._stopping or ending is Ending.REFUSED:
            self._finish(status if status >= 0 else _SIGNALLED - status)
        else:
            well = served_ms >= self._settings.well_after_ms
            self._failures = 1 if well else self._failures + 1
            self.phase, self._due_ms = Phase.WAITING, now_ms + self._pause_ms(chance)
        return ending

    def _ending(self, status: int) -> Ending:
        if self._stuck:
            return Ending.STUCK
        # A process that gets a signal before it listens for signals is ended by them.
        if status == 0 or (self._stopping and status in {-_SIGTERM, -_SIGINT}):
            return Ending.CLEAN
        # One that has served was started rightly: what it ends with later is a failure.
        if status == REFUSED_STATUS and self._ready_ms is None:
            return Ending.REFUSED
        return Ending.CRASHED

    def _pause_ms(self, chance: float) -> int:
        least, most = self._settings.pause_ms_min, self._settings.pause_ms_max
        # The exponent is bounded, so that years of failures do not count to astronomic numbers.
        cap = min(most, least << min(self._failures, most.bit_length()))
        return max(least, round(cap * (1 + chance) / 2))

    def _finish(self, status: int) -> None:
        self.phase, self._due_ms, self.status = Phase.OVER, None, status

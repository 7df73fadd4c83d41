"""
Keeps a broker running: starts it, asks whether it is alive, and starts it again.

Used by the command line; follows the pure rules in `supervision`. It knows neither the broker's options
nor its files, and runs no part of a broker in its own process.
"""

import asyncio
import random
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headrace_mq._net.address import parse_address
from headrace_mq._net.link import hello_for
from headrace_mq._net.server import SUPERVISOR
from headrace_mq._runtime.clock import Clock, SystemClock
from headrace_mq._runtime.log import get_logger
from headrace_mq.protocol.bodies import encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import encode_frame
from headrace_mq.settings import SuperviseSettings
from headrace_mq.supervisor.child import Child
from headrace_mq.supervisor.crash_report import CrashReport, how_it_ended, keep
from headrace_mq.supervisor.supervision import Ending, Supervision, SupervisorStep

__all__ = ["Supervised", "is_answered", "supervise"]

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervised:
    """What is supervised.

    Attributes:
        command: makes the command line; takes the port to listen on, None for the one configured.
        ready: what its line of readiness on standard output begins with; the address follows.
        reports: folder of the crash reports; made when the first one is written.
        versions: of what runs, for the reports.
        renews: whether it takes new certificates after SIGHUP; else that signal ends it like others.
    """

    command: Callable[[int | None], tuple[str, ...]]
    ready: str
    reports: Path
    versions: Mapping[str, str]
    renews: bool = False


async def supervise(
    supervised: Supervised,
    settings: SuperviseSettings,
    *,
    said: Callable[[str], None],
    clock: Clock | None = None,
) -> int:
    """Runs a broker until this process gets SIGTERM or SIGINT, or the broker ends for good.

    SIGHUP goes on to a broker that renews its certificates.

    Args:
        supervised: what to run.
        settings: all intervals and bounds.
        said: called with each line of the broker's standard output.
        clock: the time.

    Returns:
        The exit status for this process: the broker's own.

    Raises:
        OSError: the system could not start the process the first time.
    """
    supervisor = _Supervisor(supervised, settings, said=said, clock=clock or SystemClock())
    loop = asyncio.get_running_loop()
    handlers = {signal.SIGTERM: supervisor.stop, signal.SIGINT: supervisor.stop}
    if supervised.renews:
        handlers[signal.SIGHUP] = supervisor.renew
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        return await supervisor.run()
    finally:
        await supervisor.aclose()
        for number in handlers:
            loop.remove_signal_handler(number)


class _Supervisor:
    def __init__(
        self,
        supervised: Supervised,
        settings: SuperviseSettings,
        *,
        said: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._supervised, self._settings = supervised, settings
        self._said, self._clock = said, clock
        self._supervision = Supervision(settings, clock.monotonic_ms())
        self._news = asyncio.Event()
        self._child: Child | None = None
        self._command: tuple[str, ...] = ()
        self._started_ms = 0
        self._address = ""
        # Before that the signal would end it: it takes signals from its first line of readiness on.
        self._is_ready = False
        self._renew_due = False
        self._end: asyncio.Task[int] | None = None
        self._question: asyncio.Task[None] | None = None

    async def run(self) -> int:
        while (status := self._supervision.status) is None:
            if self._end is not None and self._end.done():
                await self._take_end(self._end.result())
            elif step := self._supervision.due(self._clock.monotonic_ms()):
                await self._do(step)
            else:
                await self._wait()
        return status

    async def aclose(self) -> None:
        self._drop_question()
        if self._child is not None and self._end is not None:  # only after a failure of ours
            self._child.signal(signal.SIGKILL)
            await self._end

    def stop(self) -> None:
        step = self._supervision.stop(self._clock.monotonic_ms())
        if step is SupervisorStep.TERMINATE and self._child is not None:
            self._child.signal(signal.SIGTERM)
        self._news.set()

    def renew(self) -> None:
        """Has the broker read its certificates again, once it can."""
        self._renew_due = True
        self._renew_if_ready()

    def _renew_if_ready(self) -> None:
        if self._renew_due and self._is_ready and self._child is not None:
            self._renew_due = False
            self._child.signal(signal.SIGHUP)

    async def _wait(self) -> None:
        due_ms = self._supervision.due_ms
        wait_s = None if due_ms is None else (due_ms - self._clock.monotonic_ms()) / 1_000
        try:
            await asyncio.wait_for(self._news.wait(), wait_s)
        except TimeoutError:
            return
        self._news.clear()

    async def _do(self, step: SupervisorStep) -> None:
        match step:
            case SupervisorStep.START:
                await self._start()
            case SupervisorStep.ASK:
                if self._question is None or self._question.done():
                    self._question = asyncio.create_task(self._ask(), name="question")
            case SupervisorStep.TERMINATE | SupervisorStep.ABORT | SupervisorStep.KILL:
                self._signal(step)

    def _signal(self, step: SupervisorStep) -> None:
        number = {
            SupervisorStep.TERMINATE: signal.SIGTERM,
            # Has every stack written to standard error first.
            SupervisorStep.ABORT: signal.SIGABRT,
            SupervisorStep.KILL: signal.SIGKILL,
        }[step]
        if self._child is not None:
            if step is SupervisorStep.ABORT:
                _log.error(
                    "the broker does not answer; the supervisor kills it", pid=self._child.pid
                )
            self._child.signal(number)

    async def _start(self) -> None:
        # Clients know the address: a port that the system chose is kept over restarts.
        port = int(self._address.rpartition(":")[2]) if self._address else None
        self._is_ready = False
        self._command = self._supervised.command(port)
        self._started_ms = self._clock.monotonic_ms()
        try:
            self._child = await Child.start(
                self._command, stderr_bytes_max=self._settings.stderr_bytes_max, said=self._hear
            )
        except OSError as error:
            if not self._address:
                raise
            # The machine may be short of memory or processes for a while.
            _log.error("the broker's process could not be started; see the error", error=str(error))
            self._supervision.ended(1, self._clock.monotonic_ms(), _chance())
            return
        _log.info("the broker is being started", pid=self._child.pid)
        self._end = asyncio.create_task(self._child.ended(), name="end of the broker")
        self._end.add_done_callback(lambda _: self._news.set())
        if self._supervision.stopping:  # told while the process came into being
            self._child.signal(signal.SIGTERM)

    def _hear(self, line: str) -> None:
        if line.startswith(self._supervised.ready):
            self._address = line.removeprefix(self._supervised.ready).strip()
            self._supervision.ready(self._clock.monotonic_ms())
            self._is_ready = True
            self._renew_if_ready()
        self._news.set()
        self._said(line)

    async def _ask(self) -> None:
        """Asks once; any answer shows that the broker is alive."""
        if not await is_answered(self._address, timeout_ms=self._settings.stuck_after_ms):
            _log.warning("the broker did not answer", address=self._address)
            return
        self._supervision.answered(self._clock.monotonic_ms())
        self._news.set()

    async def _take_end(self, status: int) -> None:
        child = self._child
        assert child is not None
        self._drop_question()
        self._child = self._end = None
        now_ms = self._clock.monotonic_ms()
        ending = self._supervision.ended(status, now_ms, _chance())
        if ending is Ending.REFUSED:
            _log.error(
                "the broker refuses to start; correct what its output says, then start it again"
            )
        if ending not in {Ending.CRASHED, Ending.STUCK}:
            return
        stuck = ending is Ending.STUCK
        report = CrashReport(
            reason="it did not answer, or did not end, in time" if stuck else "it ended by itself",
            status=status,
            ended_at_ms=self._clock.now_ms(),
            ran_ms=now_ms - self._started_ms,
            command=self._command,
            versions=self._supervised.versions,
            last_lines=child.last_lines,
        )
        due_ms = self._supervision.due_ms
        _log.error(
            "the broker ended and is started again" if due_ms is not None else "the broker ended",
            ended=how_it_ended(status),
            report=await self._keep(report),
            pause_ms=None if due_ms is None else due_ms - now_ms,
        )

    async def _keep(self, report: CrashReport) -> str | None:
        write = partial(
            keep, report, self._supervised.reports, reports_max=self._settings.reports_max
        )
        try:
            return str(await asyncio.to_thread(write))
        except OSError as error:  # a full disk must not keep the broker from its restart
            _log.error("the crash report could not be written", error=str(error))
            return None

    def _drop_question(self) -> None:
        if self._question is not None:
            self._question.cancel()
            self._question = None


def _chance() -> float:
    return random.random()  # noqa: S311 - spreads pauses, guards nothing


async def is_answered(address: str, *, timeout_ms: int) -> bool:
    """Asks a broker whether its event loop still turns; False: no answer in time, or no listener.

    Any answer will do: a refusal too. A broker that has no place for one more connection works, and
    its clients would lose their connections if it were ended.

    Args:
        address: its `host:port`.
        timeout_ms: how long to wait for an answer, in milliseconds.
    """
    try:
        async with asyncio.timeout(timeout_ms / 1_000):
            reader, writer = await asyncio.open_connection(*parse_address(address))
            try:
                writer.write(encode_frame(RequestCode.HELLO, 1, encode(hello_for(SUPERVISOR))))
                await reader.read(1)
            except ConnectionError:
                # The kernel alone accepts; only the process ends a connection.
                return True
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError):
        return False
    return True

"""
Watches brokers and services: reads their figures, evaluates the rules, and tells receivers of each change.

    targets ─▶ history ─▶ rules ─▶ board ─▶ outbox of each receiver ─▶ webhook, mail
                                     └────▶ state.json ─▶ headrace alarms list, console

A receiver that hangs holds up neither the others nor the next look. Used by `headrace alarms watch`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from headrace._runtime.clock import Clock, SystemClock
from headrace._runtime.log import get_logger
from headrace._runtime.web.opener import failure
from headrace.alarms.board import AlarmBoard, RaisedAlarm
from headrace.alarms.calls import BoundedCalls
from headrace.alarms.folder import AlarmFolder, ReceiverState, Silence, TargetState, WatcherState
from headrace.alarms.outbox import AlarmMessage, AlarmOutbox
from headrace.alarms.promql.evaluate import Expression, Vector
from headrace.alarms.promql.history import Figure, FigureHistory
from headrace.alarms.receivers import FAILURES, Receiver, receivers_of
from headrace.alarms.rules.rule import AlarmRule
from headrace.alarms.rules.summary import filled
from headrace.alarms.rules.table import RULES
from headrace.alarms.settings import AlarmSettings, AlarmTarget
from headrace.alarms.targets import ask_targets, read_target
from headrace.errors import ExtraMissing, HeadraceError

__all__ = ["AlarmWatcher", "send_test"]

log = get_logger(__name__)

# A mail is several questions and answers: a message may take this many times `timeout_ms`.
_TIMEOUTS_MAX: Final = 6
# A person waits for the result of a test.
_TEST_S_MAX: Final = 60.0
_TEST_LABELS: Final = {"instance": "test", "group": "test", "topic": "test", "replica": "test"}


class AlarmWatcher:
    """Watches what the settings name.

    Args:
        settings: what, how often, and who gets messages.
        read: gets the figures of a target; may block.
        receivers: those who get messages; None: those of the settings.
        clock: tells the time.
        rules: by name.
    """

    def __init__(
        self,
        settings: AlarmSettings,
        *,
        read: Callable[[AlarmTarget], list[Figure]] | None = None,
        receivers: Sequence[Receiver] | None = None,
        clock: Clock | None = None,
        rules: Mapping[str, AlarmRule] = RULES,
    ) -> None:
        self._settings = settings
        self._read = read or self._answered
        self._clock = clock or SystemClock()
        self._folder = AlarmFolder(settings.folder)
        self._rules = {name: Expression(rule.expression) for name, rule in rules.items()}
        self._over = {name: Expression(rule.over) for name, rule in rules.items() if rule.over}
        self._reach_s = {
            name: max(one.reach_s.values(), default=0.0) for name, one in self._rules.items()
        }
        reach: dict[str, float] = {}
        for one in (*self._rules.values(), *self._over.values()):
            for name, wanted in one.reach_s.items():
                reach[name] = max(wanted, reach.get(name, 0.0))
        self._history = FigureHistory(reach, series_max=settings.series_max)
        kept = self._folder.state()
        self._board = AlarmBoard(rules, kept.alarms, settings.alarms_max)
        self._receivers = list(receivers_of(settings) if receivers is None else receivers)
        self._outboxes = {
            one.name: AlarmOutbox(
                kept.receivers.get(one.name, ReceiverState()).heard,
                repeat_s=settings.repeat_ms / 1_000,
                pause_s=settings.every_ms / 1_000,
                pause_s_max=settings.retry_ms_max / 1_000,
            )
            for one in self._receivers
        }
        self._jobs = {name: rule.jobs for name, rule in rules.items()}
        self._calls = BoundedCalls()
        self._silences: list[Silence] = []
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._targets: tuple[TargetState, ...] = ()
        self._begun_s = 0.0

    async def run(self) -> None:
        """Watches until it is cancelled.

        Raises:
            HeadraceError: another process watches with the same folder.
            ExtraMissing: the package that reads figures is not installed.
        """
        with self._folder.watching():
            try:
                while True:
                    try:
                        await self.look()
                    except ExtraMissing:
                        raise
                    except Exception:  # a bug must not end what would tell of other things
                        log.exception("a look at the alarms failed; the next one follows")
                    await asyncio.sleep(self._settings.every_ms / 1_000)
            finally:
                for task in self._sending.values():
                    task.cancel()
                await asyncio.gather(*self._sending.values(), return_exceptions=True)

    async def look(self) -> None:
        """Reads all figures once, and begins to send what is due."""
        timeout_s = self._settings.timeout_ms / 1_000
        answers = await ask_targets(self._settings.target, self._read, self._calls, timeout_s)
        now_s = self._now_s()
        self._begun_s = self._begun_s or now_s
        left_out = 0
        for target, figures, _ in answers:
            up = Figure("up", {}, float(figures is not None))
            self._history.add(now_s, target.job, target.instance, [up, *(figures or ())])
            left_out += self._history.left_out
        self._targets = tuple(
            TargetState(target.job, target.instance, figures is not None, sentence)
            for target, figures, sentence in answers
        )
        found = self._found(self._rules, now_s)
        silent = [one for one in self._targets if not one.up]
        away = {one.job for one in silent}
        self._board.update(
            now_s,
            found,
            silent={one.instance for one in silent},
            partial={name for name, jobs in self._jobs.items() if jobs & away},
            over=self._found(self._over, now_s),
            unknown=self._rules.keys() - found.keys(),
            reaching={
                name for name, reach in self._reach_s.items() if reach > now_s - self._begun_s
            },
        )
        if left_out or self._board.left_out:
            log.warning("alarms leave something out", series=left_out, alarms=self._board.left_out)
        self._begin_to_send(now_s)
        self._keep()

    async def settle(self) -> None:
        """Waits until all messages that are under way were taken or failed."""
        await asyncio.gather(*self._sending.values())

    def _found(self, rules: Mapping[str, Expression], now_s: float) -> dict[str, Vector]:
        """The series for which each expression holds; one that fails is left out."""
        found = {}
        for name, rule in rules.items():
            try:
                found[name] = rule.at(self._history, now_s)
            except Exception:  # a bug of one rule must not end the others
                log.exception("a rule could not be evaluated", rule=name)
        return found

    def _begin_to_send(self, now_s: float) -> None:
        try:
            self._silences = self._folder.silences(now_s)
        except HeadraceError as error:
            # Those that were read last go on: neither noise nor an end of all alarms helps.
            log.warning("silences cannot be read", reason=str(error))
        silences = [one for one in self._silences if one.until_s > now_s]
        firing = self._board.firing

        def silenced(alarm: RaisedAlarm) -> bool:
            return any(one.covers(alarm) for one in silences)

        for one in self._receivers:
            task = self._sending.get(one.name)
            if task is None or task.done():
                due = self._outboxes[one.name].due(now_s, firing, silenced)
                if due:
                    sent = self._send(one, due[: self._settings.messages_max])
                    self._sending[one.name] = asyncio.create_task(sent, name=f"alarms: {one.name}")

    async def _send(self, receiver: Receiver, messages: Sequence[AlarmMessage]) -> None:
        outbox = self._outboxes[receiver.name]
        bound_s = _TIMEOUTS_MAX * self._settings.timeout_ms / 1_000
        for message in messages:
            reason = await _sent(self._calls, receiver, message, bound_s)
            if reason:
                outbox.failed(reason, self._now_s())
                log.warning("an alarm was not taken", receiver=receiver.name, reason=reason, failures=outbox.failures)  # fmt: skip
                break
            outbox.took(message, self._now_s())
            log.info("an alarm was sent", receiver=receiver.name, alarm=message.alarm.key, state=message.state)  # fmt: skip
        self._keep()

    def _answered(self, target: AlarmTarget) -> list[Figure]:
        return read_target(
            target,
            timeout_s=self._settings.timeout_ms / 1_000,
            bytes_max=self._settings.body_bytes_max,
        )

    def _keep(self) -> None:
        state = WatcherState(
            looked_s=self._now_s(),
            every_s=self._settings.every_ms / 1_000,
            alarms=tuple(self._board.alarms),
            targets=self._targets,
            receivers={
                name: ReceiverState(one.heard, one.failures, one.sentence)
                for name, one in self._outboxes.items()
            },
        )
        try:
            self._folder.keep(state)
        except (OSError, HeadraceError) as error:
            # A full disk must not end what would tell of it.
            log.warning("the state of alarms cannot be written", reason=str(error))

    def _now_s(self) -> float:
        return self._clock.now().timestamp()


async def send_test(rule: AlarmRule, receivers: Sequence[Receiver], now_s: float) -> dict[str, str]:
    """Sends a test of a rule to all receivers, as if it fired.

    Args:
        rule: what to tell of.
        receivers: those who get messages.
        now_s: the time.

    Returns:
        By the receiver's name, why it did not take it; empty: it did.
    """
    summary = f"This is a test: {filled(rule.summary, _TEST_LABELS, 0.0)}"
    alarm = RaisedAlarm(rule.name, rule.severity, {"instance": "test"}, 0.0, summary, now_s, now_s)
    message = AlarmMessage("test", alarm)

    calls = BoundedCalls()
    answers = await asyncio.gather(
        *(_sent(calls, each, message, _TEST_S_MAX) for each in receivers)
    )
    return {one.name: answer for one, answer in zip(receivers, answers, strict=True)}


async def _sent(
    calls: BoundedCalls, receiver: Receiver, message: AlarmMessage, bound_s: float
) -> str:
    """Sends a message; returns why it was not taken, or nothing."""
    try:
        await calls.call(
            f"send to {receiver.name}", partial(receiver.send, message), bound_s=bound_s
        )
    except FAILURES as error:
        return failure(error)
    except Exception:  # a bug with one receiver must not end the watcher
        log.exception("a message could not be sent", receiver=receiver.name)
        return "it could not be sent; the log says why"
    return ""

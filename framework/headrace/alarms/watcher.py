"""
Watches brokers and services: reads their figures, evaluates the rules, and tells receivers of each change.

    targets ─▶ history ─▶ rules ─▶ board ─▶ outbox of each receiver ─▶ webhook, mail
                                     └────▶ state.json ─▶ headrace alarms list, console

A receiver that hangs holds up neither the others nor the next look. Used by `headrace alarms watch`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from headrace._runtime.clock import Clock, SystemClock
from headrace._runtime.log import get_logger
from headrace.alarms.board import AlarmBoard, RaisedAlarm
from headrace.alarms.folder import AlarmFolder, ReceiverState, TargetState, WatcherState
from headrace.alarms.outbox import AlarmMessage, AlarmOutbox
from headrace.alarms.promql.evaluate import Expression
from headrace.alarms.promql.history import Figure, FigureHistory
from headrace.alarms.receivers import FAILURES, Receiver, receivers_of
from headrace.alarms.rules.rule import AlarmRule
from headrace.alarms.rules.summary import filled
from headrace.alarms.rules.table import RULES
from headrace.alarms.settings import AlarmSettings, AlarmTarget
from headrace.alarms.targets import ask_targets, read_target

__all__ = ["AlarmWatcher", "send_test"]

log = get_logger(__name__)

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
        self._reach_s = {
            name: max(one.reach_s.values(), default=0.0) for name, one in self._rules.items()
        }
        reach: dict[str, float] = {}
        for one in self._rules.values():
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
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._targets: tuple[TargetState, ...] = ()
        self._begun_s = 0.0

    async def run(self) -> None:
        """Watches until it is cancelled.

        Raises:
            HeadraceError: another process watches with the same folder.
        """
        with self._folder.watching():
            try:
                while True:
                    await self.look()
                    await asyncio.sleep(self._settings.every_ms / 1_000)
            finally:
                for task in self._sending.values():
                    task.cancel()
                await asyncio.gather(*self._sending.values(), return_exceptions=True)

    async def look(self) -> None:
        """Reads all figures once, and begins to send what is due."""
        answers = await ask_targets(self._settings.target, self._read)
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
        self._board.update(
            now_s,
            {name: rule.at(self._history, now_s) for name, rule in self._rules.items()},
            silent={one.instance for one in self._targets if not one.up},
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

    def _begin_to_send(self, now_s: float) -> None:
        silences = self._folder.silences(now_s)
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
        for message in messages:
            try:
                await asyncio.to_thread(receiver.send, message)
            except FAILURES as error:
                outbox.failed(_said(error), self._now_s())
                log.warning("an alarm was not taken", receiver=receiver.name, reason=_said(error), failures=outbox.failures)  # fmt: skip
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
        except OSError as error:
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

    async def sent(receiver: Receiver) -> str:
        try:
            await asyncio.to_thread(receiver.send, message)
        except FAILURES as error:
            return _said(error)
        return ""

    answers = await asyncio.gather(*(sent(each) for each in receivers))
    return {one.name: answer for one, answer in zip(receivers, answers, strict=True)}


def _said(error: BaseException) -> str:
    # An error of HTTP may hold the address, which may hold a secret; its text alone does not.
    return str(error) or type(error).__name__

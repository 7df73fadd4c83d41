"""
Asks producers what became of transactions that stay undecided, and gives up after the last question.

A question counts when a producer that waited for it is given it, so a group without producers
is not asked, and nothing of it is given up.

Used by `coordinator` once in a turn; uses the state in `undecided`, and `checkers`.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from headrace_mq.broker.journal.batches import NotYet
from headrace_mq.broker.transactions.checkers import Checkers
from headrace_mq.broker.transactions.journal import Checked
from headrace_mq.broker.transactions.undecided import Pending, Transactions
from headrace_mq.protocol.transactions import Bundle, Check, TakeChecks
from headrace_mq.settings import BrokerSettings

__all__ = ["TransactionChecks"]

S = TypeVar("S")

Answer = Callable[[list[Check]], None]

# Bundles that become due, or are looked at for who may be asked, in one turn: a millisecond or two.
CHECKED_MAX = 1_000


class TransactionChecks(Generic[S]):
    """The questions of one broker; `S` are the connections of those who are asked.

    Args:
        state: what is undecided.
        settings: when transactions are checked, and how often.
        bundle: reads a bundle, None for one that is lost; raises NotYet where the disk is asked.

    Attributes:
        given_up: bundles whose undecided transactions are to be kept aside, by number.
        on_its_way: whether a bundle to be asked for comes from the disk.
    """

    def __init__(
        self,
        state: Transactions,
        settings: BrokerSettings,
        *,
        bundle: Callable[[int], Bundle | None],
    ) -> None:
        self._state = state
        self._settings = settings
        self._bundle = bundle
        self._checkers: Checkers[S, list[Check]] = Checkers()
        # Bundles to be asked for, by group.
        self._due: dict[str, dict[int, None]] = {}
        self.given_up: dict[int, None] = {}
        self.on_its_way = False
        self._looked_at_ms: int | None = None

    def wait(self, session: S, request: TakeChecks, answer: Answer) -> None:
        """Calls `answer` once, when there are transactions to be asked for, or with none."""
        replaced = self._checkers.wait(session, request.group, request.client_id, answer)
        if replaced is not None:
            replaced([])

    def stop_waiting(self, session: S, answer: Answer) -> None:
        """Answers who has waited for checks long enough."""
        if self._checkers.is_waiting(session, answer):
            self._checkers.take(session)
            answer([])

    def forget(self, session: S) -> None:
        """A connection ended: its producers are not asked any more."""
        self._checkers.forget(session)

    def give_up_below(self, number: int) -> None:
        """Gives up bundles that stand below a journal offset, a bounded number at a time."""
        for pending in self._state.numbered_below(number, CHECKED_MAX):
            self.given_up[pending.number] = None

    def step(self, now_ms: int) -> list[Checked]:
        """Asks for what is due and gives up what was asked for too often; returns what to note."""
        self.on_its_way = False
        if self._looked_at_ms is None or now_ms < self._looked_at_ms:
            # What a clock stored that was set before this start must not be delayed by as much.
            settings = self._settings
            longest_ms = max(settings.transaction_timeout_ms, settings.transaction_check_ms)
            self._state.bring_forward(now_ms + longest_ms)
        self._looked_at_ms = now_ms
        for pending in self._state.due(now_ms, CHECKED_MAX):
            if pending.checks >= self._settings.transaction_checks_max:
                self.given_up[pending.number] = None
            else:
                self._due.setdefault(pending.group, {})[pending.number] = None
        asked: dict[S, list[Check]] = {}
        events: list[Checked] = []
        for group in [group for group in self._due if self._checkers.is_waited_in(group)]:
            self._ask_group(self._due[group], now_ms, asked, events)
            if not self._due[group]:
                del self._due[group]
        for session, checks in asked.items():
            answer = self._checkers.take(session)
            assert answer is not None
            answer(checks)
        return events

    def _ask_group(
        self,
        due: dict[int, None],
        now_ms: int,
        asked: dict[S, list[Check]],
        events: list[Checked],
    ) -> None:
        for number in list(due)[:CHECKED_MAX]:
            del due[number]
            pending = self._state.find(number)
            if pending is not None and not self._ask(pending, now_ms, asked, events):
                # Behind those that were not looked at.
                due[number] = None

    def _ask(
        self, pending: Pending, now_ms: int, asked: dict[S, list[Check]], events: list[Checked]
    ) -> bool:
        """Chooses the producer that is asked about a bundle; False: there is none now."""
        again_ms = self._settings.transaction_check_ms
        is_silent = now_ms - pending.check_at_ms >= again_ms
        session = self._checkers.choose(pending.group, pending.client_id, anybody=is_silent)
        if session is None:
            return False
        try:
            bundle = self._bundle(pending.number)
        except NotYet:
            self.on_its_way = True
            return False
        if bundle is None:
            self.given_up[pending.number] = None
            return True
        pending.checks += 1
        asked.setdefault(session, []).extend(
            Check(pending.number, at, bundle.ids[at], pending.checks, pending.begun_at_ms)
            for at in pending.undecided
        )
        self._state.check_again(pending, now_ms + again_ms)
        events.append(Checked(pending.number, pending.checks, pending.check_at_ms))
        return True

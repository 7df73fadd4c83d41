"""
Checks transactions that stay undecided: asks producers, and gives up after the last check.

A check counts only when a waiting producer gets it. So without producers, a group's transactions are not
checked and not given up.

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

# Bundles handled in one turn: a millisecond or two.
CHECKED_MAX = 1_000


class TransactionChecks(Generic[S]):
    """The checks of one broker; `S` is the type of a producer's connection.

    Args:
        state: of the transactions.
        settings: when transactions are checked, and how often.
        bundle: reads a bundle; None if it is lost; raises NotYet while the disk is read.

    Attributes:
        given_up: bundles whose undecided transactions become dead letters, by number.
        on_its_way: whether a bundle to check is being read from the disk.
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
        # Bundles to check, by group.
        self._due: dict[str, dict[int, None]] = {}
        self.given_up: dict[int, None] = {}
        self.on_its_way = False
        self._looked_at_ms: int | None = None

    def wait(self, session: S, request: TakeChecks, answer: Answer) -> None:
        """Calls `answer` once: when there are transactions to check, or with none."""
        replaced = self._checkers.wait(session, request.group, request.client_id, answer)
        if replaced is not None:
            replaced([])

    def stop_waiting(self, session: S, answer: Answer) -> None:
        """Answers a request for checks that has waited long enough."""
        if self._checkers.is_waiting(session, answer):
            self._checkers.take(session)
            answer([])

    def forget(self, session: S) -> None:
        """Drops the producers of a connection that ended."""
        self._checkers.forget(session)

    def give_up_below(self, number: int) -> None:
        """Gives up bundles below a journal offset, a bounded number at a time."""
        for pending in self._state.numbered_below(number, CHECKED_MAX):
            self.given_up[pending.number] = None

    def step(self, now_ms: int) -> list[Checked]:
        """Sends due checks, and gives up bundles after their last check; returns the records to append."""
        self.on_its_way = False
        if self._looked_at_ms is None or now_ms < self._looked_at_ms:
            # If the clock was wrong before this start, its due times may be too late: limit them.
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
                # Move it behind the bundles that were not handled.
                due[number] = None

    def _ask(
        self, pending: Pending, now_ms: int, asked: dict[S, list[Check]], events: list[Checked]
    ) -> bool:
        """Sends the check of a bundle to a producer; returns False if there is none now."""
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

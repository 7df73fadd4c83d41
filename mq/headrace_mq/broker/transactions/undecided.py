"""
The state of all transactions, as the journal's records give it: the undecided ones, and when to check them. PURE.

The journal alone defines the state: its records, applied in order from the first one or from a saved state, give
the same result. A bundle stays here until all its transactions are decided. After that its outcomes stay for a
while, to answer a repeated decision.

Used by `coordinator`, which passes records and the time in. It must not know the clock, messages or files.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import assert_never

import msgspec

from headrace_mq.broker.transactions.journal import (
    BundleDecision,
    Checked,
    Decided,
    Done,
    Event,
    Prepared,
)
from headrace_mq.protocol.transactions import Outcome

__all__ = ["OUTCOMES_MAX", "KeptTransactions", "Pending", "Transactions"]

# Outcomes to remember, a byte each. A client that lost its connection has far fewer; all others can handle the
# answer "forgotten".
OUTCOMES_MAX = 500_000


class Pending(msgspec.Struct, gc=False):
    """A bundle with undecided transactions; `outcomes` holds an Outcome for each of them."""

    number: int
    group: str
    client_id: str
    begun_at_ms: int
    check_at_ms: int
    outcomes: bytearray
    checks: int = 0

    @property
    def undecided(self) -> list[int]:
        """Returns the places of its undecided transactions."""
        return [place for place, outcome in enumerate(self.outcomes) if not outcome]


class KeptTransactions(msgspec.Struct, frozen=True):
    """The content of `transactions.json`: the state after all journal records below `read_to`."""

    read_to: int
    pending: list[Pending]
    ended: list[tuple[int, bytes]]
    unfinished: Decided | None


class Transactions:
    """The state of one broker's transactions.

    Args:
        first_check_ms: the time from storing a transaction to its first check.

    Attributes:
        read_to: all records below this journal offset are applied.
        unfinished: the last decisions, until a `Done` follows them.
        undecided: the number of undecided transactions.
        ahead_ms: how far the append times of the next records are ahead of the steady clock, which
            decides when checks are due.
    """

    def __init__(self, first_check_ms: int) -> None:
        self._first_check_ms = first_check_ms
        # By number, so in the order of the journal.
        self._pending: dict[int, Pending] = {}
        self._ended: OrderedDict[int, bytes] = OrderedDict()
        self._outcomes = 0
        # (time, number); entries of decided bundles, and outdated entries, are skipped.
        self._checks: list[tuple[int, int]] = []
        self.read_to = 0
        self.unfinished: Decided | None = None
        self.undecided = 0
        self.ahead_ms = 0

    def restore(self, kept: KeptTransactions) -> None:
        """Restores a state that `kept` returned."""
        for pending in kept.pending:
            self._pending[pending.number] = pending
            self.undecided += len(pending.undecided)
        self._checks = [(pending.check_at_ms, pending.number) for pending in kept.pending]
        heapify(self._checks)
        for number, outcomes in kept.ended:
            self._remember(number, outcomes)
        self.read_to, self.unfinished = kept.read_to, kept.unfinished

    def kept(self) -> KeptTransactions:
        """Returns the state as a value; later records do not change it."""
        pending = [
            Pending(
                p.number,
                p.group,
                p.client_id,
                p.begun_at_ms,
                p.check_at_ms,
                p.outcomes[:],
                p.checks,
            )
            for p in self._pending.values()
        ]
        return KeptTransactions(self.read_to, pending, list(self._ended.items()), self.unfinished)

    def __iter__(self) -> Iterator[Pending]:
        return iter(self._pending.values())

    def find(self, number: int) -> Pending | None:
        """Returns a bundle with undecided transactions by its number, or None."""
        return self._pending.get(number)

    def outcomes(self, number: int) -> bytes | bytearray | None:
        """Returns an Outcome for each transaction of a bundle, or None if it is forgotten."""
        pending = self._pending.get(number)
        return self._ended.get(number) if pending is None else pending.outcomes

    def lowest_offset(self) -> int | None:
        """Returns the lowest journal offset that is still needed, or None."""
        numbers = [part.number for part in self.unfinished.parts] if self.unfinished else []
        return min(
            [*numbers, next(iter(self._pending))] if self._pending else numbers, default=None
        )

    def numbered_below(self, number: int, limit: int) -> list[Pending]:
        """Returns up to `limit` bundles below a journal offset."""
        found: list[Pending] = []
        for pending in self._pending.values():
            if pending.number >= number or len(found) == limit:
                break
            found.append(pending)
        return found

    def next_check_ms(self) -> int | None:
        """Returns the time of the next check, or None."""
        while self._checks and not self._counts(*self._checks[0]):
            heappop(self._checks)
        return self._checks[0][0] if self._checks else None

    def due(self, now_ms: int, limit: int) -> list[Pending]:
        """Takes up to `limit` bundles that are due for a check, the oldest first."""
        found: list[Pending] = []
        while len(found) < limit:
            at_ms = self.next_check_ms()
            if at_ms is None or at_ms > now_ms:
                break
            found.append(self._pending[heappop(self._checks)[1]])
        return found

    def check_again(self, pending: Pending, at_ms: int) -> None:
        """Sets the next check of a bundle that `due` returned."""
        pending.check_at_ms = at_ms
        heappush(self._checks, (at_ms, pending.number))

    def bring_forward(self, latest_ms: int) -> None:
        """Moves later checks forward to `latest_ms`, after the clock was wrong."""
        for pending in [p for p in self._pending.values() if p.check_at_ms > latest_ms]:
            self.check_again(pending, latest_ms)

    def apply(self, event: Event) -> None:
        """Applies one record of the journal; the caller sets `read_to`."""
        match event:
            case Prepared():
                self._prepare(event)
            case Decided():
                self._decide(event.decisions)
                # Only one `decided` is open at a time, so the one before is complete.
                self.unfinished = event
            case Done():
                self.unfinished = None
            case Checked(number, checks, check_at_ms):
                pending = self._pending.get(number)
                if pending is not None and checks > pending.checks:
                    pending.checks = checks
                    self.check_again(pending, check_at_ms)
            case _:
                assert_never(event)

    def _prepare(self, event: Prepared) -> None:
        check_at_ms = event.begun_at_ms - self.ahead_ms + self._first_check_ms
        self._pending[event.number] = pending = Pending(
            event.number, event.group, event.client_id, event.begun_at_ms, check_at_ms,
            bytearray(event.count),
        )  # fmt: skip
        self.check_again(pending, check_at_ms)
        self.undecided += event.count

    def _decide(self, decisions: Iterable[BundleDecision]) -> None:
        for decision in decisions:
            pending = self._pending.get(decision.number)
            if pending is None:
                continue
            for places, outcome in (
                (decision.commit, Outcome.COMMITTED),
                (decision.roll_back, Outcome.ROLLED_BACK),
                (decision.keep_aside, Outcome.KEPT_ASIDE),
            ):
                for place in places:
                    pending.outcomes[place] = outcome
                self.undecided -= len(places)
            if 0 not in pending.outcomes:
                del self._pending[decision.number]
                self._remember(decision.number, bytes(pending.outcomes))

    def _remember(self, number: int, outcomes: bytes) -> None:
        self._ended[number] = outcomes
        self._outcomes += len(outcomes)
        while self._outcomes > OUTCOMES_MAX:
            self._outcomes -= len(self._ended.popitem(last=False)[1])

    def _counts(self, at_ms: int, number: int) -> bool:
        pending = self._pending.get(number)
        return pending is not None and pending.check_at_ms == at_ms

"""
Collects decisions to carry out together, and compares them with earlier ones. PURE.

Used by `coordinator`, which passes requests in; uses the state in `undecided`.
"""

from collections.abc import Sequence

from headrace_mq.broker.transactions.journal import BundleDecision
from headrace_mq.broker.transactions.undecided import Pending, Transactions
from headrace_mq.protocol.transactions import BundleEnds, EndedOtherwise, Outcome

__all__ = ["Drafts"]


class _Draft:
    """The new decisions on one bundle."""

    def __init__(self, outcomes: bytes | bytearray) -> None:
        self.outcomes = bytearray(outcomes)
        self.places: dict[Outcome, list[int]] = {
            Outcome.COMMITTED: [],
            Outcome.ROLLED_BACK: [],
            Outcome.KEPT_ASIDE: [],
        }

    def decide(self, places: Sequence[int], outcome: Outcome) -> list[tuple[int, int]]:
        """Decides undecided transactions; returns (place, outcome) of those decided otherwise earlier."""
        outcomes, mine, otherwise = self.outcomes, self.places[outcome], []
        for place in places:
            before = outcomes[place]
            if not before:
                outcomes[place] = outcome
                mine.append(place)
            elif before != outcome:
                otherwise.append((place, before))
        return otherwise


class Drafts:
    """The decisions of one turn.

    Args:
        state: with the earlier decisions.
    """

    def __init__(self, state: Transactions) -> None:
        self._state = state
        self._drafts: dict[int, _Draft] = {}

    def decide(self, ends: Sequence[BundleEnds]) -> list[EndedOtherwise]:
        """Adds the decisions of one request; returns those that contradict earlier ones."""
        return [one for end in ends for one in self._decide(end)]

    def keep_aside(self, pending: Pending) -> int:
        """Gives up the undecided transactions of a bundle; returns their number."""
        draft = self._drafts.setdefault(pending.number, _Draft(pending.outcomes))
        draft.decide(pending.undecided, Outcome.KEPT_ASIDE)
        return len(draft.places[Outcome.KEPT_ASIDE])

    def decisions(self) -> list[BundleDecision]:
        """Returns the decisions to carry out, by bundle."""
        return [
            BundleDecision(number, *draft.places.values())
            for number, draft in self._drafts.items()
            if any(draft.places.values())
        ]

    def _decide(self, end: BundleEnds) -> list[EndedOtherwise]:
        draft = self._drafts.get(end.number)
        if draft is None:
            outcomes = self._state.outcomes(end.number)
            if outcomes is None:
                places = [*end.commit, *end.roll_back]
                return [EndedOtherwise(end.number, p, Outcome.FORGOTTEN) for p in places]
            draft = self._drafts[end.number] = _Draft(outcomes)
        otherwise = draft.decide(end.commit, Outcome.COMMITTED)
        otherwise += draft.decide(end.roll_back, Outcome.ROLLED_BACK)
        return [EndedOtherwise(end.number, place, outcome) for place, outcome in otherwise]

"""Decisions gathered against what was decided before."""

from headrace_mq.broker.transactions.drafts import Drafts
from headrace_mq.broker.transactions.journal import BundleDecision, Decided, Prepared
from headrace_mq.broker.transactions.undecided import Transactions
from headrace_mq.protocol.transactions import BundleEnds, EndedOtherwise, Outcome


def state(count: int = 3, commit: tuple[int, ...] = ()) -> Transactions:
    made = Transactions(6_000)
    made.apply(Prepared(7, "g", "c", count, 1_000))
    if commit:
        made.apply(Decided(1, [BundleDecision(7, list(commit), [], [])], []))
    return made


def test_an_undecided_transaction_is_decided_once() -> None:
    drafts = Drafts(state())
    assert drafts.decide([BundleEnds(7, [0], [1])]) == []
    assert drafts.decide([BundleEnds(7, [0], [1])]) == []
    assert drafts.decisions() == [BundleDecision(7, [0], [1], [])]


def test_the_first_decision_holds_and_the_other_one_is_reported() -> None:
    drafts = Drafts(state(commit=(0,)))
    late = drafts.decide([BundleEnds(7, [1], [0]), BundleEnds(7, [], [1])])
    assert late == [
        EndedOtherwise(7, 0, Outcome.COMMITTED),
        EndedOtherwise(7, 1, Outcome.COMMITTED),
    ]
    assert drafts.decisions() == [BundleDecision(7, [1], [], [])]


def test_a_repeated_decision_is_nothing_to_carry_out() -> None:
    drafts = Drafts(state(1, commit=(0,)))
    assert drafts.decide([BundleEnds(7, [0], [])]) == []
    assert drafts.decisions() == []


def test_a_forgotten_transaction_is_reported_as_forgotten() -> None:
    drafts = Drafts(state())
    assert drafts.decide([BundleEnds(3, [0], [])]) == [EndedOtherwise(3, 0, Outcome.FORGOTTEN)]
    assert drafts.decisions() == []


def test_only_undecided_transactions_are_given_up() -> None:
    transactions = state()
    drafts = Drafts(transactions)
    drafts.decide([BundleEnds(7, [1], [])])
    pending = transactions.find(7)
    assert pending is not None
    assert drafts.keep_aside(pending) == 2
    assert drafts.decisions() == [BundleDecision(7, [1], [], [0, 2])]

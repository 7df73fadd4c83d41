"""PendingQueries about undecided transactions."""

from pathlib import Path

import pytest

from headrace_mq.broker.journal.batches import NotYet
from headrace_mq.broker.transactions.checks import TransactionChecks
from headrace_mq.broker.transactions.journal import Checked, Prepared
from headrace_mq.broker.transactions.undecided import Transactions
from headrace_mq.protocol.transactions import Bundle, Check, TakeChecks
from headrace_mq.settings import BrokerSettings, StoreSettings

SETTINGS = BrokerSettings(
    store=StoreSettings(directory=Path("nowhere")),
    transaction_timeout_ms=10,
    transaction_check_ms=100,
    transaction_checks_max=2,
)


class Rig:
    """Checks over two bundles of two transactions each, of which the disk may be slow."""

    def __init__(self) -> None:
        self.state = Transactions(SETTINGS.transaction_timeout_ms)
        for number in (1, 2):
            self.state.apply(Prepared(number, "g", "c", 2, 0))
        self.bundles: dict[int, Bundle | None] = {
            number: Bundle("g", "c", [f"{number}a", f"{number}b"], []) for number in (1, 2)
        }
        self.slow = False
        self.checks: TransactionChecks[str] = TransactionChecks(
            self.state, SETTINGS, bundle=self.bundle
        )

    def bundle(self, number: int) -> Bundle | None:
        if self.slow:
            raise NotYet
        return self.bundles[number]

    def wait(self, session: str = "s", client_id: str = "c", group: str = "g") -> list[list[Check]]:
        asked: list[list[Check]] = []
        self.checks.wait(session, TakeChecks(group, client_id, 5), asked.append)
        return asked


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_all_due_checks_are_asked_in_one_answer_and_noted(rig: Rig) -> None:
    asked = rig.wait()
    assert rig.checks.step(9) == []
    assert rig.checks.step(10) == [Checked(1, 1, 110), Checked(2, 1, 110)]
    assert [check.transaction_id for check in asked[0]] == ["1a", "1b", "2a", "2b"]
    assert rig.checks.step(10) == []


def test_an_empty_group_is_asked_when_a_producer_connects(rig: Rig) -> None:
    rig.wait("stranger", group="other")
    assert rig.checks.step(5_000) == []
    asked = rig.wait()
    assert len(rig.checks.step(5_000)) == 2
    assert asked[0][0].attempt == 1


def test_after_the_last_question_a_bundle_is_given_up(rig: Rig) -> None:
    for now_ms in (10, 110):
        rig.wait()
        rig.checks.step(now_ms)
    rig.wait()
    assert rig.checks.step(209) == []
    assert rig.checks.given_up == {}
    assert rig.checks.step(210) == []
    assert list(rig.checks.given_up) == [1, 2]


def test_another_producer_is_asked_if_the_first_stays_silent(rig: Rig) -> None:
    rig.wait("first", "c")
    rig.checks.step(10)
    other = rig.wait("other", "o")
    assert rig.checks.step(110) == []
    assert rig.checks.step(209) == []
    assert len(rig.checks.step(210)) == 2
    assert other[0][0].attempt == 2


def test_a_bundle_on_a_slow_disk_is_asked_for_when_it_came(rig: Rig) -> None:
    asked, rig.slow = rig.wait(), True
    assert rig.checks.step(10) == []
    assert rig.checks.on_its_way
    rig.slow = False
    assert len(rig.checks.step(11)) == 2
    assert not rig.checks.on_its_way
    assert len(asked[0]) == 4


def test_a_bundle_that_is_lost_is_given_up(rig: Rig) -> None:
    rig.bundles[1] = None
    rig.wait()
    rig.checks.step(10)
    assert list(rig.checks.given_up) == [1]


def test_transactions_in_a_segment_to_be_deleted_are_given_up(rig: Rig) -> None:
    rig.checks.give_up_below(2)
    assert list(rig.checks.given_up) == [1]


def test_producers_that_left_are_not_asked_and_each_waiting_request_is_answered_once(
    rig: Rig,
) -> None:
    first = rig.wait()
    second = rig.wait()
    assert (first, second) == ([[]], [])
    rig.checks.forget("s")
    assert rig.checks.step(10) == []
    assert second == []


def test_a_clock_that_is_set_back_delays_a_question_by_one_interval_at_most(rig: Rig) -> None:
    hour = 3_600_000
    rig.state.apply(Prepared(3, "g", "c", 1, hour))
    rig.bundles[3] = Bundle("g", "c", ["3a"], [])
    asked = rig.wait()
    rig.checks.step(5)
    # The first look caught the third one, prepared before this start by a clock an hour ahead.
    assert rig.state.next_check_ms() == 10
    assert [event.number for event in rig.checks.step(105)] == [1, 2, 3]
    assert len(asked[0]) == 5
    asked = rig.wait()
    assert rig.checks.step(105 - hour) == []
    assert len(rig.checks.step(205 - hour)) == 3
    assert {check.attempt for check in asked[0]} == {2}

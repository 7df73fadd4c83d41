"""Refusals that get an entry: few of one client, each once a minute, and none is lost from the counts."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.access.audit import LEFT_OUT, AuditEntry
from headrace_mq.broker.users import refusals as module
from headrace_mq.broker.users.refusals import REFUSALS_MAX, SAME_REFUSAL_MS, Refusals

HOST = "10.0.0.1"


class Clock:
    """A clock that stands still until it is moved."""

    now = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now


def refused(user: str = "ann", resource: str = "topic:t", detail: str = "") -> AuditEntry:
    return AuditEntry(
        at_ms=0, user=user, action="fetch", resource=resource, outcome="refused", detail=detail,
        address=f"{HOST}:1",
    )  # fmt: skip


def told(found: Iterator[AuditEntry]) -> list[tuple[str, str, int]]:
    return [(one.user, one.outcome, one.more) for one in found]


def test_the_same_refusal_is_one_entry_and_a_count() -> None:
    clock = Clock()
    made = Refusals(clock, 5)
    assert [told(made.take(refused(), HOST)) for _ in range(3)] == [[("ann", "refused", 0)], [], []]
    assert told(made.due()) == []
    clock.now += SAME_REFUSAL_MS
    assert told(made.due()) == [("ann", "refused", 2)]
    assert told(made.due(ending=True)) == []


def test_the_same_refusal_a_minute_later_comes_after_the_count() -> None:
    clock = Clock()
    made = Refusals(clock, 5)
    for _ in range(3):
        list(made.take(refused(), HOST))
    clock.now += SAME_REFUSAL_MS
    assert told(made.take(refused(), HOST)) == [("ann", "refused", 2), ("ann", "refused", 0)]


def test_a_reason_counts_and_the_advice_after_it_does_not() -> None:
    made = Refusals(Clock(), 5)
    for detail, entries in (("wrong; a", 1), ("locked; in 9 s", 1), ("locked; in 8 s", 0)):
        assert len(told(made.take(refused(detail=detail), HOST))) == entries, detail


def test_a_user_is_one_client_from_all_addresses_and_strangers_are_one_for_each() -> None:
    made = Refusals(Clock(), 2)
    for user, entries in (("ann", 2), ("", 5)):
        hosts = [f"10.0.0.{number}" for number in range(5)]
        assert sum(len(told(made.take(refused(user), host))) for host in hosts) == entries
    assert told(made.due(ending=True)) == [("ann", LEFT_OUT, 3)]


def test_invented_names_do_not_hide_what_was_tried_with_the_name_of_a_user() -> None:
    made = Refusals(Clock(), 2)
    for number in range(10):
        list(made.take(refused("", f"user:junk{number}"), HOST))
    tries = [
        told(made.take(refused("", "user:root", f"try {number}"), HOST, "user:root"))
        for number in range(5)
    ]
    assert tries == [[("", "refused", 0)]] * 2 + [[]] * 3
    left = [(one.resource, one.more) for one in made.due(ending=True) if one.outcome == LEFT_OUT]
    assert left == [("", 8), ("user:root", 3)]


def test_remembered_refusals_have_a_bound_and_those_that_are_forgotten_leave_their_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "REFUSALS_MAX", 2)
    made = Refusals(Clock(), 1)
    list(made.take(refused("ann"), HOST))
    assert told(made.take(refused("ann"), HOST)) == []
    assert told(made.take(refused("ann", "topic:u"), HOST)) == []
    assert told(made.take(refused("bob"), HOST)) == [("bob", "refused", 0)]
    assert told(made.take(refused("eve"), HOST)) == [
        ("ann", LEFT_OUT, 1), ("ann", "refused", 1), ("eve", "refused", 0),
    ]  # fmt: skip
    assert (len(made._same), len(made._clients)) == (2, 2)
    assert REFUSALS_MAX == 1_000


Refused = st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.integers(0, 90_000))


@given(st.lists(Refused, max_size=60), st.integers(1, 3))
def test_each_refusal_is_an_entry_or_in_a_count(
    made: list[tuple[str, str, int]], most: int
) -> None:
    clock = Clock()
    refusals = Refusals(clock, most)
    found: list[AuditEntry] = []
    for user, resource, passed_ms in made:
        clock.now += passed_ms
        found += [*refusals.due(), *refusals.take(refused(user, resource), HOST)]
    found += refusals.due(ending=True)
    assert sum(one.more or 1 for one in found) == len(made)

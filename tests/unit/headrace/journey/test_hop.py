"""A journey numbers its hops, measures what each took, and puts what follows from a hop behind it."""

import sys
from typing import get_args

from headrace.journey.hop import CAUSES, LANES, STEPS, HopLane, Journey, page_of


def test_a_hop_took_the_time_since_the_last_one_that_has_a_time() -> None:
    journey = Journey()
    sent = journey.add(None, "sender", "sent", "c", at_ms=1_000)
    stored = journey.add(sent, "store", "stored", "version 1")
    published = journey.add(stored, "topic", "published", "t:0:0", at_ms=1_250)
    early = journey.add(published, "reader", "applied", "balances", at_ms=1_240)
    assert [one.took_ms for one in journey.hops] == [None, None, 250, -10]
    assert (published, early) == (3, 4)


def test_a_journey_is_arranged_with_what_follows_right_behind() -> None:
    journey = Journey()
    sent = journey.add(None, "sender", "sent", "a")
    left = journey.add(sent, "reader", "applied", "b")
    journey.add(sent, "reader", "applied", "c")
    journey.add(left, "sender", "commanded", "d", state="waits", cause="not due")
    arranged = [(one.number, one.after, one.name) for one in journey.arranged()]
    assert arranged == [(1, None, "a"), (2, 1, "b"), (3, 2, "d"), (4, 1, "c")]
    assert [one["cause"] for one in journey.plain()] == ["", "", "not due", ""]


def test_a_journey_of_more_hops_than_calls_may_be_nested_is_arranged() -> None:
    journey, after = Journey(), None
    for number in range(sys.getrecursionlimit() + 1):
        after = journey.add(after, "handler", "failed", f"attempt {number}")
    assert [one.number for one in journey.arranged()] == [one.number for one in journey.hops]
    assert len(journey.plain()) == after


def test_words_of_a_journey_are_unique() -> None:
    assert get_args(HopLane) == LANES
    for words in (STEPS, CAUSES):
        assert len(set(words)) == len(words)


def test_a_page_has_its_fields_in_its_address() -> None:
    assert page_of("/group", {"group": "a b&c"}) == "/group?group=a+b%26c"
    assert page_of("/producers", {}) == "/producers"

"""Who gives way where a budget of all connections is used up."""

from hypothesis import given
from hypothesis import strategies as st

from headrace_mq._net.ledger import Budgets, Ledger

SMALL = Budgets(
    connections_max=4,
    connections_per_address_max=2,
    connections_before_hello_max=3,
    requests_bytes_max=100,
    answers_bytes_max=100,
)


def test_a_newcomer_is_turned_away_where_all_places_or_those_of_its_address_are_taken() -> None:
    ledger = Ledger[str](SMALL)
    for name in ("a1", "a2", "b1"):
        assert ledger.refusal(name[0]) is None
        ledger.enter(name, name[0])
    assert "connections_per_address_max" in str(ledger.refusal("a"))
    assert ledger.refusal("b") is None
    ledger.enter("b2", "b")
    assert "raise connections_max" in str(ledger.refusal("c"))
    ledger.leave("a1")
    ledger.leave("a1")
    assert ledger.refusal("a") is None


def test_the_longest_silent_connection_before_hello_makes_room() -> None:
    ledger = Ledger[str](SMALL)
    assert [ledger.enter(name, name) for name in "abc"] == [None] * 3
    ledger.greet("a")
    assert ledger.enter("d", "d") is None
    ledger.leave("d")
    assert ledger.enter("e", "e") is None
    assert ledger._strangers.keys() == {"b", "c", "e"}
    ledger.leave("a")
    assert ledger.enter("f", "f") == "b"


def test_one_address_has_a_part_of_the_connections_before_hello() -> None:
    few = Budgets(100, 100, 50, 100, 100, connections_before_hello_per_address_max=2)
    ledger = Ledger[str](few)
    assert [ledger.enter(name, "here") for name in "ab"] == [None] * 2
    assert [ledger.enter(name, "there") for name in "xy"] == [None] * 2
    assert ledger.enter("c", "here") == "a"
    ledger.leave("a")
    ledger.greet("b")
    assert ledger.enter("d", "here") is None
    assert ledger.enter("e", "here") == "c"


def test_the_connection_with_the_oldest_request_makes_room() -> None:
    ledger = Ledger[str](SMALL)
    assert ledger.hold_request("endless", 1, 60) is None
    assert ledger.hold_request("quick", 7, 40) is None
    # Its next frame is another one: it is the newest again.
    assert ledger.hold_request("quick", 8, 30) is None
    assert ledger.hold_request("endless", 1, 70) is None
    assert ledger.hold_request("third", 1, 1) == "endless"
    ledger.leave("endless")
    assert ledger.requests_bytes == 31
    assert ledger.hold_request("quick", 9, 0) is None
    assert ledger.hold_request("third", 1, 101) == "third"


def test_the_heaviest_readers_come_first() -> None:
    ledger = Ledger[str](SMALL)
    assert not ledger.hold_answers("a", 30)
    assert not ledger.hold_answers("b", 60)
    assert ledger.hold_answers("c", 11)
    assert ledger.slow() == ["b", "a", "c"]
    assert not ledger.hold_answers("b", 0)
    assert ledger.slow() == ["a", "c"]


names = st.sampled_from("abcde")
deeds = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), names, st.just(0)),
        st.tuples(st.just("greet"), names, st.just(0)),
        st.tuples(st.just("leave"), names, st.just(0)),
        st.tuples(st.just("request"), names, st.integers(0, 120)),
        st.tuples(st.just("answers"), names, st.integers(0, 120)),
    )
)


@given(deeds=deeds)
def test_the_books_balance_and_end_empty(deeds: list[tuple[str, str, int]]) -> None:
    ledger = Ledger[str](SMALL)
    there: set[str] = set()
    for number, (deed, name, size) in enumerate(deeds):
        if deed == "enter" and name not in there and ledger.refusal("host") is None:
            there.add(name)
            silent = ledger.enter(name, "host")
            assert silent is None or silent in there
        elif deed == "greet":
            ledger.greet(name)
        elif deed == "leave":
            there.discard(name)
            ledger.leave(name)
        elif deed == "request" and name in there:
            goes = ledger.hold_request(name, number, size)
            assert (goes is not None) == (ledger.requests_bytes > SMALL.requests_bytes_max)
        elif deed == "answers" and name in there:
            assert ledger.hold_answers(name, size) == (ledger.answers_bytes > 100)
        assert len(there) <= SMALL.connections_per_address_max
    for name in there:
        ledger.leave(name)
    assert ledger.refusal("host") is None
    assert (ledger.requests_bytes, ledger.answers_bytes, ledger.slow()) == (0, 0, [])

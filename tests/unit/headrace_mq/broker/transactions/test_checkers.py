"""Who is asked what became of a transaction."""

from headrace_mq.broker.transactions.checkers import Checkers

Asked = list[str]


def test_the_producer_that_prepared_a_transaction_is_asked_alone_while_it_is_connected() -> None:
    checkers: Checkers[str, Asked] = Checkers()
    for name in ("a", "b"):
        checkers.wait(f"session {name}", "g", name, lambda _: None)
    assert checkers.choose("g", "b", anybody=False) == "session b"
    assert checkers.take("session b") is not None
    assert checkers.choose("g", "b", anybody=False) is None
    assert checkers.choose("g", "b", anybody=True) == "session a"
    checkers.forget("session b")
    assert checkers.choose("g", "b", anybody=False) == "session a"


def test_a_group_is_not_asked_for_another() -> None:
    checkers: Checkers[str, Asked] = Checkers()
    checkers.wait("s", "g", "a", lambda _: None)
    assert checkers.is_waited_in("g")
    assert not checkers.is_waited_in("other")
    assert checkers.choose("other", "a", anybody=True) is None


def test_a_producer_that_was_asked_must_offer_itself_again() -> None:
    checkers: Checkers[str, Asked] = Checkers()
    said: list[Asked] = []
    checkers.wait("s", "g", "a", said.append)
    answer = checkers.take("s")
    assert answer is not None
    answer(["t"])
    assert said == [["t"]]
    assert checkers.take("s") is None
    assert not checkers.is_waited_in("g")
    assert checkers.wait("s", "g", "a", said.append) is None
    assert checkers.is_waited_in("g")


def test_a_request_that_replaces_another_gives_it_back_to_be_answered() -> None:
    checkers: Checkers[str, Asked] = Checkers()
    first: list[Asked] = []
    second: list[Asked] = []
    first_answer, second_answer = first.append, second.append
    checkers.wait("s", "g", "a", first_answer)
    assert checkers.wait("s", "g", "a", second_answer) is first_answer
    assert checkers.is_waiting("s", second_answer)
    assert not checkers.is_waiting("s", first_answer)


def test_each_of_a_group_is_asked_in_turn() -> None:
    checkers: Checkers[str, Asked] = Checkers()
    asked = []
    for name in ("a", "b"):
        checkers.wait(name, "g", name, lambda _: None)
    for _ in range(4):
        chosen = checkers.choose("g", "gone", anybody=False)
        assert chosen is not None
        asked.append(chosen)
        checkers.take(chosen)
        checkers.wait(chosen, "g", chosen, lambda _: None)
    assert asked == ["a", "b", "a", "b"]

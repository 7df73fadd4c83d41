"""Messages that go before others, and those behind them that are not forgotten."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.client.fetch.queue_priorities import Priorities, Urgency, prioritized, urgency_of
from headrace_mq.message import Message, QueueRef
from headrace_mq.settings import ConsumerSettings

LEVELS = st.integers(2, 10)


def message(level: int | None = None, key: str = "") -> Message:
    plain = Message(topic="orders", key=key, body=b"", headers={"of": "ann"})
    return plain if level is None else prioritized(plain, level)


@given(levels=LEVELS, more=st.integers(0, 50), level=st.integers(0, 9), keys=st.lists(st.text()))
def test_a_message_goes_to_a_queue_of_its_level_and_a_key_always_to_the_same(
    levels: int, more: int, level: int, keys: list[str]
) -> None:
    level %= levels
    priorities, queues = Priorities(levels), levels + more
    for key in keys:
        chosen = priorities.select(message(level, key), queues)
        assert chosen in range(level, queues, levels)
        if key:
            assert chosen == Priorities(levels).select(message(level, key), queues)


def test_messages_without_a_key_go_to_the_queues_of_their_level_in_turns() -> None:
    priorities = Priorities(2)
    assert [priorities.select(message(1), 6) for _ in range(4)] == [1, 3, 5, 1]
    assert [priorities.select(message(), 6) for _ in range(2)] == [0, 2]


def test_a_message_keeps_its_headers_and_without_a_level_it_has_the_lowest() -> None:
    assert message(3).headers == {"of": "ann", "%priority": "3"}
    assert Priorities(2).select(message(key="a"), 2) == Priorities(2).select(message(0, "a"), 2)


def test_levels_that_do_not_exist_are_refused_with_a_sentence() -> None:
    with pytest.raises(ValueError, match="a level is 0 or more"):
        prioritized(message(), -1)
    with pytest.raises(ValueError, match="levels 0 to 1"):
        Priorities(2).select(message(2), 4)
    with pytest.raises(ValueError, match="add queues"):
        Priorities(3).select(message(2), 2)
    odd = Message(topic="orders", body=b"", headers={"%priority": "high"})
    with pytest.raises(ValueError, match="not 'high': use `prioritized`"):
        Priorities(2).select(odd, 4)
    for levels in (0, 1, 11):
        with pytest.raises(ValueError, match=r"levels?|priorities"):
            Priorities(levels)


@given(levels=LEVELS, numbers=st.lists(st.integers(0, 100)), turns=st.integers(2, 9))
def test_the_highest_level_comes_first_and_one_of_so_many_times_the_lowest(
    levels: int, numbers: list[int], turns: int
) -> None:
    urgency = Urgency(levels, turns=turns)
    queues = [QueueRef("t", number) for number in numbers]
    for turn in range(1, 3 * turns + 1):
        arranged = urgency.arrange(queues, lambda queue: queue)
        found = [queue.queue_id % levels for queue in arranged]
        lowest_first = turn % turns == 0
        assert all(b >= a if lowest_first else a >= b for a, b in pairwise(found))
        for level in range(levels):
            of_level = [queue for queue in queues if queue.queue_id % levels == level]
            assert [queue for queue in arranged if queue in of_level] == of_level


def test_retried_records_have_the_highest_level() -> None:
    again, high, low = QueueRef("%RETRY%g", 0), QueueRef("t", 2), QueueRef("t", 0)
    assert Urgency(3, turns=8).arrange([low, again, high], lambda q: q) == [again, high, low]


def test_without_levels_there_is_nothing_to_arrange() -> None:
    assert urgency_of(ConsumerSettings()) is None
    assert urgency_of(ConsumerSettings(priorities=2)) is not None

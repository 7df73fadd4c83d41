"""What is kept of moves of groups, and when one can be taken back."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.broker.groups import last_resets as module
from headrace_mq.broker.groups.last_resets import KeptReset, LastReset, LastResets, hindrance
from headrace_mq.message import QueueRef

Q0, Q1 = QueueRef("t", 0), QueueRef("t", 1)
NEVER = -1


def reset(*queues: QueueRef, at_ms: int = 1) -> LastReset:
    return LastReset(at_ms, "root", dict.fromkeys(queues, (100, 0)))


def test_of_a_group_its_last_move_is_kept() -> None:
    resets = LastResets()
    assert resets.get("g") is None
    resets.note("g", reset(Q0, at_ms=1))
    resets.note("g", reset(Q1, at_ms=2))
    kept = resets.get("g")
    assert kept is not None
    assert (kept.at_ms, list(kept.moves)) == (2, [Q1])
    resets.drop("g")
    resets.drop("g")
    assert resets.get("g") is None


def test_the_oldest_moves_go_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_OFFSETS_MAX", 3)
    resets = LastResets()
    for name in ("a", "b", "c"):
        resets.note(name, reset(Q0))
    resets.note("a", reset(Q0, Q1))
    assert [name for name in ("a", "b", "c") if resets.get(name)] == ["a", "c"]
    resets.note("a", LastReset(1, "root", {QueueRef("t", number): (1, 0) for number in range(4)}))
    assert resets.get("a") is None


def test_a_queue_that_is_gone_takes_its_move_with_it() -> None:
    resets = LastResets()
    resets.note("g", reset(Q0, Q1))
    resets.note("h", reset(Q0))
    resets.forget([Q0])
    kept = resets.get("g")
    assert kept is not None
    assert list(kept.moves) == [Q1]
    assert resets.get("h") is None


def test_a_file_gives_back_what_it_was_given_for_queues_that_exist() -> None:
    resets = LastResets()
    resets.note("g", LastReset(5, "ann", {Q0: (7, NEVER), Q1: (NEVER, 3)}))
    kept = msgspec.json.decode(resets.encoded(), type=dict[str, KeptReset])
    assert kept == {"g": KeptReset(5, "ann", {"t": {0: (7, NEVER), 1: (NEVER, 3)}})}
    again = LastResets()
    again.load(kept, [Q1])
    assert again.get("g") == LastReset(5, "ann", {Q1: (NEVER, 3)})


def test_a_change_is_in_the_words_of_the_file() -> None:
    resets = LastResets()
    empty = resets.encoded()
    resets.note("g", reset(Q0, Q1))
    both = resets.encoded()
    assert resets.encoded() is both
    resets.forget([Q0])
    one = resets.encoded()
    resets.drop("g")
    assert (len({empty, both, one}), resets.encoded(), empty) == (3, b"{}", b"{}")


@pytest.mark.parametrize(
    ("move", "now", "says"),
    [
        ((100, 0), 0, ""),
        ((100, 0), 40, ""),
        ((100, 0), 100, ""),
        ((100, 0), 120, "t/0 has read on to 120: from 100 on 20 messages would be read twice"),
        ((100, 50), 20, "t/0 was put to 50 and stands at 20: something else has moved it since"),
        ((100, 50), NEVER, "t/0 was put to 50 and stands nowhere: something else has moved it since"),
        ((10, 50), 50, ""),
        ((10, 50), 53, "t/0 has read on to 53: from 50 on 3 messages would be read twice"),
        ((NEVER, 5), 5, ""),
        ((NEVER, 5), 6, "t/0 has read on to 6: from 5 on 1 messages would be read twice"),
        ((5, NEVER), NEVER, ""),
        ((5, NEVER), 3, ""),
    ],
)  # fmt: skip
def test_a_move_is_taken_back_unless_messages_would_be_read_twice(
    move: tuple[int, int], now: int, says: str
) -> None:
    assert hindrance(Q0, 0, move, now) == says


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_no_message_that_was_read_since_is_given_again(before: int, after: int, read: int) -> None:
    now = after + read
    if not hindrance(Q0, 0, (before, after), now):
        assert not set(range(after, now)) & set(range(before, 200))

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.admin.letter_marks import (
    RUNS_MAX,
    LetterMark,
    LetterMarks,
    Runs,
    decode_mark,
    encode_marks,
    marks_queue,
)
from headrace_mq.client.retry_headers import retry_topic
from headrace_mq.message import QueueRef

RUN = st.tuples(st.integers(0, 30), st.integers(0, 30))
RUNS = st.lists(RUN, max_size=8)


def ids(runs: list[tuple[int, int]]) -> set[int]:
    return {one for first, end in runs for one in range(first, end)}


@given(RUNS, RUNS, RUN)
def test_runs_are_a_set_of_ids(
    one: list[tuple[int, int]], other: list[tuple[int, int]], window: tuple[int, int]
) -> None:
    runs, others = Runs(one), Runs(other)
    assert len(runs) == len(ids(one))
    kept = list(runs)
    assert ids(kept) == ids(one)
    # Apart from each other: between two runs at least one id is missing.
    assert all(first < end for first, end in kept)
    assert all(end < first for (_, end), (first, _) in pairwise(kept))
    assert ids(list(runs.without(others))) == ids(one) - ids(other)
    assert ids(list(runs.within(*window))) == ids(one) & ids([window])
    for number in range(32):
        assert (number in runs) == (number in ids(one))
        assert runs.behind(number) == next(n for n in range(number, 99) if n not in ids(one))
        assert runs.next_from(number) == min((n for n in ids(one) if n >= number), default=None)


@given(st.lists(st.tuples(st.booleans(), RUNS), max_size=6), st.integers(0, 5))
def test_marks_tell_what_is_on_the_list_and_when_it_was_sent(
    noted: list[tuple[bool, list[tuple[int, int]]]], before: int
) -> None:
    marks, resent, purged = LetterMarks(before), dict.fromkeys(range(before), 0), set[int]()
    for at_ms, (is_resent, runs) in enumerate(noted, 1):
        kind = "resent" if is_resent else "purged"
        for body in encode_marks(kind, runs):
            mark = decode_mark(body)
            assert mark is not None
            marks.note(mark, at_ms)
        if is_resent:
            resent |= dict.fromkeys(ids(runs), at_ms)
        else:
            purged |= ids(runs)
    assert marks.resent_at_ms(range(32)) == resent
    for unsent in (False, True):
        gone = purged | (set(resent) if unsent else set())
        for one in range(32):
            wanted = next(n for n in range(one, 99) if n not in gone)
            assert marks.next_listed(one, unsent=unsent) == wanted


def test_many_runs_are_several_records_and_none_is_none() -> None:
    runs = [(2 * n, 2 * n + 1) for n in range(RUNS_MAX + 1)]
    first, second = (decode_mark(body) for body in encode_marks("purged", runs))
    assert first is not None
    assert (len(first.runs), second) == (RUNS_MAX, LetterMark("purged", runs[-1:]))
    assert encode_marks("purged", []) == []
    assert decode_mark(b"something else") is None
    assert decode_mark(b'{"kind":"eaten","runs":[]}') is None


def test_every_group_that_can_retry_can_have_marks() -> None:
    longest = "g" * 248
    while True:
        try:
            retry_topic(longest)
        except ValueError:
            longest = longest[1:]
        else:
            break
    assert marks_queue(longest) == QueueRef(f"%MARK%{longest}", 0)
    with pytest.raises(ValueError, match="use letters"):
        marks_queue("no such name")
